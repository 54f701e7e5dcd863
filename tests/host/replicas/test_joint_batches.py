"""A traced function called for many batches at once: what calls in turn give, and sums of it."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.function import Defun

from ipu_keras import scopes
from ipu_keras.host.replicas.joint_batches import bytes_of_batch, can_join, joint_function
from ipu_keras.host.rewrites.pooling import fast_pooling_gradients
from ipu_keras.host.rewrites.random_bits import compilable_random

COUNT = 3


def traced(function, *specs):
    with fast_pooling_gradients():
        return tf.function(function, autograph=False).get_concrete_function(*specs)


def kinds(function):
    return [op.type for op in function.graph.get_operations()]


def batches_of(*specs):
    random = np.random.default_rng(0)
    return [
        random.integers(0, 3, (COUNT, *spec.shape)).astype(spec.dtype.as_numpy_dtype)
        for spec in specs
    ]


def jointly(function, batches, summed):
    """What the joint call returns, and the function that makes it."""
    joint = joint_function(function, summed, COUNT)
    return joint(*map(tf.constant, batches)), joint


def check(function, *specs, summed):
    """Compares what the joint call returns with calls in turn, or sums of these."""
    batches = batches_of(*specs)
    turns = [
        tf.nest.flatten(function(*map(tf.constant, batch))) for batch in zip(*batches, strict=True)
    ]
    expected = [np.stack(values) for values in zip(*turns, strict=True)]
    assert can_join(function, summed, COUNT)
    found, joint = jointly(function, batches, summed)
    for one, other, is_sum in zip(found, expected, summed, strict=True):
        wanted = other.sum(axis=0) if is_sum else other
        np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-4 if is_sum else 1e-5)
    return joint


def test_golden():
    weights = tf.Variable([[1.0, -1.0], [2.0, 0.0]])

    def step(x):
        with tf.GradientTape() as tape:
            outputs = tf.nn.relu(x @ weights)
            loss = tf.reduce_sum(outputs)
        return loss, tape.gradient(loss, weights)

    function = traced(step, tf.TensorSpec((1, 2)))
    (losses, gradient), joint = jointly(
        function, [np.float32([[[1, 1]], [[2, -3]], [[3, 1]]])], [False, True]
    )
    # x @ weights: (3, -1), (-4, -2), (5, -3); only the first outputs of batches 0 and 2 count.
    assert losses.numpy().tolist() == [3.0, 0.0, 5.0]
    assert gradient.numpy().tolist() == [[4.0, 0.0], [2.0, 0.0]]
    # One product forward, one of all rows backward, and nothing else.
    assert kinds(joint).count("MatMul") == 2
    assert "BatchMatMulV2" not in kinds(joint)


def test_a_convolutional_network():
    random = np.random.default_rng(1)
    filters = tf.Variable(random.normal(size=(3, 3, 2, 4)).astype("float32"))
    bias = tf.Variable(random.normal(size=4).astype("float32"))
    dense = tf.Variable(random.normal(size=(16, 3)).astype("float32"))

    def step(images, labels):
        with tf.GradientTape() as tape:
            hidden = tf.nn.bias_add(tf.nn.conv2d(images, filters, 1, "VALID"), bias)
            pooled = tf.nn.max_pool2d(tf.nn.relu(hidden), 2, 2, "VALID")
            logits = tf.reshape(pooled, (-1, 16)) @ dense
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        right = tf.equal(tf.argmax(logits, axis=-1, output_type=tf.int32), labels)
        gradients = tape.gradient(loss, [filters, bias, dense])
        return [loss, tf.cast(right, tf.float32), *gradients]

    specs = tf.TensorSpec((2, 6, 6, 2)), tf.TensorSpec((2,), tf.int32)
    function = traced(step, *specs)
    # What XLA compiles for a batch, the gradient of pooling, it compiles for all.
    calls = [op for op in function.graph.get_operations() if op.type == "PartitionedCall"]
    assert [op.get_attr("_XlaMustCompile") for op in calls] == [True]
    joint = check(function, *specs, summed=[False, False, True, True, True])
    calls = [op for op in joint.graph.get_operations() if "PartitionedCall" in op.type]
    assert [op.get_attr("_XlaMustCompile") for op in calls] == [True]
    assert kinds(joint).count("Conv2DBackpropFilter") == 1
    assert kinds(joint).count("Conv2D") == 1


@pytest.mark.parametrize("is_sum", [False, True])
@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x: tf.bitcast(tf.bitcast(x, tf.int32) ^ 1, tf.float32), [(2, 3)]),
        (lambda x, y: tf.add_n([x, y]), [(2, 3), (2, 3)]),
        (lambda x: tf.reshape(tf.transpose(x), [-1]), [(2, 3)]),
        (lambda x, y: x[:, None] * y - tf.reduce_mean(x), [(2,), (2, 3)]),
        (lambda x, y: tf.matmul(x, y, transpose_b=True), [(2, 3), (4, 3)]),
        (lambda x: tf.nn.softmax(tf.einsum("bij,bkj->bik", x, x)), [(2, 3, 4)]),
        (
            lambda x: tf.gather(tf.constant([[1.0], [2.0], [3.0], [4.0]]), tf.cast(x, "int32")),
            [(5,)],
        ),
        (lambda x: tf.concat([x, tf.ones((2, 1))], axis=1), [(2, 3)]),
        (lambda x: tf.pad(x[:, 1:], [[0, 0], [1, 1]]), [(2, 3)]),
        (lambda x: tf.where(x > 1, x, 0.5), [(2, 3)]),
        # Operations on rows, whose other operands depend on the batch as well, or alone.
        (lambda x, y: tf.nn.bias_add(x, y), [(2, 3), (3,)]),
        (lambda x: tf.nn.bias_add(tf.ones((2, 3)), x), [(3,)]),
        (lambda x: tf.raw_ops.ReluGrad(gradients=x, features=tf.ones((2, 3))), [(2, 3)]),
        (lambda x: tf.nn.relu(x), [(3,)]),
        (lambda x: tf.nn.avg_pool2d(x, 2, 2, "VALID"), [(2, 4, 4, 1)]),
    ],
)
def test_operations(function, shapes, is_sum):
    specs = [tf.TensorSpec(shape) for shape in shapes]
    check(traced(function, *specs), *specs, summed=[is_sum])


def test_statistics_are_those_of_each_batch():
    scale = tf.Variable([2.0, 0.5])

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y, mean, variance = tf.compat.v1.nn.fused_batch_norm(x, scale, tf.ones(2))
            loss = tf.reduce_sum(y * y * x)
        return [y, mean, variance, *tape.gradient(loss, [x, scale.handle])]

    spec = tf.TensorSpec((2, 3, 3, 2))
    joint = check(traced(step, spec), spec, summed=[False, False, False, False, True])
    assert kinds(joint).count("FusedBatchNormV3") == COUNT
    assert kinds(joint).count("FusedBatchNormGradV3") == COUNT


def test_known_statistics_are_those_of_all_batches():
    numbers = [tf.constant([0.5, 2.0]) for _ in range(4)]

    def normalized(x):
        result = tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=numbers[0],
            offset=numbers[1],
            mean=numbers[2],
            variance=numbers[3],
            is_training=False,
        )
        return result.y, result.batch_mean

    spec = tf.TensorSpec((4, 3, 3, 2))
    joint = check(traced(normalized, spec), spec, summed=[False, False])
    assert kinds(joint).count("FusedBatchNormV3") == 1


@pytest.mark.parametrize("adjoint", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("left", "right"), [((1, 4, 4), (4, 4)), ((1, 4, 4), (1, 4, 4))])
def test_no_matrix_is_broadcast_to_batches(left, right, adjoint):
    """TensorFlow's product of operands `(n, 1, m, k)` and `(k, j)` writes behind its result."""
    matrix = tf.Variable(np.arange(16.0).reshape(right), dtype=tf.float32)
    adj_x, adj_y = adjoint
    function = traced(
        lambda x: tf.raw_ops.BatchMatMulV2(x=x, y=matrix, adj_x=adj_x, adj_y=adj_y),
        tf.TensorSpec(left),
    )
    joint = check(function, tf.TensorSpec(left), summed=[False])
    products = [op for op in joint.graph.get_operations() if "MatMul" in op.type]
    assert all(op.inputs[0].shape.rank < 4 for op in products)


def test_what_does_not_depend_on_the_batch():
    weights = tf.Variable([1.0, 2.0])
    function = traced(lambda x: (x, weights * 2.0, tf.constant(3.0)), tf.TensorSpec(()))
    check(function, tf.TensorSpec(()), summed=[True, True, True])
    check(function, tf.TensorSpec(()), summed=[False, False, False])


def gradient_of_lookup(ids):
    table = tf.ones((4096, 64))
    with tf.GradientTape() as tape:
        tape.watch(table)
        loss = tf.reduce_sum(tf.gather(table, ids))
    return tf.convert_to_tensor(tape.gradient(loss, table))


@pytest.mark.parametrize(
    ("function", "spec", "is_sum"),
    [
        (gradient_of_lookup, tf.TensorSpec((2,), tf.int32), True),
        (lambda x: tf.random.uniform((2,)) * x, tf.TensorSpec((2,)), False),
        (lambda x: tf.while_loop(lambda y: y < 9.0, lambda y: y + 1.0, [x]), tf.TensorSpec(()), 0),
        # A text for each batch, which is printed when its turn comes.
        (lambda x: tf.strings.format("{}", x), tf.TensorSpec(()), False),
        # Sums in float16 could be infinite where those of fewer batches are not.
        (lambda x: tf.matmul(x, x, transpose_a=True), tf.TensorSpec((2, 2), tf.float16), True),
        # A product of each batch would have to be kept.
        (lambda x: tf.sqrt(tf.matmul(x, x, transpose_a=True)), tf.TensorSpec((2, 512)), True),
        (lambda x: tf.matmul(x, tf.transpose(x)), tf.TensorSpec((512, 2)), True),
    ],
)
def test_what_is_not_worth_it(function, spec, is_sum):
    assert not can_join(traced(function, spec), [is_sum], COUNT)


@pytest.mark.parametrize(
    ("scope", "given", "joins"),
    [
        (scopes.stochastic_rounding, True, False),
        (scopes.partials_type, np.float16, False),
        (scopes.ipu_shard, 0, True),
    ],
)
def test_scopes_of_numerics_are_kept(scope, given, joins):
    """Also of called functions; behind a scope its text says nothing."""

    @tf.function
    def inner(x):
        with scope(given):
            return x * 2.0

    assert can_join(traced(inner, tf.TensorSpec((2,))), [False], COUNT) is joins
    assert can_join(traced(lambda x: inner(x), tf.TensorSpec((2,))), [False], COUNT) is joins

    def behind(x):
        with scope(given):
            tf.constant(1.0)
        return x * 2.0

    assert can_join(traced(behind, tf.TensorSpec((2,))), [False], COUNT)


def test_a_call_that_is_not_compiled():
    inner = tf.function(lambda x, y: (x * y, tf.nn.relu(x)), autograph=False)
    function = traced(lambda x: inner(x, tf.constant([1.0, 2.0])), tf.TensorSpec((2,)))
    joint = check(function, tf.TensorSpec((2,)), summed=[True, False])
    calls = [op for op in joint.graph.get_operations() if "PartitionedCall" in op.type]
    assert [op.node_def.attr["_XlaMustCompile"].b for op in calls] == [False]


def test_a_function_without_a_graph():
    """TensorFlow's `Defun`, which some gradients still are."""

    @Defun(tf.float32)
    def double(x):
        return 2.0 * x

    function = traced(lambda x: double(x), tf.TensorSpec((2,)))
    assert not can_join(function, [False], COUNT)


def test_a_gradient_of_filters_that_each_batch_needs():
    """`pfor` would make a loop of it; alone its sum is one convolution."""
    filters = tf.ones((2, 2, 1, 1))

    def step(images):
        with tf.GradientTape() as tape:
            tape.watch(filters)
            loss = tf.reduce_sum(tf.square(tf.nn.conv2d(images, filters, 1, "VALID")))
        gradient = tape.gradient(loss, filters)
        return gradient, tf.norm(gradient)

    function = traced(step, tf.TensorSpec((2, 3, 3, 1)))
    assert not can_join(function, [True, False], COUNT)
    alone = traced(lambda images: step(images)[0], tf.TensorSpec((2, 3, 3, 1)))
    assert can_join(alone, [True], COUNT)
    assert not can_join(alone, [False], COUNT)


def test_a_sum_of_unknown_size():
    def step(x):
        return tf.boolean_mask(x, x > 0.0)

    assert not can_join(traced(step, tf.TensorSpec((4,))), [True], COUNT)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        # Filters that depend on the batch.
        (lambda x, y: tf.nn.conv2d(x, y, 1, "SAME"), [(2, 3, 3, 1), (2, 2, 1, 4)]),
        (lambda x: tf.nn.conv2d(tf.ones((2, 3, 3, 1)), x, 1, "SAME"), [(2, 2, 1, 4)]),
    ],
)
def test_what_cannot_be_converted(function, shapes, caplog):
    function = traced(function, *map(tf.TensorSpec, shapes))
    assert can_join(function, [False], COUNT)
    level = tf.get_logger().level
    assert joint_function(function, [False], COUNT) is None
    assert caplog.text == ""
    assert tf.get_logger().level == level


def test_compiled():
    function = traced(lambda x: tf.nn.relu(x - 1.0), tf.TensorSpec((2,)))
    joint = joint_function(function, [False], COUNT, compiled=True)
    assert joint.function_def.attr["_XlaMustCompile"].b
    [values] = joint(tf.constant([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]))
    assert values.numpy().tolist() == [[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]]


def test_the_same_is_worth_it_for_results():
    spec = tf.TensorSpec((2, 2), tf.float16)
    function = traced(lambda x: tf.matmul(x, x, transpose_a=True), spec)
    check(function, spec, summed=[False])


def test_bytes():
    def step(x):
        product = x @ tf.ones((4, 8))
        return tf.nn.relu(product), tf.matmul(x, product, transpose_a=True)

    function = traced(step, tf.TensorSpec((2, 4)))
    # The product and its activation; the other product exists only as the sum over batches.
    assert bytes_of_batch(function, [False, True]) == 2 * (2 * 8) * 4
    assert bytes_of_batch(function, [False, False]) == (2 * (2 * 8) + 4 * 8) * 4


@pytest.mark.parametrize(
    ("scope", "kind"),
    [
        (contextlib.nullcontext, "StatelessRandomUniformV2"),
        (compilable_random, "XlaCallModule"),
    ],
)
def test_random_numbers_are_those_of_each_batch(scope, kind):
    def step(seed):
        with scope():
            return tf.random.stateless_uniform((2, 3), seed)

    spec = tf.TensorSpec((2,), tf.int32)
    joint = check(traced(step, spec), spec, summed=[True])
    assert kinds(joint).count(kind) == COUNT
