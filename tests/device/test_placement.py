import re

import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from ipu_keras.device import DRIVER

REFUSAL = re.escape(
    "/device:IPU:7 is not configured; configured devices: /device:IPU:0, /device:IPU:1."
)


@tf.function
def add_on(name):
    with tf.device(name):
        return tf.constant(1.0) + 1.0


def test_logical_devices_are_listed(devices):
    listed = tf.config.list_logical_devices("IPU")
    assert [(d.name, d.device_type) for d in listed] == [
        ("/device:IPU:0", "IPU"),
        ("/device:IPU:1", "IPU"),
    ]
    cpus = tf.config.list_logical_devices("CPU")
    assert [d.device_type for d in cpus] == ["CPU"]
    assert tf.config.list_logical_devices() == cpus + listed


def test_physical_devices_are_listed(devices):
    listed = tf.config.list_physical_devices("IPU")
    assert [(d.name, d.device_type) for d in listed] == [
        ("/physical_device:IPU:0", "IPU"),
        ("/physical_device:IPU:1", "IPU"),
    ]
    # Keras would compile stock models with XLA if it saw other devices than CPUs.
    assert tf.config.list_physical_devices() == tf.config.list_physical_devices("CPU")


def test_lists_follow_the_configuration(devices, reconfigure):
    reconfigure(1)
    assert [d.name for d in tf.config.list_logical_devices("IPU")] == ["/device:IPU:0"]
    assert [d.name for d in tf.config.list_physical_devices("IPU")] == ["/physical_device:IPU:0"]


def test_a_listed_device_can_be_used_as_scope(devices):
    with tf.device(tf.config.list_logical_devices("IPU")[1]):
        assert tf.constant(1.0).device == devices[1].name


@pytest.mark.parametrize(
    "name",
    ["/device:IPU:7", "/job:localhost/replica:0/task:0/device:IPU:7"],
)
def test_an_unknown_device_is_refused(devices, name):
    with pytest.raises(ValueError, match=f"^{REFUSAL}"), tf.device(name):
        pass


def test_a_refusal_is_not_remembered_as_a_scope(devices):
    for _ in range(2):
        with pytest.raises(ValueError, match=REFUSAL), tf.device("/device:IPU:7"):
            pass


def test_a_refusal_hides_the_cache_it_was_found_by(devices):
    with pytest.raises(ValueError, match=REFUSAL) as error, tf.device("/device:IPU:7"):
        pass
    assert error.value.__suppress_context__


def test_an_unknown_device_is_refused_in_an_enclosing_scope(devices):
    with (
        tf.device("/device:IPU:0"),
        pytest.raises(ValueError, match=REFUSAL),
        tf.device("/device:IPU:7"),
    ):
        pass


@pytest.mark.parametrize("name", ["/device:ipu:0", "/job:worker/replica:0/task:0/device:IPU:0"])
def test_a_name_that_tensorflow_would_run_on_the_cpu_is_refused(devices, name):
    message = re.escape(f"{name} is not configured; configured devices: /device:IPU:0, ")
    with pytest.raises(ValueError, match=f"^{message}"), tf.device(name):
        pass


def test_an_unknown_device_is_refused_inside_a_function(devices):
    with pytest.raises(ValueError, match=REFUSAL):
        add_on("/device:IPU:7")


def test_a_configured_device_is_accepted_inside_a_function(devices):
    with tf.device("/device:IPU:0"):
        assert add_on("/device:IPU:0").device == devices[0].name


def test_a_scope_entered_before_is_checked_after_reconfiguring(devices, reconfigure):
    with tf.device("/device:IPU:1"):
        pass
    reconfigure(1)
    message = re.escape("/device:IPU:1 is not configured; configured devices: /device:IPU:0.")
    with pytest.raises(ValueError, match=f"^{message}"), tf.device("/device:IPU:1"):
        pass


def test_a_strategy_on_an_unknown_device_is_refused(devices):
    strategy = tf.distribute.OneDeviceStrategy("/device:IPU:7")
    with pytest.raises(ValueError, match=REFUSAL), strategy.scope():
        tf.Variable(1.0)


def test_other_devices_are_left_to_tensorflow(devices):
    with tf.device("/device:GPU:7"):
        assert tf.constant(1.0).device.endswith("/device:CPU:0")
    with tf.device("CPU:0"), tf.device(None):
        assert tf.constant(1.0).device.endswith("/device:CPU:0")
    with pytest.raises(ValueError, match="Unknown attribute"), tf.device("nonsense"):
        pass


def test_gradients_on_other_devices_stay_there(devices):
    """TensorFlow keeps the shape that the gradient of a reduction has, by its rank alone."""

    def gradient(rank):
        x = tf.ones([1] * rank)
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(x)
        return tape.gradient(total, x)

    context.context().ones_rank_cache().flush()
    with tf.device("/device:IPU:0"):
        assert gradient(3).device.endswith("/device:IPU:0")
    assert gradient(3).device.endswith("/device:CPU:0")
    assert 3 in context.context().ones_rank_cache()._data
    with tf.device("/device:IPU:0"):
        assert gradient(3).device.endswith("/device:IPU:0")


def test_the_extension_can_be_taken_back(devices):
    DRIVER.uninstall()
    try:
        assert type(context._device_parsing_cache) is dict
        assert not hasattr(context.Context.list_logical_devices, "__wrapped__")
        assert tf.config.list_logical_devices("IPU") == []
        assert tf.config.list_physical_devices("IPU") == []
        with tf.device("/device:IPU:7"):
            assert tf.constant(1.0).device.endswith("/device:CPU:0")
    finally:
        DRIVER.install()
    assert len(tf.config.list_logical_devices("IPU")) == 2
    with pytest.raises(ValueError, match=REFUSAL), tf.device("/device:IPU:7"):
        pass
