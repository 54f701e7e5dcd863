import doctest

import numpy as np
import pytest

from ipu_keras.config import IPUConfig
from ipu_keras.machine.system import LISTING, SYSTEM
from ipu_keras.popart.devices import info, manager
from ipu_keras.popart.devices.manager import DeviceManager
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.options.enumerations import (
    DeviceConnectionType,
    DeviceSelectionCriterion,
    DeviceType,
    SyncPattern,
)

ALWAYS, ON_DEMAND, NEVER = DeviceConnectionType


@pytest.fixture(autouse=True)
def nothing_configured():
    SYSTEM.reset()
    yield
    SYSTEM.reset()


def test_examples():
    assert doctest.testmod(manager).failed == 0
    assert doctest.testmod(info).failed == 0


class TestEnumerate:
    @pytest.mark.parametrize("num_ipus", [1, 2, 4, 8, 16])
    def test_lists_the_configurations_of_a_size(self, num_ipus):
        devices = DeviceManager().enumerateDevices(numIpus=num_ipus)
        expected = [k for k, ipus in enumerate(LISTING) if len(ipus) == num_ipus]
        assert [device.id for device in devices] == expected
        assert [device.driverIds for device in devices] == [list(LISTING[k]) for k in expected]
        assert not any(device.isAttached for device in devices)
        assert {device.type for device in devices} == {DeviceType.Ipu}

    @pytest.mark.parametrize("num_ipus", [0, 3, 32])
    def test_there_are_none_of_other_sizes(self, num_ipus):
        assert DeviceManager().enumerateDevices(numIpus=num_ipus) == []

    def test_other_kinds(self):
        devices = DeviceManager()
        assert len(devices.enumerateDevices(deviceType=DeviceType.Cpu)) == 1
        assert devices.enumerateDevices(deviceType=DeviceType.Cpu, numIpus=2) == []
        assert devices.enumerateDevices(deviceType=DeviceType.OfflineIpu) == []
        (model,) = devices.enumerateDevices(
            deviceType=DeviceType.IpuModel, numIpus=3, tilesPerIPU=8
        )
        assert (model.type, model.numIpus, model.tilesPerIPU) == (DeviceType.IpuModel, 3, 8)

    def test_takes_what_users_say(self):
        (device,) = DeviceManager().enumerateDevices(
            SyncPattern.ReplicaAndLadder, 16, DeviceType.Ipu, ON_DEMAND, 4
        )
        assert (device.id, device.connectionType, device.tilesPerIPU) == (30, ON_DEMAND, 4)


class TestAcquireByNumber:
    def test_the_first_that_is_free(self):
        devices = DeviceManager()
        pair = devices.acquireAvailableDevice(2)
        single = devices.acquireAvailableDevice(np.int64(1), tilesPerIpu=16)
        assert (pair.id, pair.isAttached, pair.device.ipus) == (16, True, (5, 7))
        assert (single.id, single.tilesPerIPU) == (0, 16)
        four = devices.acquireAvailableDevice(4)
        assert four.id == 26  # 24 has IPUs 5 and 7, 25 has IPU 0

    def test_none_if_none_is_free(self):
        devices = DeviceManager()
        held = devices.acquireAvailableDevice(8), devices.acquireAvailableDevice(8)
        assert devices.acquireAvailableDevice(1) is None
        assert devices.tryAcquireAvailableDevice(16) is None
        assert devices.acquireDeviceById(0) is None
        assert devices.tryAcquireDeviceById(0) is None
        held[0].detach()
        assert devices.acquireAvailableDevice(1) is not None
        assert devices.acquireAvailableDevice(32) is None

    def test_ipus_of_tensorflow_are_not_free(self):
        config = IPUConfig()
        config.auto_select_ipus = [8, 4]
        config.configure_ipu_system()
        devices = DeviceManager()
        assert devices.acquireAvailableDevice(8) is None
        held = devices.acquireAvailableDevice(4)
        assert held.driverIds == [9, 11, 10, 8]
        assert devices.acquireAvailableDevice(1) is None
        model = devices.createIpuModelDevice({"numIPUs": 16})
        assert model.isAttached

    def test_at_random(self):
        devices = DeviceManager()
        found = set()
        for _ in range(64):
            with devices.acquireAvailableDevice(
                selectionCriterion=DeviceSelectionCriterion.Random
            ) as device:
                found.add(device.id)
        assert len(found) > 4
        held = [
            devices.acquireAvailableDevice(selectionCriterion=DeviceSelectionCriterion.Random)
            for _ in range(16)
        ]
        assert {device.id for device in held} == set(range(16))

    @pytest.mark.parametrize("connection", [ON_DEMAND, NEVER])
    def test_devices_that_are_not_attached_now_need_not_be_free(self, connection):
        devices = DeviceManager()
        first = devices.acquireAvailableDevice(8, connectionType=connection)
        assert (first.id, first.isAttached) == (28, False)
        held = devices.acquireAvailableDevice(8)
        assert held.id == 28
        assert devices.acquireAvailableDevice(8, connectionType=connection).id == 29
        whole = devices.acquireAvailableDevice(16, connectionType=connection)
        assert (whole.id, whole.isAttached) == (30, False)

    @pytest.mark.parametrize("num_ipus", [3, 6, 12, 17])
    def test_the_number_must_be_a_power_of_two(self, num_ipus):
        message = (
            rf"^You have attempted to acquire {num_ipus} IPUs\. The number of IPUs requested must "
            "be a power of two"
        )
        with pytest.raises(popart_exception, match=message):
            DeviceManager().acquireAvailableDevice(num_ipus)

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"numIpus": 0}, popart_exception, "`numIpus` must be at least 1. Received: numIpus=0"),
            ({"numIpus": 1.0}, TypeError, "`numIpus` must be an integer. Received: numIpus=1.0"),
            ({"numIpus": True}, TypeError, "`numIpus` must be an integer. Received: numIpus=True"),
            (
                {"tilesPerIpu": 1473},
                popart_exception,
                "`tilesPerIpu` must be from 0 to 1472. Received: tilesPerIpu=1473",
            ),
            (
                {"pattern": "full"},
                TypeError,
                "`pattern` must be a SyncPattern, such as SyncPattern.Full. "
                "Received: pattern='full' of type str",
            ),
            (
                {"connectionType": DeviceType.Ipu},
                TypeError,
                "`connectionType` must be a DeviceConnectionType",
            ),
            ({"selectionCriterion": 0}, TypeError, "`selectionCriterion` must be a Device"),
        ],
    )
    def test_wrong_arguments(self, arguments, error, message):
        with pytest.raises(error) as raised:
            DeviceManager().acquireAvailableDevice(**arguments)
        assert str(raised.value).startswith(message)
        assert SYSTEM.acquired == ()


class TestAcquireById:
    def test_the_device_of_a_number(self):
        device = DeviceManager().acquireDeviceById(24, SyncPattern.SinglePipeline)
        assert (device.id, device.driverIds) == (24, [5, 7, 4, 6])
        assert device.isAttached
        waiting = DeviceManager().acquireDeviceById(16, connectionType=ON_DEMAND)
        assert not waiting.isAttached

    @pytest.mark.parametrize("number", [-1, 31])
    def test_there_is_no_other(self, number):
        message = f"There is no device with id {number}: the machine has devices 0 to 30"
        with pytest.raises(popart_exception, match=message):
            DeviceManager().acquireDeviceById(number)

    def test_it_must_be_a_number(self):
        with pytest.raises(TypeError, match=r"`id` must be an integer\. Received: id='0'"):
            DeviceManager().acquireDeviceById("0")


class TestCreate:
    def test_a_model(self):
        model = DeviceManager().createIpuModelDevice(
            {"numIPUs": "3", "tilesPerIPU": 4, "compileIPUCode": False, "ipuVersion": "ipu1"}
        )
        assert (model.type, model.numIpus, model.tilesPerIPU, model.version) == (
            DeviceType.IpuModel,
            3,
            4,
            "ipu1",
        )
        assert (model.id, model.driverIds, model.isAttached) == (0, [], True)
        target = model.target()
        assert (target.name, target.num_tiles) == ("gc2", 4)

    def test_defaults_of_a_model(self):
        model = DeviceManager().createIpuModelDevice({})
        assert (model.numIpus, model.tilesPerIPU, model.version) == (1, 1472, "ipu2")

    @pytest.mark.parametrize(
        ("method", "words"),
        [
            ("createIpuModelDevice", "createHostDevice"),
            ("createSimDevice", "createSimDevice"),
            ("createOfflineIPUDevice", "createOfflineIPUDevice"),
        ],
    )
    def test_unknown_options(self, method, words):
        message = rf"^Invalid option `numIpus' passed to DevicexManager::{words}: numIpus=1\. It"
        with pytest.raises(popart_exception, match=message):
            getattr(DeviceManager(), method)({"numIpus": 1})

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"numIPUs": 0}, popart_exception, "`numIPUs` must be from 1 to 1024. Received: n"),
            ({"numIPUs": "two"}, TypeError, "`numIPUs` must be an integer. Received: numIPUs='t"),
            (
                {"tilesPerIPU": 1217, "ipuVersion": "ipu1"},
                popart_exception,
                "`tilesPerIPU` must be from 0 to 1216. Received: tilesPerIPU=1217",
            ),
            (
                {"ipuVersion": "ipu3"},
                popart_exception,
                "`ipuVersion` must be one of 'ipu1', 'ipu2', 'ipu21'. Received: ipuVersion='ipu3'",
            ),
            (
                {"compileIPUCode": "maybe"},
                popart_exception,
                "`compileIPUCode` must be true or false. Received: compileIPUCode='maybe'",
            ),
            ([("numIPUs", 1)], TypeError, "The options of a device must be a dict. Received: ["),
        ],
    )
    def test_values_of_options(self, options, error, message):
        with pytest.raises(error) as raised:
            DeviceManager().createIpuModelDevice(options)
        assert str(raised.value).startswith(message)

    def test_the_host(self):
        host = DeviceManager().createCpuDevice()
        assert (host.type, host.numIpus, host.isAttached) == (DeviceType.Cpu, 1, True)
        assert host.target() is None
        assert (host.tilesPerIpu, host.numWorkerContexts, host.version) == (1, 1, "cpu")

    def test_a_simulator(self):
        sim = DeviceManager().createSimDevice({"numIPUs": 1, "tilesPerIPU": 2})
        assert (sim.type, sim.tilesPerIPU, sim.isAttached) == (DeviceType.Sim, 2, True)

    def test_an_offline_device(self):
        offline = DeviceManager().createOfflineIPUDevice(
            {"numIPUs": 64, "ipuVersion": "ipu21", "syncPattern": "full", "gatewayMode": "true"}
        )
        assert (offline.type, offline.numIpus, offline.isAttached) == (
            DeviceType.OfflineIpu,
            64,
            False,
        )
        assert offline.canCompileOffline
        assert offline.target().name == "bow"
        for use in (offline.attach, offline.tryAttachUntilTimeout, lambda: offline.device):
            with pytest.raises(
                popart_exception, match=r"^Offline IPU device is not configured for execution"
            ):
                use()
        with pytest.raises(popart_exception, match="Unknown sync pattern setting"):
            DeviceManager().createOfflineIPUDevice({"syncPattern": "none"})
