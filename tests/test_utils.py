import doctest

import pytest
import tensorflow as tf

from ipu_keras import config, utils
from ipu_keras.config import IPUConfig
from ipu_keras.machine.system import SYSTEM
from ipu_keras.utils import reset_ipu_seed


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch):
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    previous = SYSTEM.config
    SYSTEM.reset()
    yield
    SYSTEM.reset()
    if previous is not None:
        SYSTEM.configure(previous)


def test_examples():
    assert doctest.testmod(utils).failed == 0


@pytest.mark.parametrize("name", sorted(set(utils.__all__) & set(config.__all__)))
def test_what_scripts_take_of_the_configuration_from_here(name):
    assert getattr(utils, name) is getattr(config, name)


def test_all_that_scripts_take_of_the_configuration_from_here():
    assert set(utils.__all__) & set(config.__all__) == {
        "DeviceConnectionType",
        "IPUConfig",
        "KeyId",
        "MergeRemoteBuffersBehaviour",
        "SchedulingAlgorithm",
        "SelectionOrder",
        "configure_ipu_system",
        "get_ipu_config",
        "reset_ipu_configuration",
    }


def test_get_num_of_ipus_in_device():
    ipu_config = IPUConfig()
    ipu_config.select_ipus = [4, 25]
    ipu_config.configure_ipu_system()
    assert utils.get_num_of_ipus_in_device("/device:IPU:0") == 1
    assert utils.get_num_of_ipus_in_device("/device:IPU:1", device="/device:CPU:0") == 4
    with pytest.raises(ValueError, match=r"no IPU device '/device:IPU:7'\. Configured devices: /"):
        utils.get_num_of_ipus_in_device("/device:IPU:7")
    with pytest.raises(ValueError, match=r"Received: device='/device:IPU:0'"):
        utils.get_num_of_ipus_in_device("/device:IPU:1", device="/device:IPU:0")


def test_get_num_of_ipus_needs_a_configured_system():
    with pytest.raises(RuntimeError, match="No IPU devices configured"):
        utils.get_num_of_ipus_in_device("/device:IPU:0")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("", False), ("--use_ipu_model", True), ("--use_ipu_model=false", False)],
)
def test_running_on_ipu_model_follows_the_flag(monkeypatch, flags, expected):
    monkeypatch.setenv("TF_POPLAR_FLAGS", flags)
    assert utils.running_on_ipu_model() is expected


def test_a_seed_holds_for_what_is_traced_next():
    IPUConfig().configure_ipu_system()

    def drawn(seed):
        reset_ipu_seed(seed)
        return float(tf.function(lambda: tf.random.uniform(()))())

    assert drawn(3) == drawn(3) != drawn(4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"seed": 1.0}, TypeError, r"`seed` must be an integer. Received: seed=1.0"),
        ({"seed": 1, "device": "/device:IPU:7"}, ValueError, "There is no IPU device"),
        ({"seed": 1, "cpu_device": "/device:IPU:0"}, ValueError, "`device` must be the CPU device"),
    ],
)
def test_seeds_and_devices_that_cannot_be(arguments, error, message):
    IPUConfig().configure_ipu_system()
    with pytest.raises(error, match=message):
        reset_ipu_seed(**arguments)
