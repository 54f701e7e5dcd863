import contextlib
import gc
import re
import threading
import time

import pytest
import tensorflow as tf

from ipu_keras.config import IPUConfig
from ipu_keras.machine.system import SYSTEM
from ipu_keras.popart.devices.manager import DeviceManager
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.options.enumerations import DeviceConnectionType


@pytest.fixture(autouse=True)
def nothing_configured():
    SYSTEM.reset()
    yield
    SYSTEM.reset()


def test_what_it_tells():
    device = DeviceManager().acquireDeviceById(16)
    assert device.numIpus == 2
    assert device.tilesPerIPU == device.tilesPerIpu == 1472
    assert device.numWorkerContexts == 6
    assert device.version == "ipu2"
    assert device.canCompileOffline
    assert not DeviceManager().createIpuModelDevice({}).canCompileOffline
    assert str(device) == (
        "Device Type: Ipu Connection Type: Always Id: 16 Version: ipu2 NumIPUs: 2 "
        "Tiles Per IPU: 1472 DriverIDs: {5,7}"
    )


def test_what_the_cost_model_counts_with():
    device = DeviceManager().acquireAvailableDevice(1)
    assert (device.target().name, device.target().num_tiles) == ("gc200", 1472)
    assert device.target(num_io_tiles=32).num_tiles == 1440
    small = DeviceManager().acquireAvailableDevice(1, tilesPerIpu=8)
    assert small.target(num_io_tiles=2).num_tiles == 6


def test_each_has_a_tensorflow_device_of_its_own():
    devices = [DeviceManager().acquireAvailableDevice(1) for _ in range(2)]
    devices.append(DeviceManager().createCpuDevice())
    names = [device.device.name for device in devices]
    assert len(set(names)) == 3
    for name in names:
        with tf.device(name):
            assert (tf.constant(1.0) + 1.0).device == name
    assert tf.config.list_logical_devices("IPU") == []


def test_configuring_for_tensorflow_disturbs_nothing():
    device = DeviceManager().acquireDeviceById(0)
    with tf.device(device.device.name):
        x = tf.constant([1.0, 2.0])
    config = IPUConfig()
    config.auto_select_ipus = [1, 1]
    config.configure_ipu_system()
    assert [configured.ipus for configured in SYSTEM.devices] == [(1,), (2,)]
    SYSTEM.reset()
    assert (x + 1.0).numpy().tolist() == [2.0, 3.0]
    config.select_ipus, config.auto_select_ipus = [0], []
    message = "Could not attach /device:IPU:0 to the device configuration 0: its IPU 0 is held by"
    with pytest.raises(tf.errors.FailedPreconditionError, match=message):
        config.configure_ipu_system()
    device.detach()
    config.configure_ipu_system()
    assert device.attach() is False


def test_attach_and_detach():
    device, other = (DeviceManager().enumerateDevices(numIpus=16)[0] for _ in range(2))
    with pytest.raises(popart_exception, match=re.escape(f"The device is not attached: {device}.")):
        device.device  # noqa: B018
    assert device.attach() is True
    assert device.attach() is True
    assert other.attach() is False
    tensorflow_device = device.device
    device.detach()
    device.detach()
    assert not device.isAttached
    assert other.attach() is True
    assert other.device is tensorflow_device
    device.detach()
    assert other.isAttached


def test_a_with_statement_detaches():
    with DeviceManager().acquireAvailableDevice(16) as device:
        assert device.isAttached
    assert not device.isAttached
    with pytest.raises(ZeroDivisionError), DeviceManager().acquireAvailableDevice(16) as device:
        1 / 0  # noqa: B018
    assert DeviceManager().acquireAvailableDevice(16) is not None


def test_the_last_reference_releases_the_ipus():
    device = DeviceManager().acquireAvailableDevice(16)
    alias = device
    del device
    assert DeviceManager().acquireAvailableDevice(1) is None
    alias.itself = alias
    del alias
    gc.collect()
    config = IPUConfig()
    config.auto_select_ipus = 16
    config.configure_ipu_system()


def test_a_device_that_is_never_attached():
    device = DeviceManager().acquireAvailableDevice(1, connectionType=DeviceConnectionType.Never)
    message = (
        r"^Trying to attach to a device whose connection type is `DeviceConnectionType\.Never`"
    )
    for use in (device.attach, device.tryAttachUntilTimeout, lambda: device.device):
        with pytest.raises(popart_exception, match=message):
            use()
    assert device.target().name == "gc200"


class TestOnDemand:
    @pytest.fixture(autouse=True)
    def no_timeout_after(self):
        yield
        DeviceManager().setOnDemandAttachTimeout(0)

    def acquire(self):
        return DeviceManager().acquireAvailableDevice(
            16, connectionType=DeviceConnectionType.OnDemand
        )

    def test_it_waits_until_the_ipus_are_free(self):
        DeviceManager().setOnDemandAttachTimeout(60)
        device, holder = self.acquire(), DeviceManager().acquireAvailableDevice(1)
        timer = threading.Timer(0.1, holder.detach)
        timer.start()
        assert not device.isAttached
        assert device.tryAttachUntilTimeout() is True
        assert not holder.isAttached
        timer.join()

    def test_it_gives_up(self):
        device, holder = self.acquire(), DeviceManager().acquireAvailableDevice(1)
        begin = time.monotonic()
        assert device.tryAttachUntilTimeout() is False
        assert time.monotonic() - begin < 5
        DeviceManager().setOnDemandAttachTimeout(1)
        begin = time.monotonic()
        assert self.acquire().tryAttachUntilTimeout() is False
        assert time.monotonic() - begin >= 1
        assert holder.isAttached

    def test_the_timeout_is_a_number_of_seconds(self):
        message = "`attachTimeout` must be at least 0. Received: attachTimeout=-1"
        with pytest.raises(popart_exception, match=message):
            DeviceManager().setOnDemandAttachTimeout(-1)


def test_threads_attach_one_handle_once():
    (device,) = DeviceManager().enumerateDevices(numIpus=16)
    results, barrier = [], threading.Barrier(8)

    def attach():
        barrier.wait()
        results.append(device.attach())

    threads = [threading.Thread(target=attach) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 8
    assert len(SYSTEM.acquired) == 1


def test_threads_acquire_while_tensorflow_is_configured():
    failures = []

    def use():
        try:
            for _ in range(30):
                with contextlib.ExitStack() as stack:
                    device = DeviceManager().acquireAvailableDevice(2)
                    if device is not None:
                        stack.enter_context(device)
                        with tf.device(device.device.name):
                            x = tf.constant([1.0, 2.0]) * 2.0
                        assert x.numpy().tolist() == [2.0, 4.0]
                        assert sorted(device.device.ipus) == sorted(device.driverIds)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    config = IPUConfig()
    config.auto_select_ipus = [1, 2]
    for _ in range(20):
        config.configure_ipu_system()
        SYSTEM.reset()
    for thread in threads:
        thread.join()
    assert failures == []
    assert SYSTEM.acquired == ()


def test_a_process_may_end_with_devices_attached(run_forked):
    script = (
        "from ipu_keras.popart.devices.manager import DeviceManager\n"
        "import tensorflow as tf\n"
        "device = DeviceManager().acquireAvailableDevice(4)\n"
        "with tf.device(device.device.name):\n"
        "    x = tf.constant(1.0) + 1.0\n"
        "print(float(x))\n"
    )
    assert run_forked(script).stdout == "2.0\n"
