"""What TensorFlow programs see of a device: ops, variables, functions, copies."""

import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

IPU = "/job:localhost/replica:0/task:0/device:IPU:0"
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


@pytest.fixture
def on_ipu(devices):
    with tf.device("/device:IPU:0"):
        yield devices[0]


def on(device, function, *args):
    with tf.device(device):
        return function(*args)


def error_of(device, function):
    """Type and text of the error that `function` raises on `device`."""
    with pytest.raises(tf.errors.OpError) as error, tf.device(device):
        function()
    return type(error.value), str(error.value)


def test_ops_run_on_the_device(on_ipu):
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    y = tf.matmul(x, x)
    assert x.device == y.device == y.backing_device == IPU
    assert y.shape == (2, 2)
    np.testing.assert_array_equal(y.numpy(), [[7.0, 10.0], [15.0, 22.0]])


@pytest.mark.parametrize("value", [1, 1.5, True, "text", [[1, 2]], np.zeros([2, 0]), 1j])
def test_constants_of_every_kind(on_ipu, value):
    tensor = tf.constant(value)
    assert tensor.device == IPU
    with tf.device("CPU:0"):
        expected = tf.constant(value)
    assert tensor.dtype == expected.dtype
    assert np.array_equal(tensor.numpy(), expected.numpy())


def test_a_constant_does_not_follow_its_array(on_ipu):
    array = np.ones([64], np.float32)
    tensor = tf.constant(array)
    array[:] = 2.0
    assert tensor.numpy()[0] == 1.0


def test_an_op_with_several_outputs(on_ipu):
    values, indices = tf.math.top_k(tf.constant([3.0, 9.0, 1.0]), k=2)
    assert values.device == indices.device == IPU
    assert indices.numpy().tolist() == [1, 0]


def test_an_op_without_outputs(on_ipu):
    tf.raw_ops.NoOp()
    assert on_ipu.counters().num_operations == 1


def test_a_tensor_prints_as_on_the_cpu(on_ipu):
    x = tf.constant([1.0, 2.0])
    assert repr(x) == "<tf.Tensor: shape=(2,), dtype=float32, numpy=array([1., 2.], dtype=float32)>"
    assert str(x) == "tf.Tensor([1. 2.], shape=(2,), dtype=float32)"
    assert f"{tf.reduce_sum(x):.1f}" == "3.0"


def test_variables(on_ipu):
    variable = tf.Variable([1.0, 2.0])
    variable.assign_add([1.0, 1.0])
    assert variable.device == variable.read_value().device == IPU
    assert variable.numpy().tolist() == [2.0, 3.0]
    assert (variable * 2.0).device == IPU


def test_gradients(on_ipu):
    weight = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        loss = weight * weight * 2.0
    gradient = tape.gradient(loss, weight)
    assert gradient.device == IPU
    assert gradient.numpy() == 12.0


@pytest.mark.parametrize("jit_compile", [False, True])
def test_functions_with_captured_variables(on_ipu, jit_compile):
    weight = tf.Variable(3.0)

    @tf.function(jit_compile=jit_compile)
    def multiply(x):
        return {"product": x * weight, "pair": (x, [weight + 1.0])}

    with tf.GradientTape() as tape:
        outputs = multiply(tf.constant(2.0))
    assert {t.device for t in tf.nest.flatten(outputs)} == {IPU}
    assert outputs["product"].numpy() == 6.0
    assert tape.gradient(outputs["product"], weight).numpy() == 2.0


def test_a_function_of_device_variables_runs_on_the_device_outside_the_scope(devices):
    weight = on("/device:IPU:0", tf.Variable, 3.0)
    multiply = tf.function(lambda x: x * weight)
    assert multiply(tf.constant(2.0)).device == IPU
    assert devices[0].counters().num_function_calls == 1


def test_a_dataset_of_the_host_feeds_the_device(devices):
    weight = on("/device:IPU:0", tf.Variable, 2.0)
    iterator = iter(tf.data.Dataset.range(4).map(lambda x: tf.cast(x, tf.float32)).batch(2))

    @tf.function
    def step(iterator):
        return next(iterator) * weight

    result = step(iterator)
    assert result.device == IPU
    assert result.numpy().tolist() == [0.0, 2.0]
    assert on("/device:IPU:0", lambda: next(iterator) * weight).numpy().tolist() == [4.0, 6.0]


def test_a_dataset_made_in_the_scope(on_ipu):
    dataset = tf.data.Dataset.from_tensor_slices(tf.constant([1, 2, 3])).map(lambda x: x * 2)
    assert [(x.device, int(x)) for x in dataset] == [(IPU, 2), (IPU, 4), (IPU, 6)]


def test_composite_tensors_tables_and_generators(on_ipu):
    ragged = tf.ragged.constant([[1], [2, 3]])
    sparse = tf.sparse.from_dense([[0.0, 5.0]])
    keys = tf.lookup.KeyValueTensorInitializer(["a"], [1])
    table = tf.lookup.StaticHashTable(keys, default_value=0)
    assert tf.reduce_sum(ragged, axis=1).numpy().tolist() == [1, 5]
    assert tf.sparse.to_dense(sparse).device == IPU
    assert table.lookup(tf.constant(["a", "b"])).numpy().tolist() == [1, 0]
    assert tf.random.Generator.from_seed(1).normal([2]).device == IPU


def test_random_numbers_are_those_of_the_cpu(devices):
    def draw():
        return tf.random.stateless_normal([4], seed=[1, 2]).numpy()

    assert np.array_equal(on("/device:IPU:0", draw), on("CPU:0", draw))


def test_python_code_inside_a_function(on_ipu):
    x = tf.constant([1.0])
    call = tf.function(lambda y: tf.py_function(lambda z: z + x, [y], tf.float32))
    assert call(x).numpy().tolist() == [2.0]


def test_a_checkpoint_restores_variables_on_the_device(on_ipu, tmp_path):
    variable = tf.Variable([1.0, 2.0])
    checkpoint = tf.train.Checkpoint(variable=variable)
    path = checkpoint.save(str(tmp_path / "checkpoint"))
    variable.assign([5.0, 5.0])
    checkpoint.restore(path).assert_consumed()
    assert variable.device == IPU
    assert variable.numpy().tolist() == [1.0, 2.0]


def test_a_checkpoint_of_the_device_is_read_on_the_cpu(devices, tmp_path):
    source = on("/device:IPU:0", tf.Variable, [1.0, 2.0])
    path = tf.train.Checkpoint(v=source).save(str(tmp_path / "checkpoint"))
    target = tf.Variable([0.0, 0.0])
    tf.train.Checkpoint(v=target).restore(path).assert_consumed()
    assert target.device == CPU
    assert target.numpy().tolist() == [1.0, 2.0]


def test_mixing_with_cpu_tensors_stays_on_the_device(devices):
    x = on("/device:IPU:0", tf.constant, [1.0, 2.0])
    y = tf.constant([3.0, 4.0])
    devices[0].reset_counters()
    assert (x + y).device == (y + x).device == IPU
    assert devices[0].counters().num_copies_to_device == 2
    assert devices[0].counters().num_bytes_to_device == 16


def test_a_cpu_scope_takes_a_tensor_off_the_device(devices):
    x = on("/device:IPU:0", tf.constant, [1.0, 2.0])
    with tf.device("/device:CPU:0"):
        assert tf.identity(x).device == CPU
        assert (x + x).device == CPU
        assert tf.function(lambda y: y * 2.0)(x).device == CPU
    assert devices[0].counters().num_copies_from_device == 4
    assert devices[0].counters().num_operations == 0


def test_a_cpu_scope_leaves_variables_where_they_are(devices):
    variable = on("/device:IPU:0", tf.Variable, 1.0)
    with tf.device("/device:CPU:0"):
        variable.assign_add(1.0)
        assert tf.function(lambda: variable * 2.0)().device == IPU
        assert tf.identity(variable).device == CPU
    assert variable.read_value().device == IPU
    assert variable.numpy() == 2.0


def test_a_cpu_variable_takes_a_value_of_the_device(devices):
    variable = tf.Variable(1.0)
    variable.assign_add(on("/device:IPU:0", tf.constant, 2.0))
    assert variable.read_value().device == CPU
    assert variable.numpy() == 3.0


def test_copies_by_device_name(devices):
    x = tf.constant([1.0, 2.0])
    on_first = x._copy(device_name=devices[0].name)
    on_second = on_first._copy(device_name=devices[1].name)
    back = on_second._copy(device_name=CPU)
    assert [t.device for t in (on_first, on_second, back)] == [IPU, devices[1].name, CPU]
    assert back.numpy().tolist() == [1.0, 2.0]
    assert devices[0].counters().num_copies_from_device == 1
    assert devices[1].counters().num_copies_to_device == 1


def test_inputs_on_two_devices_are_refused(devices):
    x = on("/device:IPU:0", tf.constant, 1.0)
    y = on("/device:IPU:1", tf.constant, 1.0)
    # TensorFlow's own words: it sees both devices before it asks one of them.
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"device:IPU:0.*device:IPU:1"):
        x + y


@pytest.mark.parametrize(
    ("function", "name"),
    [(lambda x: tf.add(x, x), "AddV2"), (tf.identity, "Identity")],
)
def test_an_input_on_another_device_is_refused(devices, function, name):
    x = on("/device:IPU:0", tf.constant, 1.0)
    message = (
        f"{name} was placed on {devices[1].name}, but its input 0 is on {devices[0].name}. Copy "
        "that to the host first, with `tf.identity` inside `tf.device('/device:CPU:0')`."
    )
    with (
        tf.device("/device:IPU:1"),
        pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(message)),
    ):
        function(x)


def test_an_op_on_a_variable_runs_where_the_variable_is(devices):
    variable = on("/device:IPU:0", tf.Variable, 1.0)
    on("/device:IPU:1", variable.assign_add, tf.constant(1.0))
    assert variable.numpy() == 2.0
    assert devices[1].counters().num_operations == 0


def test_a_function_with_variables_of_another_device_is_refused(devices):
    variable = on("/device:IPU:0", tf.Variable, 1.0)
    read = tf.function(lambda: variable * 2.0)
    with (
        tf.device("/device:IPU:1"),
        pytest.raises(tf.errors.InvalidArgumentError, match=r"IPU:1, but its input 0 .*IPU:0"),
    ):
        read()


def test_the_way_that_the_refusal_names_works(devices):
    x = on("/device:IPU:0", tf.constant, 1.0)
    host = on("/device:CPU:0", tf.identity, x)
    assert on("/device:IPU:1", tf.identity, host).device == devices[1].name


@pytest.mark.parametrize(
    "function",
    [
        lambda: tf.matmul(tf.ones([2, 3]), tf.ones([2, 3])),
        lambda: tf.gather(tf.constant([1.0]), 5),
        lambda: tf.debugging.assert_equal(tf.constant(1), tf.constant(2)),
        lambda: tf.io.read_file("/nowhere"),
        lambda: tf.raw_ops.Add(x=tf.constant(1), y=tf.constant(1.0)),
        lambda: tf.strings.to_number("x"),
    ],
)
def test_errors_keep_type_and_text(devices, function):
    assert error_of("/device:IPU:0", function) == error_of("CPU:0", function)


def test_errors_inside_functions_keep_type_and_text(devices):
    gather = tf.function(lambda: tf.gather(tf.constant([1.0]), 5))
    assert error_of("/device:IPU:0", gather) == error_of("CPU:0", gather)


def test_packing_is_refused(devices):
    x = on("/device:IPU:0", tf.constant, 1.0)
    message = "Tensors on IPU devices cannot be packed into one tensor. Stack them with `tf.stack`."
    with pytest.raises(tf.errors.UnimplementedError, match=re.escape(message)):
        context.context().pack_eager_tensors([x, x])
