import doctest
import gc
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.config import IPUConfig
from ipu_keras.machine import system
from ipu_keras.machine.system import (
    FIRST_ACQUIRED,
    IPU_MODEL_LIMIT,
    LISTING,
    PCI_ADDRESSES,
    DeviceConfiguration,
    System,
    check_cpu_device,
    resolve_devices,
)


class Refused(Exception):
    """What the driver of these tests makes of a refusal."""


class RecordingDriver:
    """Writes down what it is asked to do; attaching `failing` fails."""

    def __init__(self, failing=None):
        self.failing = failing
        self.calls = []
        self.acquired = {}

    def attach(self, devices, config):
        ipus = tuple(device.ipus for device in devices)
        self.calls.append(("attach", ipus, config.auto_select_ipus))
        if config.auto_select_ipus == self.failing:
            raise OSError("no such machine")

    def detach(self):
        self.calls.append(("detach",))

    def acquire(self, device):
        if device.ipus == self.failing:
            raise OSError("no such machine")
        assert device.ordinal not in self.acquired
        self.acquired[device.ordinal] = device.ipus

    def release(self, ordinal):
        del self.acquired[ordinal]

    def refuse(self, message):
        return Refused(message)


@pytest.fixture(autouse=True)
def no_flags(monkeypatch):
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)


def config_with(**options):
    config = IPUConfig()
    for name, value in options.items():
        setattr(config, name, value)
    return config


def resolve(auto=(), select=(), ipu_model=False):
    return resolve_devices(auto, select, ipu_model=ipu_model, refuse=Refused)


def test_examples():
    assert doctest.testmod(system).failed == 0


class TestListing:
    def test_single_ipus_come_first_and_have_addresses(self):
        assert LISTING[:16] == tuple((ipu,) for ipu in range(16))
        assert len(set(PCI_ADDRESSES)) == 16
        assert [PCI_ADDRESSES[ipu] for ipu in (0, 8, 15)] == [
            "0000:1a:00.0",
            "0000:8b:00.0",
            "0000:bb:00.0",
        ]

    def test_groups_are_two_smaller_groups_in_order(self):
        # 16..23 pairs, 24..27 fours, 28 and 29 eights, 30 everything.
        assert [len(ipus) for ipus in LISTING[16:]] == [2] * 8 + [4] * 4 + [8] * 2 + [16]
        for group in range(24, 31):
            first = 16 + 2 * (group - 24)
            assert LISTING[group] == LISTING[first] + LISTING[first + 1]

    def test_documented_groups(self):
        addresses = [[PCI_ADDRESSES[ipu] for ipu in LISTING[group]] for group in (24, 25)]
        assert addresses == [
            ["0000:3e:00.0", "0000:44:00.0", "0000:3d:00.0", "0000:43:00.0"],
            ["0000:24:00.0", "0000:1b:00.0", "0000:23:00.0", "0000:1a:00.0"],
        ]
        assert LISTING[16:24] == (
            *((5, 7), (4, 6), (3, 1), (2, 0)),
            *((13, 15), (12, 14), (9, 11), (10, 8)),
        )


class TestAutoSelection:
    @pytest.mark.parametrize(
        ("auto", "config_ids"),
        [
            ([], [0]),  # neither selector: one device, one IPU
            (1, [0]),
            (2, [16]),
            (16, [30]),
            ([2, 2], [16, 17]),
            ((1, 2), [0, 16]),
            ([8, 4, 2, 1, 1], [28, 26, 22, 8, 10]),
            ([1, 8], [8, 28]),  # the larger device chooses first
            ([1] * 16, list(range(16))),
        ],
    )
    def test_picks_the_first_free_entries(self, auto, config_ids):
        devices = resolve(auto)
        assert devices == tuple(
            DeviceConfiguration(ordinal, config_id, LISTING[config_id])
            for ordinal, config_id in enumerate(config_ids)
        )

    @given(st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=17))
    def test_every_request_that_fits_is_met_without_sharing(self, counts):
        if sum(counts) > 16:
            with pytest.raises(Refused, match="Unsupported number of IPUs requested"):
                resolve(counts)
            return
        devices = resolve(counts)
        assert [len(device.ipus) for device in devices] == counts
        assert [device.name for device in devices] == [
            f"/device:IPU:{k}" for k in range(len(counts))
        ]
        used = [ipu for device in devices for ipu in device.ipus]
        assert len(used) == len(set(used))

    @given(st.integers(1, 10**12).filter(lambda count: count not in (1, 2, 4, 8, 16)))
    def test_sizes_that_no_entry_has_are_refused(self, count):
        with pytest.raises(Refused) as error:
            resolve([1, count])
        assert str(error.value).startswith(
            "Unsupported number of IPUs requested - could not find an IPU device with "
            f"{count} IPUs for the TensorFlow virtual device /device:IPU:1. Received: "
            f"auto_select_ipus=[1, {count}]. The machine has 16 IPUs in groups of 1, 2, 4, 8 or"
        )
        assert "--use_ipu_model" in str(error.value)

    def test_the_refusal_says_how_many_are_left(self):
        with pytest.raises(Refused, match=r"with 2 IPUs .*/device:IPU:1\. .*; 0 of them are left"):
            resolve([8, 2, 4, 4])
        with pytest.raises(Refused, match=r"with 8 IPUs .*/device:IPU:3\. .*; 0 of them are left"):
            resolve([8, 1, 8, 8])


class TestSelection:
    @pytest.mark.parametrize(
        ("select", "ipus"),
        [
            (0, [(0,)]),
            (8, [(8,)]),
            ([0, 1], [(0,), (1,)]),
            ((24, 25), [(5, 7, 4, 6), (3, 1, 2, 0)]),
            ([29, 16], [(13, 15, 12, 14, 9, 11, 10, 8), (5, 7)]),
        ],
    )
    def test_takes_the_listed_entries_in_order(self, select, ipus):
        devices = resolve(select=select)
        assert [device.ipus for device in devices] == ipus
        assert [LISTING[device.config_id] for device in devices] == ipus
        assert [device.ordinal for device in devices] == list(range(len(ipus)))

    def test_an_unknown_id_is_refused(self):
        message = "configuration 31 requested .*/device:IPU:1.*configurations 0 to 30"
        with pytest.raises(Refused, match=message):
            resolve(select=[30 - 1, 31])

    @pytest.mark.parametrize(("select", "ipu"), [([3, 3], 3), ([24, 5], 5), ([0, 1, 30], 1)])
    def test_an_ipu_belongs_to_one_device(self, select, ipu):
        last = len(select) - 1
        message = (
            rf"Could not attach /device:IPU:{last} to the device configuration {select[-1]}: "
            rf"its IPU {ipu} belongs to /device:IPU:\d already. Received: select_ipus=\["
        )
        with pytest.raises(Refused, match=message):
            resolve(select=select)


class TestIpuModel:
    def test_a_device_may_have_any_number_of_ipus(self):
        devices = resolve([3, 32], ipu_model=True)
        assert devices == (
            DeviceConfiguration(0, None, (0, 1, 2)),
            DeviceConfiguration(1, None, tuple(range(3, 35))),
        )
        assert resolve(ipu_model=True) == (DeviceConfiguration(0, None, (0,)),)

    def test_there_is_a_limit(self):
        assert len(resolve(IPU_MODEL_LIMIT, ipu_model=True)[0].ipus) == IPU_MODEL_LIMIT
        message = r"with 10 IPUs .*/device:IPU:1\. .* 1024 IPUs in all, of which 4 are left"
        with pytest.raises(Refused, match=message):
            resolve([IPU_MODEL_LIMIT - 4, 10], ipu_model=True)

    def test_entries_cannot_be_selected(self):
        message = (
            "When using the IPUModel, the devices to attach to can only be specified with "
            r"`auto_select_ipus`\.\nReceived: select_ipus=0 with --use_ipu_model"
        )
        with pytest.raises(Exception, match=message):
            resolve(select=0, ipu_model=True)


class TestConfigure:
    def test_takes_a_frozen_copy(self):
        machine, config = System(), config_with(auto_select_ipus=[2])
        assert (machine.devices, machine.config) == ((), None)
        machine.configure(config)
        config.auto_select_ipus = [4]
        assert machine.config.auto_select_ipus == [2]
        assert machine.devices == (DeviceConfiguration(0, 16, (5, 7)),)
        machine.reset()
        assert (machine.devices, machine.config) == ((), None)

    def test_reconfiguring_resets_with_one_warning(self):
        machine, driver = System(), RecordingDriver()
        machine.connect(driver)
        machine.configure(config_with(auto_select_ipus=1))
        with pytest.warns(UserWarning, match="configured already") as warned:
            machine.configure(config_with(select_ipus=[16, 17]))
        assert [str(warning.message) for warning in warned] == [
            "The IPU system was configured already with /device:IPU:0: it is reset and then has "
            "/device:IPU:0, /device:IPU:1. Call reset_ipu_configuration() first if that is what "
            "you want."
        ]
        assert driver.calls == [
            ("attach", ((0,),), 1),
            ("detach",),
            ("attach", ((5, 7), (4, 6)), []),
        ]

    def test_without_reset_a_configured_system_is_left_alone(self):
        machine, driver = System(), RecordingDriver()
        machine.connect(driver)
        machine.configure(config_with(auto_select_ipus=1), reset=False)
        message = (
            "IPU system configuration has already been set in this process, but it should have "
            "been reset automatically by .* reset_configuration=False while /device:IPU:0 are"
        )
        with pytest.raises(Refused, match=message):
            machine.configure(config_with(auto_select_ipus=2), reset=False)
        assert machine.config.auto_select_ipus == 1
        assert len(driver.calls) == 1

    @pytest.mark.parametrize(
        ("options", "flags", "error"),
        [
            ({"auto_select_ipus": 3}, "", Refused),
            ({"select_ipus": [0, 0]}, "", Refused),
            ({"select_ipus": 0}, "--use_ipu_model", Exception),
            ({"auto_select_ipus": 1}, "--no_such_flag", ValueError),
        ],
    )
    def test_a_refused_configuration_changes_nothing(self, monkeypatch, options, flags, error):
        machine, driver = System(), RecordingDriver()
        machine.connect(driver)
        machine.configure(config_with(auto_select_ipus=4))
        before = machine.devices, machine.config
        monkeypatch.setenv("TF_POPLAR_FLAGS", flags)
        with pytest.raises(error):
            machine.configure(config_with(**options))
        assert (machine.devices, machine.config) == before
        assert driver.calls == [("attach", ((5, 7, 4, 6),), 4)]

    @pytest.mark.filterwarnings("ignore:The IPU system was configured already")
    def test_the_previous_devices_are_attached_again_if_attaching_fails(self):
        machine, driver = System(), RecordingDriver(failing=8)
        machine.connect(driver)
        machine.configure(config_with(auto_select_ipus=2))
        before = machine.devices, machine.config
        with pytest.raises(OSError, match="no such machine"):
            machine.configure(config_with(auto_select_ipus=8))
        assert (machine.devices, machine.config) == before
        assert [call[0] for call in driver.calls] == ["attach", "detach", "attach", "attach"]
        assert driver.calls[-1] == driver.calls[0]

    def test_a_failing_first_attach_leaves_the_system_unconfigured(self):
        machine = System()
        machine.connect(RecordingDriver(failing=8))
        with pytest.raises(OSError, match="no such machine"):
            machine.configure(config_with(auto_select_ipus=8))
        assert (machine.devices, machine.config) == ((), None)

    def test_warnings_that_are_errors_come_before_any_change(self):
        machine = System()
        machine.configure(config_with(auto_select_ipus=2))
        with pytest.raises(UserWarning, match="was configured already"):
            machine.configure(config_with(auto_select_ipus=4))
        assert machine.config.auto_select_ipus == 2

    def test_refusals_without_driver_are_runtime_errors(self):
        with pytest.raises(RuntimeError, match="Unsupported number of IPUs requested"):
            System().configure(config_with(auto_select_ipus=32))

    def test_idle_flags_are_one_warning_with_reasons(self, monkeypatch):
        monkeypatch.setenv("TF_POPLAR_FLAGS", "--allow_nans --use_ipu_model --max_infeed_threads=2")
        with pytest.warns(UserWarning, match="have no effect today") as warned:
            System().configure(config_with(auto_select_ipus=3))
        assert [str(warning.message) for warning in warned] == [
            "These flags in TF_POPLAR_FLAGS have no effect today: --max_infeed_threads=2, "
            "--allow_nans=True.\n"
            "  --max_infeed_threads=2: Each infeed has one thread.\n"
            "  --allow_nans=True: The host computes, for which NaN is a number like others."
        ]

    def test_help_is_printed(self, monkeypatch, capsys):
        monkeypatch.setenv("TF_POPLAR_FLAGS", "--help")
        System().configure(IPUConfig())
        assert "--use_ipu_model=bool (default False)" in capsys.readouterr().out


class TestConnect:
    def test_a_late_driver_attaches_what_is_configured(self):
        machine, driver = System(), RecordingDriver()
        machine.configure(config_with(auto_select_ipus=[1, 1]))
        machine.connect(driver)
        assert driver.calls == [("attach", ((0,), (1,)), [1, 1])]
        assert len(machine.devices) == 2

    def test_a_new_driver_takes_over(self):
        machine, old, new = System(), RecordingDriver(), RecordingDriver()
        machine.connect(old)
        machine.configure(config_with(auto_select_ipus=1))
        machine.connect(new)
        assert old.calls[-1] == ("detach",)
        assert new.calls == [("attach", ((0,),), 1)]

    def test_reset_detaches_only_what_is_attached(self):
        machine, driver = System(), RecordingDriver()
        machine.connect(driver)
        machine.reset()
        assert driver.calls == []
        machine.configure(IPUConfig())
        machine.reset()
        machine.reset()
        assert driver.calls == [("attach", ((0,),), []), ("detach",)]


class TestDeviceNames:
    @pytest.mark.parametrize(
        ("name", "ordinal"),
        [
            ("/device:IPU:1", 1),
            ("IPU:0", 0),
            ("/ipu:2", 2),
            ("ipu", 0),
            ("/job:localhost/replica:0/task:0/device:IPU:2", 2),
        ],
    )
    def test_a_device_is_found_by_any_spelling(self, name, ordinal):
        machine = System()
        machine.configure(config_with(auto_select_ipus=[1, 2, 4]))
        assert machine.device(name) is machine.devices[ordinal]

    @pytest.mark.parametrize("name", ["/device:IPU:3", "/device:CPU:0", "IPU:x", "xIPU:0", "", 0])
    def test_an_unknown_device_is_an_error_that_names_the_known(self, name):
        machine = System()
        machine.configure(config_with(auto_select_ipus=[1, 2]))
        with pytest.raises(ValueError) as error:
            machine.device(name)
        assert str(error.value).startswith(
            f"There is no IPU device {name!r}. Configured devices: /device:IPU:0, /device:IPU:1."
        )

    def test_nothing_configured(self):
        with pytest.raises(
            RuntimeError, match=r"No IPU devices configured\.\nConfigure them first"
        ):
            System().device("/device:IPU:0")

    @pytest.mark.parametrize(
        "name", ["cpu", "CPU:0", "/cpu:0", "/device:CPU:0", "/job:a/replica:0/task:0/device:CPU:1"]
    )
    def test_cpu_devices_are_accepted(self, name):
        check_cpu_device(name)

    @pytest.mark.parametrize("name", ["/device:IPU:0", "gpu", "", "cpus", None, "/device:CPU:x"])
    def test_other_devices_are_not(self, name):
        with pytest.raises(ValueError, match=r"`device` must be the CPU device .* Received: dev"):
            check_cpu_device(name)


class TestAcquire:
    def test_the_first_free_configuration_is_held(self):
        machine, driver = System(), RecordingDriver()
        machine.connect(driver)
        first = machine.acquire([16, 18])
        second = machine.acquire([5, 16, 18, 20])
        assert first == DeviceConfiguration(FIRST_ACQUIRED, 16, (5, 7))
        assert second == DeviceConfiguration(FIRST_ACQUIRED + 1, 18, (3, 1))
        assert machine.acquired == (first, second)
        assert driver.acquired == {FIRST_ACQUIRED: (5, 7), FIRST_ACQUIRED + 1: (3, 1)}
        assert machine.acquire([5, 7, 16, 24, 28, 30]) is None
        assert machine.acquire([]) is None
        assert machine.devices == ()

    def test_releasing_gives_ipus_and_ordinal_back(self):
        machine, driver = System(), RecordingDriver()
        machine.connect(driver)
        first, second = machine.acquire([0]), machine.acquire([1])
        machine.release(first)
        machine.release(first)
        assert machine.acquired == (second,)
        assert driver.acquired == {FIRST_ACQUIRED + 1: (1,)}
        again = machine.acquire([0])
        assert again == first
        machine.release(first)  # it was given up before: this is another one
        assert machine.acquired == (again, second)

    def test_what_nobody_has_any_more_is_free(self):
        machine, driver = System(), RecordingDriver()
        machine.connect(driver)
        held = machine.acquire([30])
        assert machine.acquire(range(31)) is None
        del held
        assert machine.acquired == ()
        assert driver.acquired == {}
        kept = machine.acquire([30])
        loop = [kept]
        loop.append(loop)
        del kept, loop
        gc.collect()
        assert machine.acquire([0]).ipus == (0,)

    def test_ipus_that_are_configured_are_not_free(self):
        machine = System()
        machine.configure(config_with(auto_select_ipus=[2]))
        assert machine.acquire([16, 5, 7]) is None
        assert machine.acquire([16, 17]).ipus == (4, 6)
        machine.reset()
        assert machine.acquire([16]).ipus == (5, 7)

    def test_ipus_that_are_held_are_not_configured(self):
        machine = System()
        held = machine.acquire([0]), machine.acquire([4])
        machine.configure(config_with(auto_select_ipus=[1, 4]))
        assert [device.ipus for device in machine.devices] == [(1,), (13, 15, 12, 14)]
        assert [device.ordinal for device in machine.devices] == [0, 1]
        machine.reset()
        message = (
            r"with 16 IPUs for .*; 14 of them are left for this device, and 2 are held by "
            rf"/device:IPU:{FIRST_ACQUIRED}, /device:IPU:{FIRST_ACQUIRED + 1}, acquired beside"
        )
        with pytest.raises(RuntimeError, match=message):
            machine.configure(config_with(auto_select_ipus=16))
        message = (
            r"Could not attach /device:IPU:1 to the device configuration 24: its IPU 4 is held "
            rf"by /device:IPU:{FIRST_ACQUIRED + 1}, which was acquired\. Received: "
            r"select_ipus=\[8, 24\]; release that device first"
        )
        with pytest.raises(RuntimeError, match=message):
            machine.configure(config_with(select_ipus=[8, 24]))
        assert machine.devices == ()
        assert machine.acquired == held

    @pytest.mark.filterwarnings("ignore:The IPU system was configured already")
    def test_configuring_and_resetting_leave_acquired_devices_alone(self):
        machine, driver = System(), RecordingDriver(failing=4)
        machine.connect(driver)
        held = machine.acquire([29])
        before = dict(driver.acquired)
        machine.configure(config_with(auto_select_ipus=[1] * 8))
        machine.configure(config_with(auto_select_ipus=2))
        with pytest.raises(OSError, match="no such machine"):
            machine.configure(config_with(auto_select_ipus=4))
        machine.reset()
        assert machine.acquired == (held,)
        assert driver.acquired == before

    def test_ipu_models_have_ipus_of_their_own(self, monkeypatch):
        machine = System()
        models = machine.acquire_model(3), machine.acquire_model(IPU_MODEL_LIMIT)
        assert [(d.config_id, len(d.ipus)) for d in models] == [(None, 3), (None, IPU_MODEL_LIMIT)]
        assert len({device.ordinal for device in models}) == 2
        whole = machine.acquire([30])
        assert whole is not None
        monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
        machine.configure(config_with(auto_select_ipus=[1] * IPU_MODEL_LIMIT))
        assert not {d.ordinal for d in machine.devices} & {d.ordinal for d in machine.acquired}
        machine.release(whole)
        assert machine.acquire([0]) is not None
        for number in (0, IPU_MODEL_LIMIT + 1):
            message = rf"An IPU Model has 1 to 1024 IPUs\. Received: num_ipus={number}"
            with pytest.raises(RuntimeError, match=message):
                machine.acquire_model(number)

    def test_a_driver_that_fails_leaves_nothing_held(self):
        machine = System()
        machine.connect(RecordingDriver(failing=(3, 1)))
        with pytest.raises(OSError, match="no such machine"):
            machine.acquire([18])
        assert machine.acquired == ()
        assert machine.acquire([3]).ordinal == FIRST_ACQUIRED

    def test_a_new_driver_takes_over_what_is_held(self):
        machine, old, new = System(), RecordingDriver(), RecordingDriver()
        held = machine.acquire([2])
        machine.connect(old)
        assert old.acquired == {held.ordinal: (2,)}
        machine.connect(old)  # as it was: its devices are not disturbed
        assert old.acquired == {held.ordinal: (2,)}
        machine.connect(new)
        assert (old.acquired, new.acquired) == ({}, {held.ordinal: (2,)})
        assert machine.acquired == (held,)

    def test_threads_never_hold_the_same_ipu(self):
        machine, shared, failures = System(), [0] * 16, []

        def use():
            for _ in range(200):
                device = machine.acquire(range(31))
                if device is not None:
                    for ipu in device.ipus:
                        shared[ipu] += 1
                    failures.extend(ipu for ipu in device.ipus if shared[ipu] != 1)
                    for ipu in device.ipus:
                        shared[ipu] -= 1
                    machine.release(device)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert machine.acquired == ()

    @given(
        st.lists(
            st.one_of(
                st.tuples(st.just("acquire"), st.lists(st.integers(0, 30), max_size=4)),
                st.tuples(st.just("model"), st.integers(1, 20)),
                st.tuples(st.just("release"), st.integers(0, 20)),
                st.tuples(st.just("drop"), st.integers(0, 20)),
                st.tuples(
                    st.just("configure"),
                    st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=5),
                ),
                st.tuples(st.just("reset"), st.just(0)),
            ),
            max_size=30,
        )
    )
    @pytest.mark.filterwarnings("ignore:The IPU system was configured already")
    def test_an_ipu_belongs_to_one_device_whatever_happens(self, steps):
        machine, driver, mine = System(), RecordingDriver(), []
        machine.connect(driver)
        for what, argument in steps:
            if what == "acquire":
                mine += filter(None, [machine.acquire(argument)])
            elif what == "model":
                mine.append(machine.acquire_model(argument))
            elif what in ("release", "drop") and mine:
                device = mine.pop(argument % len(mine))
                if what == "release":
                    machine.release(device)
                del device
            elif what == "configure":
                try:
                    machine.configure(config_with(auto_select_ipus=argument))
                except Refused:
                    assert mine or sum(argument) > 16
            elif what == "reset":
                machine.reset()
            everything = [*machine.devices, *mine]
            used = [ipu for d in everything if d.config_id is not None for ipu in d.ipus]
            assert len(used) == len(set(used))
            assert len({device.ordinal for device in everything}) == len(everything)
            assert set(machine.acquired) == set(mine)
            assert driver.acquired == {device.ordinal: device.ipus for device in mine}
            everything.clear()
