"""Handing a configuration to the IPU system, and what is refused."""

import pytest
from config_options import other_value, write

from ipu_keras.config import (
    DeviceConnectionType,
    IPUConfig,
    StochasticRoundingBehaviour,
    configure_ipu_system,
    get_ipu_config,
    reset_ipu_configuration,
)
from ipu_keras.machine.system import SYSTEM
from ipu_keras.settings.ipu_options import OPTIONS


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch):
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    previous = SYSTEM.config
    SYSTEM.reset()
    yield
    SYSTEM.reset()
    if previous is not None:
        SYSTEM.configure(previous)


class TestConfigure:
    def test_devices_follow_the_selectors(self):
        config = IPUConfig()
        config.auto_select_ipus = [1, 2]
        assert config.configure_ipu_system() is None
        assert [device.ipus for device in SYSTEM.devices] == [(0,), (5, 7)]
        reset_ipu_configuration()
        config.auto_select_ipus = ()
        config.select_ipus = 28
        assert configure_ipu_system(config, "/device:CPU:0") is None
        assert [device.config_id for device in SYSTEM.devices] == [28]

    def test_get_ipu_config_gives_one_copy_for_each_device(self):
        config = IPUConfig()
        config.auto_select_ipus = [2, 4, 1]
        config.configure_ipu_system()
        config.auto_select_ipus = 1
        copies = get_ipu_config(session=object())
        assert [type(each) for each in copies] == [IPUConfig] * 3
        assert [each.auto_select_ipus for each in copies] == [[2, 4, 1]] * 3
        with pytest.raises(TypeError, match="cannot be changed"):
            copies[0].auto_select_ipus = 1

    def test_get_ipu_config_needs_a_configuration(self):
        with pytest.raises(RuntimeError, match=r"^No IPU devices configured\.\nConfigure them"):
            get_ipu_config()
        IPUConfig().configure_ipu_system()
        reset_ipu_configuration()
        reset_ipu_configuration()
        with pytest.raises(RuntimeError, match=r"^No IPU devices configured\."):
            get_ipu_config()

    @pytest.mark.parametrize("config", [None, {}, IPUConfig, IPUConfig().io_tiles])
    def test_only_an_ipu_config_configures(self, config):
        with pytest.raises(TypeError, match=r"^`config` must be an IPUConfig\. Received: config="):
            configure_ipu_system(config)

    def test_only_a_cpu_is_local_to_ipus(self):
        with pytest.raises(ValueError, match=r"`device` must be the CPU .* Received: device='/dev"):
            configure_ipu_system(IPUConfig(), device="/device:IPU:0")
        with pytest.raises(ValueError, match=r"`device` must be the CPU .* Received: device='gpu'"):
            IPUConfig().configure_ipu_system("gpu")
        assert SYSTEM.devices == ()

    def test_configuring_again_warns_at_the_call(self):
        IPUConfig().configure_ipu_system()
        message = r"^The IPU system was configured already with /device:IPU:0: it is reset"
        for configure in (configure_ipu_system, IPUConfig.configure_ipu_system):
            with pytest.warns(UserWarning, match=message) as warned:
                configure(IPUConfig())
            assert [warning.filename for warning in warned] == [__file__]

    def test_configuring_again_without_reset_is_refused(self):
        IPUConfig().configure_ipu_system()
        with pytest.raises(Exception, match="IPU system configuration has already been set in thi"):
            configure_ipu_system(IPUConfig(), reset_configuration=False)

    def test_select_ipus_is_refused_on_the_ipu_model(self, monkeypatch):
        monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
        config = IPUConfig()
        config.select_ipus = [0]
        with pytest.raises(Exception, match="When using the IPUModel, the devices to attach to ca"):
            config.configure_ipu_system()
        config.select_ipus = []
        config.auto_select_ipus = 3
        config.configure_ipu_system()
        assert len(SYSTEM.devices[0].ipus) == 3

    def test_all_idle_options_are_named_in_one_warning(self):
        config = IPUConfig()
        idle = [option for option in OPTIONS if not option.is_category and option.effect is None]
        for option in idle:
            write(config, option.name, other_value(option))
        with pytest.warns(UserWarning, match="no effect today") as warned:
            config.configure_ipu_system()
        names = ", ".join(option.name for option in idle)
        [text] = [str(warning.message) for warning in warned]
        assert text.splitlines() == [
            f"These options are set but have no effect today: {names}. They are stored and "
            "checked; docs/ipu_config.md says what each option does.",
            *(f"  {option.name}: {option.why_idle}" for option in idle),
        ]
        assert warned[0].filename == __file__
        # Of each option, a process is told once.
        reset_ipu_configuration()
        config.configure_ipu_system()

    def test_each_option_has_an_effect_or_a_reason(self):
        for option in OPTIONS:
            if not option.is_category:
                assert (option.effect is None) is not (option.why_idle is None), option.name
                assert (option.effect or option.why_idle).endswith("."), option.name

    def test_idle_options_of_poplar_are_named_with_what_may_have_been_meant(self):
        config = IPUConfig()
        config.matmuls.poplar_options = {"partialsType": "half", "partialType": "half"}
        config.convolutions.poplar_options = {"cycleBackOff": 0.1}
        with pytest.warns(UserWarning, match="no effect today") as warned:
            config.configure_ipu_system()
        assert [str(warning.message) for warning in warned] == [
            "These options are set but have no effect today: 'cycleBackOff' in "
            "convolutions.poplar_options, 'partialType' (did you mean 'partialsType'?) in "
            "matmuls.poplar_options. They are stored and checked; docs/ipu_config.md says what "
            "each option does.\n"
            "  'cycleBackOff' in convolutions.poplar_options: Models plan products without it.\n"
            "  'partialType' (did you mean 'partialsType'?) in matmuls.poplar_options: Models plan "
            "products without it."
        ]

    def test_defaults_and_their_other_spellings_do_not_warn(self):
        config = IPUConfig()
        config.floating_point_behaviour.esr = StochasticRoundingBehaviour.OFF
        config.io_tiles.available_memory_proportion = 0.9
        config.auto_select_ipus = ()
        config.configure_ipu_system()

    def test_set_all_switches_five_options_on_in_the_active_copy(self):
        config = IPUConfig()
        config.floating_point_behaviour.set_all = True
        config.floating_point_behaviour.esr = StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY
        config.configure_ipu_system()
        active = get_ipu_config()[0].floating_point_behaviour
        five = ("inv", "div0", "oflo", "esr", "nanoo")
        assert [getattr(active, name) for name in five] == [True] * 5
        assert config.floating_point_behaviour.inv is False

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (
                {"device_connection.type": DeviceConnectionType.NEVER},
                r"^`device_connection\.version` must be 'ipu1' or 'ipu2' .*Received: "
                r"device_connection\.version='' with device_connection\.type=.*NEVER",
            ),
            (
                {"device_connection.type": DeviceConnectionType.PRE_COMPILE},
                r"^`device_connection\.version` must be 'ipu1' or 'ipu2' ",
            ),
            (
                {
                    "experimental.multi_replica_distribution.process_count": 2,
                    "experimental.multi_replica_distribution.process_index": 2,
                },
                r"process_index` must be less than `process_count`\. Received: process_index=2, ",
            ),
            (
                {"experimental.multi_replica_distribution.process_index": 1},
                r"Received: process_index=1, process_count=0\. A process_count of 0 means",
            ),
            (
                {
                    "io_tiles.num_io_tiles": 32,
                    "norms.experimental.distributed_batch_norm_replica_group_size": 2,
                },
                r"distributed_batch_norm_replica_group_size` must be 1 if there are I/O tiles, .* "
                r"Received: distributed_batch_norm_replica_group_size=2 with io_tiles\.num_io_tile",
            ),
            (
                {"io_tiles.num_io_tiles": 5000},
                r"^`num_io_tiles` must be less than the 1472 tiles .* Received: num_io_tiles=5000",
            ),
            (
                {"io_tiles.place_ops_on_io_tiles": True},
                r"^Cannot place ops on I/O tiles when num_io_tiles == 0\n.* io_tiles\.num_io_tiles",
            ),
        ],
    )
    def test_options_that_contradict_each_other_are_refused(self, options, message):
        config = IPUConfig()
        for name, value in options.items():
            write(config, name, value)
        with pytest.raises(ValueError, match=message):
            config.configure_ipu_system()
        assert SYSTEM.devices == ()

    def test_what_is_refused_leaves_the_system_as_it_is(self):
        IPUConfig().configure_ipu_system()
        before = SYSTEM.config
        config = IPUConfig()
        config.io_tiles.num_io_tiles = 5000
        with pytest.raises(ValueError, match="`num_io_tiles` must be less than"):
            config.configure_ipu_system()
        assert SYSTEM.config is before

    def test_processes_share_no_ipu_model(self, monkeypatch):
        monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
        config = IPUConfig()
        config.experimental.multi_replica_distribution.process_count = 2
        message = (
            r"process_count` must be 0 with the IPU Model, .* Received: process_count=2 with "
            r"--use_ipu_model in TF_POPLAR_FLAGS\."
        )
        with pytest.raises(ValueError, match=message):
            config.configure_ipu_system()
        assert SYSTEM.devices == ()

    @pytest.mark.parametrize("connection", ["PRE_COMPILE", "NEVER"])
    def test_a_version_is_enough_without_hardware(self, connection):
        config = IPUConfig()
        config.device_connection.type = DeviceConnectionType[connection]
        config.device_connection.version = "ipu2"
        assert config.frozen_copy().device_connection.version == "ipu2"

    def test_changes_in_place_are_checked_when_configuring(self):
        config = IPUConfig()
        config.auto_select_ipus.append(2.0)
        with pytest.raises(TypeError, match=r"Trying to set auto_select_ipus to \[2\.0\], but it"):
            config.configure_ipu_system()
        config.auto_select_ipus[:] = [0]
        with pytest.raises(ValueError, match="`auto_select_ipus` must be a positive number of IP"):
            config.configure_ipu_system()
        config.auto_select_ipus[:] = [1]
        config.select_ipus.append(0)
        with pytest.raises(Exception, match="Only one of `auto_select_ipus` and `select_ipus`"):
            config.configure_ipu_system()
        assert SYSTEM.devices == ()
