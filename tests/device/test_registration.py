import dataclasses
import gc
import re

import pytest
import tensorflow as tf

from ipu_keras.device import DRIVER, device_for
from ipu_keras.machine.system import FIRST_ACQUIRED, SYSTEM

FULL_NAME = "/job:localhost/replica:0/task:0/device:IPU:{}"


@pytest.mark.parametrize("name", [1, "IPU:1", "/device:IPU:1", FULL_NAME.format(1)])
def test_device_for_finds_a_device_by_any_of_its_names(devices, name):
    assert device_for(name) is devices[1]


def test_a_device_knows_its_name_and_ipus(devices):
    device = devices[1]
    assert device.name == FULL_NAME.format(1)
    assert device.ordinal == 1
    assert device.ipus == SYSTEM.devices[1].ipus
    assert repr(device) == f"<IpuDevice '/device:IPU:1', ipus={device.ipus}>"


@pytest.mark.parametrize("name", [7, "IPU:7", "/device:IPU:7", FULL_NAME.format(7)])
def test_device_for_names_the_configured_devices(devices, name):
    message = (
        "/device:IPU:7 is not configured; configured devices: /device:IPU:0, /device:IPU:1. "
        "Use one of these, or ask for more with `auto_select_ipus` or `select_ipus` of an "
        "`IPUConfig` and call its `configure_ipu_system()`."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        device_for(name)


def test_device_for_without_configuration(reconfigure):
    message = (
        "/device:IPU:0 is not configured; configured devices: none. Ask for some with "
        "`auto_select_ipus` or `select_ipus` of an `IPUConfig` and call its "
        "`configure_ipu_system()`."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        device_for(0)


@pytest.mark.parametrize("name", ["/device:CPU:0", "IPU", "", 1.0, True, None])
def test_device_for_refuses_what_names_no_ipu(devices, name):
    message = (
        "`device` must be the name of an IPU device, such as '/device:IPU:0', or its ordinal. "
        f"Received: device={name!r}; configured devices: /device:IPU:0, /device:IPU:1"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        device_for(name)


def test_attaching_again_keeps_devices_tensors_and_counters(devices, reconfigure):
    with tf.device("/device:IPU:0"):
        x = tf.constant([1.0, 2.0]) * 2.0
    reconfigure(2)
    assert device_for(0) is devices[0]
    assert device_for(0).counters().num_operations == 1
    assert (x + 1.0).numpy().tolist() == [3.0, 5.0]


def test_a_device_that_left_the_configuration_refuses_to_work(devices, reconfigure):
    with tf.device("/device:IPU:1"):
        x = tf.constant([1.0, 2.0])
    reconfigure(1)
    reason = re.escape("/device:IPU:1 is not configured; configured devices: /device:IPU:0. Use")
    with pytest.raises(tf.errors.FailedPreconditionError, match=f"^.*{reason}"):
        x + 1.0
    with pytest.raises(tf.errors.FailedPreconditionError, match=f"^{reason}"):
        x.numpy()
    with (
        tf.device("/device:CPU:0"),
        pytest.raises(tf.errors.FailedPreconditionError, match=reason),
    ):
        tf.identity(x)
    with pytest.raises(ValueError, match=f"^{reason}"):
        device_for(1)
    assert devices[1].ipus == ()


def test_a_device_works_again_when_it_is_configured_again(devices, reconfigure):
    with tf.device("/device:IPU:1"):
        x = tf.constant([1.0, 2.0])
    reconfigure(1)
    reconfigure(2)
    assert (x + 1.0).device == devices[1].name


def test_tensors_of_an_unconfigured_device_can_still_be_deleted(devices, reconfigure):
    with tf.device("/device:IPU:1"):
        x = tf.constant([1.0, 2.0])
    reconfigure(1)
    del x


def test_refuse_is_the_error_that_tensorflow_would_raise():
    error = DRIVER.refuse("There are no IPUs left.")
    assert type(error) is tf.errors.FailedPreconditionError
    assert str(error) == "There are no IPUs left."


def test_counters_tell_what_ran(devices):
    device = devices[0]
    double = tf.function(lambda x: x * 2.0)
    with tf.device("/device:IPU:0"):
        x = tf.constant([1.0, 2.0])  # 8 bytes
        double(x)
        (x + x).numpy()
    counters = device.counters()
    assert counters.num_operations == 1
    assert counters.num_function_calls == 1
    assert (counters.num_copies_to_device, counters.num_bytes_to_device) == (1, 8)
    assert (counters.num_copies_from_device, counters.num_bytes_from_device) == (1, 8)
    idle = devices[1].counters()
    assert (idle.num_operations, idle.num_function_calls) == (0, 0)
    assert (idle.num_copies_to_device, idle.num_copies_from_device) == (0, 0)


def test_counters_do_not_count_what_failed(devices):
    with tf.device("/device:IPU:0"), pytest.raises(tf.errors.InvalidArgumentError):
        tf.matmul(tf.ones([2, 3]), tf.ones([2, 3]))
    with tf.device("/device:IPU:0"):
        tf.ones([2, 3])
    assert devices[0].counters().num_operations == 3  # Three times Fill.


def test_counters_count_forward_and_backward_functions(devices):
    square = tf.function(lambda x: x * x)
    with tf.device("/device:IPU:0"):
        x = tf.constant(3.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = square(x)
        tape.gradient(y, x)
    assert devices[0].counters().num_function_calls == 2


def test_a_snapshot_of_the_counters_is_frozen(devices):
    counters = devices[0].counters()
    with pytest.raises(dataclasses.FrozenInstanceError):
        counters.num_operations = 1
    with pytest.raises(TypeError):
        counters.program_executions["step"] = 1


def test_registered_programs_are_counted_by_name(devices):
    device = devices[0]
    signature = tf.TensorSpec([], tf.float32)
    steps = [tf.function(lambda x, k=k: x * k).get_concrete_function(signature) for k in (2.0, 3.0)]
    names = [step.function_def.signature.name for step in steps]
    device.register_program(names[0])
    device.register_program(names[0])
    with tf.device("/device:IPU:0"):
        for _ in range(3):
            steps[0](tf.constant(1.0))
            steps[1](tf.constant(1.0))
    assert device.counters().num_function_calls == 6
    assert device.counters().program_executions[names[0]] == 3
    assert names[1] not in device.counters().program_executions
    device.reset_counters()
    assert device.counters().num_function_calls == 0
    assert device.counters().program_executions[names[0]] == 0


def test_importing_does_not_initialise_the_eager_context(run_forked):
    script = """
        import tensorflow as tf
        import ipu_keras.device
        from ipu_keras.machine.system import FIRST_ACQUIRED, SYSTEM
        SYSTEM.connect(ipu_keras.device.DRIVER)
        ipu_keras.device.DRIVER.install()
        tf.config.list_physical_devices("IPU")
        tf.config.threading.set_inter_op_parallelism_threads(1)
        print("free")
    """
    assert run_forked(script).stdout.strip() == "free"


def test_devices_are_registered_again_after_the_context_was_reset(run_forked):
    script = """
        import tensorflow as tf
        from tensorflow.python.eager import context
        from ipu_keras.config import IPUConfig
        from ipu_keras.device import DRIVER
        from ipu_keras.machine.system import FIRST_ACQUIRED, SYSTEM

        SYSTEM.connect(DRIVER)
        IPUConfig().configure_ipu_system()
        context._reset_context()
        print(len(tf.config.list_logical_devices("IPU")))
        SYSTEM.reset()
        IPUConfig().configure_ipu_system()
        print(len(tf.config.list_logical_devices("IPU")))
        with tf.device("/device:IPU:0"):
            print((tf.constant(1.0) + 1.0).device)
        try:
            with tf.device("/device:IPU:7"):
                pass
        except ValueError as error:
            print(str(error)[:28])
    """
    assert run_forked(script).stdout.splitlines() == [
        "0",
        "1",
        FULL_NAME.format(0),
        "/device:IPU:7 is not configu",
    ]


class TestAcquiredDevices:
    def test_an_acquired_device_works_beside_configured_ones(self, devices, reconfigure):
        held = SYSTEM.acquire([29])
        device = device_for(held.ordinal)
        assert device.name == FULL_NAME.format(held.ordinal)
        assert device.ipus == held.ipus
        with tf.device(device.name):
            x = tf.constant([1.0, 2.0]) * 2.0
        assert x.device == device.name
        reconfigure(1)
        SYSTEM.reset()
        reconfigure(3)
        with tf.device(device.name):
            assert (x + 1.0).numpy().tolist() == [3.0, 5.0]
        assert device.counters().num_operations == 2
        assert [d.name for d in tf.config.list_logical_devices("IPU")] == [
            "/device:IPU:0",
            "/device:IPU:1",
            "/device:IPU:2",
        ]

    def test_a_released_device_refuses_to_work(self, reconfigure):
        held = SYSTEM.acquire([0])
        name = device_for(held.ordinal).name
        with tf.device(name):
            x = tf.constant([1.0, 2.0])
        SYSTEM.release(held)
        message = f"/device:IPU:{held.ordinal} was given up by those who had acquired it"
        with pytest.raises(tf.errors.FailedPreconditionError, match=message):
            x.numpy()
        reconfigure(1)
        with pytest.raises(tf.errors.FailedPreconditionError, match=message):
            x.numpy()
        message = f"/device:IPU:{held.ordinal} is not configured; configured devices: /device:IPU:0"
        with pytest.raises(ValueError, match=message), tf.device(name):
            pass
        with pytest.raises(ValueError, match=message):
            device_for(held.ordinal)

    def test_scopes_of_a_released_device_are_refused_at_once(self, reconfigure):
        held = SYSTEM.acquire([0])
        name = device_for(held.ordinal).name
        with tf.device(name):
            pass
        SYSTEM.release(held)
        message = f"/device:IPU:{held.ordinal} is not configured"
        with pytest.raises(ValueError, match=message), tf.device(name):
            pass

    def test_who_acquires_an_ordinal_again_begins_anew(self, reconfigure):
        held = SYSTEM.acquire([0])
        device, ordinal = device_for(held.ordinal), held.ordinal
        engine = device.engine
        with tf.device(device.name):
            tf.constant(1.0) + 1.0
        del held
        gc.collect()
        again = SYSTEM.acquire([1])
        assert again.ordinal == ordinal
        assert device_for(ordinal) is device
        assert device.engine is not engine
        assert device.counters().num_operations == 0
        assert device.ipus == (1,)

    def test_what_users_may_configure_has_lower_ordinals(self, reconfigure):
        assert SYSTEM.acquire_model(2).ordinal >= FIRST_ACQUIRED

    def test_connecting_the_driver_again_disturbs_nothing(self, reconfigure):
        held = SYSTEM.acquire([0])
        with tf.device(device_for(held.ordinal).name):
            x = tf.constant([1.0, 2.0])
        engine = device_for(held.ordinal).engine
        SYSTEM.connect(DRIVER)
        assert x.numpy().tolist() == [1.0, 2.0]
        assert device_for(held.ordinal).engine is engine

    def test_acquired_devices_are_known_again_after_the_context_was_reset(self, run_forked):
        script = """
            import tensorflow as tf
            from tensorflow.python.eager import context
            import ipu_keras
            from ipu_keras.config import IPUConfig
            from ipu_keras.device import device_for
            from ipu_keras.machine.system import SYSTEM

            first = SYSTEM.acquire([0])
            context._reset_context()
            IPUConfig().configure_ipu_system()
            with tf.device(device_for(first.ordinal).name):
                print((tf.constant(1.0) + 1.0).device)
        """
        assert run_forked(script).stdout.strip() == FULL_NAME.format(FIRST_ACQUIRED)
