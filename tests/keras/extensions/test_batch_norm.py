"""Keras's batch normalization: over groups of replicas, and as one operation."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from replicas import in_groups, numbers, trace

from ipu_keras.host.replicas.replica_variables import written_captures
from ipu_keras.host.replicas.segments import replicate
from ipu_keras.host.rewrites.fused_batch_norms import batch_norms
from ipu_keras.keras.extensions.batch_norm import attach_batch_norm
from ipu_keras.ops.cross_replica_ops import cross_replica_sum
from ipu_keras.ops.distributed_batch_norm import distributed_batch_norm


def layer_of(shape, **options):
    keras.utils.set_random_seed(1)
    layer = keras.layers.BatchNormalization(**options)
    layer.build(shape)
    random = np.random.default_rng(2)
    layer.set_weights([random.uniform(0.5, 2.0, each.shape) for each in layer.get_weights()])
    return layer


def step_of(layer, group_size):
    """Outputs, the gradients of the inputs, gamma and beta, and the moving averages."""

    def step(x, weights, *mask):
        with distributed_batch_norm(group_size), tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True, mask=mask[0] if mask else None)
            loss = tf.reduce_sum(y * weights)
        sources = [x, *[each.value for each in layer.trainable_variables]]
        moving = [tf.convert_to_tensor(each) for each in layer.non_trainable_variables]
        return y, *tape.gradient(loss, sources), *moving

    return step


def run(layer, arrays, group_size):
    """What each replica gets, each with moving averages of its own."""
    specs = [tf.TensorSpec(array.shape[1:], array.dtype) for array in arrays]
    num_replicas = len(arrays[0])
    concrete = trace(step_of(layer, group_size), num_replicas, *specs)
    handles = written_captures(concrete)
    variables = [each.value for each in layer.non_trainable_variables]
    assert len(handles) == len(variables) == 2
    copies = [[tf.Variable(v) for v in variables] for _ in range(num_replicas)]

    def own(replica):
        pairs = zip(variables, copies[replica], strict=True)
        return {variable.handle.ref(): copy.handle for variable, copy in pairs}

    together = replicate(concrete, num_replicas, own)
    inputs = [[tf.constant(array[k]) for array in arrays] for k in range(num_replicas)]
    return [[tensor.numpy() for tensor in result] for result in tf.function(together)(inputs)]


def assert_same_as_one_batch(found, layer, arrays, size):
    """Replicas of a group together do to a batch what stock Keras does to all of it."""
    assert len(found) % size == 0
    before = layer.get_weights()
    for group in range(len(found) // size):
        layer.set_weights(before)
        whole = [np.concatenate(in_groups(array, size)[group]) for array in arrays]
        expected = tf.function(step_of(layer, 1))(*map(tf.constant, whole))
        members = found[group * size : (group + 1) * size]
        for k in (0, 1):
            together = np.concatenate([member[k] for member in members])
            np.testing.assert_allclose(together, expected[k], rtol=1e-4, atol=1e-5)
        for k in (2, 3):
            total = sum(member[k] for member in members)
            np.testing.assert_allclose(total, expected[k], rtol=1e-4, atol=1e-5)
        for member in members:
            for average, other in zip(member[4:], expected[4:], strict=True):
                np.testing.assert_allclose(average, other, rtol=1e-5)


def batches(num_replicas, *shape):
    random = np.random.default_rng(0)
    return [random.normal(size=(num_replicas, *shape)).astype(np.float32) for _ in range(2)]


def test_by_hand():
    """Replicas with 1 and 3: the mean is 2, the variance 1. Both would get 0 on their own."""
    layer = keras.layers.BatchNormalization(momentum=0.75, epsilon=0.0)
    layer.build((1, 1))
    x = np.array([1.0, 3.0], np.float32).reshape(2, 1, 1)
    (first, *_, mean, variance), (second, *_) = run(layer, [x, np.ones_like(x)], 2)
    assert (first, second) == (-1.0, 1.0)
    assert (mean, variance) == (0.25 * 2.0, 0.75 + 0.25)


@pytest.mark.parametrize(("num_replicas", "size"), [(2, 2), (4, 2), (4, 4), (4, 1)])
def test_groups_against_one_batch(num_replicas, size):
    arrays = batches(num_replicas, 3, 2, 2, 4)
    layer = layer_of((3, 2, 2, 4))
    assert_same_as_one_batch(run(layer, arrays, size), layer, arrays, size)


def test_masks():
    """Of each replica another number of elements counts."""
    x, weights = batches(2, 4, 5, 3)
    mask = np.arange(5) < np.array([[1], [5], [3], [2], [4], [4], [2], [5]])
    arrays = [x, weights, mask.reshape(2, 4, 5)]
    layer = layer_of((4, 5, 3))
    assert_same_as_one_batch(run(layer, arrays, 2), layer, arrays, 2)


def test_a_synchronized_layer_asks_all_replicas():
    arrays = batches(4, 3, 2)
    layer = layer_of((3, 2), synchronized=True)
    found = run(layer, arrays, 1)
    assert_same_as_one_batch(found, layer_of((3, 2)), arrays, 4)


def test_inference_uses_the_moving_averages():
    layer = layer_of((1, 2))

    def function(x):
        with distributed_batch_norm(2):
            return layer(x, training=False)

    x = numbers(2, 3, 2)
    results = replicate(trace(function, 2, tf.TensorSpec((3, 2))), 2)([[each] for each in x])
    for k in range(2):
        np.testing.assert_allclose(results[k], layer(x[k], training=False), rtol=1e-6)


def test_groups_that_do_not_divide_the_replicas():
    layer = layer_of((1, 2))
    with pytest.raises(ValueError, match="replica_group_size=2 in a program of 3"):
        trace(step_of(layer, 2), 3, *[tf.TensorSpec((1, 2))] * 2)


def model_of():
    keras.utils.set_random_seed(3)
    layers = keras.layers
    # The normalization takes a bias away again, and leaves noise as its gradient.
    norm = [layers.Conv2D(4, 3, use_bias=False), layers.BatchNormalization(), layers.ReLU()]
    model = keras.Sequential([keras.Input((5, 5, 2)), *norm, layers.Flatten(), layers.Dense(3)])
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    return model, optimizer


def train_step(model, optimizer, num_replicas):
    def step(x, y):
        with distributed_batch_norm(num_replicas), tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x, training=True) - y) ** 2)
        variables = model.trainable_variables
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        optimizer.apply([cross_replica_sum(gradient) for gradient in gradients], variables)

    return step


@pytest.mark.parametrize("jit_compile", [False, True])
def test_training_by_replicas_is_training_with_one_large_batch(jit_compile):
    random = np.random.default_rng(0)
    x = random.normal(size=(3, 2, 4, 5, 5, 2)).astype(np.float32)
    y = random.normal(size=(3, 2, 4, 3)).astype(np.float32)
    stock, optimizer = model_of()
    step = tf.function(train_step(stock, optimizer, 1))
    for batch in zip(x, y, strict=True):
        step(*(tf.constant(np.concatenate(each)) for each in batch))

    model, optimizer = model_of()
    specs = [tf.TensorSpec(each.shape[2:]) for each in (x, y)]
    concrete = trace(train_step(model, optimizer, 2), 2, *specs)
    written = written_captures(concrete)
    variables = {v.value.handle.ref(): v.value for v in (*model.variables, *optimizer.variables)}
    copies = [tf.Variable(variables[handle.ref()]) for handle in written]
    others = {h.ref(): copy.handle for h, copy in zip(written, copies, strict=True)}
    together = tf.function(
        replicate(concrete, 2, [{}, others].__getitem__), jit_compile=jit_compile
    )
    for batch in zip(x, y, strict=True):
        together([[tf.constant(each[k]) for each in batch] for k in range(2)])

    for ours, theirs in zip(model.get_weights(), stock.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    for handle, copy in zip(written, copies, strict=True):
        np.testing.assert_allclose(copy, variables[handle.ref()], rtol=1e-5, atol=1e-6)


def fused_step(layer, spec, *masks):
    """The traced step of a layer that may be one operation, and the kinds of its operations."""
    with batch_norms(fused=True):
        concrete = tf.function(step_of(layer, 1)).get_concrete_function(spec, spec, *masks)
    return concrete, [op.type for op in concrete.graph.get_operations()]


def test_one_operation_by_hand():
    """Of 1, 3, 5, 7 the mean is 4, and the variance 5, which TensorFlow's operation calls 20/3."""
    layer = keras.layers.BatchNormalization(momentum=0.75, epsilon=0.0)
    layer.build((2, 2, 1))
    step, kinds = fused_step(layer, tf.TensorSpec((2, 2, 1)))
    y, *_, mean, variance = step(tf.constant([[[1.0], [3.0]], [[5.0], [7.0]]]), tf.ones((2, 2, 1)))
    assert kinds.count("FusedBatchNormV3") == kinds.count("FusedBatchNormGradV3") == 1
    np.testing.assert_allclose(tf.reshape(y, [-1]), np.array([-3, -1, 1, 3]) / np.sqrt(5), 1e-6)
    np.testing.assert_allclose([mean[0], variance[0]], [0.25 * 4, 0.75 + 0.25 * 5], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "float16"])
@pytest.mark.parametrize("options", [{}, {"scale": False}, {"center": False, "epsilon": 0.5}])
@pytest.mark.parametrize("shape", [(6, 4), (3, 5, 4), (2, 3, 3, 4), (2, 3, 2, 2, 4), (1, 4)])
def test_one_operation_does_what_keras_does(shape, options, dtype):
    spec = tf.TensorSpec(shape, "float32" if dtype == "float32" else "float16")
    arrays = [tf.cast(array[0], spec.dtype) for array in batches(1, *shape)]
    layer = layer_of(shape, dtype=dtype, **options)
    before = layer.get_weights()
    expected = tf.function(step_of(layer, 1))(*arrays)
    layer.set_weights(before)
    step, kinds = fused_step(layer, spec)
    assert "FusedBatchNormGradV3" in kinds
    tolerance = 1e-5 if dtype == "float32" else 1e-2
    for found, wanted in zip(step(*arrays), expected, strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((2, 4, 3), {"axis": 1}),
        ((2, 3), {"dtype": "float64"}),
        ((2, 3), {"trainable": False}),
        ((None, 3), {}),
        ((0, 3), {}),
    ],
)
def test_what_is_not_one_operation(shape, options):
    layer = layer_of(shape, **options)
    _, kinds = fused_step(layer, tf.TensorSpec(shape, options.get("dtype", "float32")))
    assert "FusedBatchNormV3" not in kinds


def test_masks_and_inference_are_not_one_operation():
    layer = layer_of((4, 5, 3))
    _, kinds = fused_step(layer, tf.TensorSpec((4, 5, 3)), tf.TensorSpec((4, 5), tf.bool))
    assert "FusedBatchNormV3" not in kinds
    with batch_norms(fused=True) as norms:
        tf.function(layer).get_concrete_function(tf.TensorSpec((4, 5, 3)), training=False)
    assert not norms.found


def test_replicas_of_a_group_do_not_have_one_operation_each():
    layer = layer_of((3, 2))
    with batch_norms(fused=True) as norms:
        trace(step_of(layer, 2), 2, *[tf.TensorSpec((3, 2))] * 2)
    assert not norms.found


def test_outside_of_programs_nothing_changes():
    layer = layer_of((3, 2))
    concrete = tf.function(step_of(layer, 1)).get_concrete_function(*[tf.TensorSpec((3, 2))] * 2)
    assert "FusedBatchNormV3" not in [op.type for op in concrete.graph.get_operations()]


def test_attaching_twice():
    layer = keras.layers.BatchNormalization
    before = layer._moments, layer.call
    attach_batch_norm()
    assert (layer._moments, layer.call) == before
