"""Values in the graphs that TensorFlow traces for branches and bodies."""

import numpy as np
import pytest
import tensorflow as tf
from popart_graphs import graph, onnx_node, results_of, run

from ipu_keras.popart.operations.values import LaidOutTensor, Order

IMAGE = np.arange(12, dtype=np.float32).reshape(1, 2, 3, 2)


def last(tensor):
    """An image with its channels last."""
    return np.asarray(tensor).transpose(0, 2, 3, 1)


def kinds_in(concrete):
    return [op.type for op in concrete.graph.get_operations()]


def test_an_order_is_made_once():
    @tf.function(autograph=False)
    def function(x):
        value = LaidOutTensor(x)
        assert value.in_order(Order.IMAGES) is value.in_order(Order.IMAGES)
        return value.in_order(Order.IMAGES) + value.in_order(Order.IMAGES)

    assert kinds_in(function.get_concrete_function(tf.constant(IMAGE))).count("Transpose") == 1


@pytest.mark.parametrize("first", ["branch", "outside"])
def test_an_order_that_a_branch_made_is_not_used_outside(first):
    """The other way round it is."""

    @tf.function(autograph=False)
    def function(x, condition):
        value = LaidOutTensor(x)
        if first == "outside":
            value.in_order(Order.IMAGES)

        def branch():
            return value.in_order(Order.IMAGES)

        chosen = tf.cond(condition, branch, lambda: value.in_order(Order.IMAGES) * 2)
        return chosen, value.in_order(Order.IMAGES)

    concrete = function.get_concrete_function(tf.constant(IMAGE), tf.TensorSpec([], tf.bool))
    for condition, factor in ((True, 1), (False, 2)):
        chosen, outside = concrete(IMAGE, tf.constant(condition))
        np.testing.assert_array_equal(chosen, factor * last(IMAGE))
        np.testing.assert_array_equal(outside, last(IMAGE))
    assert kinds_in(concrete).count("Transpose") == 1


def test_a_loop_uses_what_was_made_before_it():
    @tf.function(autograph=False)
    def function(x):
        value, made = LaidOutTensor(x), []

        def body(count, total):
            made.append(value.in_order(Order.IMAGES))
            return count + 1, total + tf.reduce_sum(made[-1])

        before = value.in_order(Order.IMAGES)
        _, total = tf.while_loop(lambda n, _: n < 2, body, (0, 0.0), maximum_iterations=2)
        assert made[0] is before
        return total

    assert function(IMAGE) == 2 * IMAGE.sum()


def test_what_is_known_is_a_constant_wherever_it_is_used():
    """Though nodes that are computed while tracing have used it first."""
    value = LaidOutTensor(known=np.array([2, 3]))
    assert not tf.is_symbolic_tensor(value.tensor)

    @tf.function(autograph=False)
    def function(condition):
        assert tf.get_static_value(value.tensor).tolist() == [2, 3]

        def branch():
            return value.tensor + 1

        return tf.cond(condition, branch, lambda: value.tensor), value.tensor

    concrete = function.get_concrete_function(tf.TensorSpec([], tf.bool))
    assert not concrete.captured_inputs
    chosen, same = concrete(tf.constant(True))
    assert (chosen.numpy().tolist(), same.numpy().tolist()) == ([3, 4], [2, 3])
    # And outside again.
    assert value.tensor.numpy().tolist() == [2, 3]


def test_a_narrow_type_keeps_what_is_known():
    """`2**63 - 1` is how models say "to the end"; inputs that are known have it in full."""
    value = LaidOutTensor(known=np.array([[2**63 - 1, 2**32 + 2], [-1, 5]]), dtype=tf.int32)
    assert (value.dtype, value.shape) == (tf.int32, (2, 2))
    assert value.known[0, 0] == 2**63 - 1
    np.testing.assert_array_equal(value.tensor, [[-1, 2], [-1, 5]])
    assert value.broadcast(3, Order.ONNX).dtype == tf.int32
    precise = LaidOutTensor(known=np.array([1e300, 0.1]), dtype=tf.float32)
    np.testing.assert_array_equal(precise.tensor, np.array([np.inf, 0.1], np.float32))


def test_constants_meet_tensors_in_the_types_of_a_session():
    """What is computed of constants alone is computed in 64 bits."""
    main = graph(
        [
            onnx_node("Add", "big big", "bigger"),
            onnx_node("Sub", "bigger big", "same"),
            onnx_node("Div", "same big", "unit"),
            onnx_node("Add", "x one", "y"),
        ],
        "",
        "y unit",
        big=np.array([2**40]),
        one=np.int64(1),
    )
    y, unit = run(main, {"x": np.array([1, 2])}, narrows=True)
    assert (y.dtype, y.tolist()) == (np.int32, [2, 3])
    assert (unit.dtype, unit.tolist()) == (np.int32, [1])


def test_images_of_outside_in_the_body_of_a_loop():
    """A value has its channels last around the loop, before and after it."""
    conv = {"kernel_shape": [1, 1]}
    body = graph([onnx_node("Add", "c image", "d")], "t on c", "on d d")
    main = graph(
        [
            onnx_node("Conv", "x w", "image", **conv),
            onnx_node("Loop", "most on image", "y all", body=body),
            onnx_node("Conv", "y w", "z", **conv),
            onnx_node("Add", "z image", "sum"),
        ],
        "",
        "sum all",
        most=np.int64(2),
        on=np.array(True),
        w=np.array([[0, 1], [2, 0]], np.float32).reshape(2, 2, 1, 1),
    )
    image = np.stack([IMAGE[:, 1], 2 * IMAGE[:, 0]], 1)
    expected = np.stack([3 * image[:, 1], 6 * image[:, 0]], 1) + image
    for jit_compile in (False, True):
        function = tf.function(lambda x: results_of(main, {"x": x}), jit_compile=jit_compile)
        total, stacked = function(tf.constant(IMAGE))
        np.testing.assert_array_equal(total, expected)
        np.testing.assert_array_equal(stacked, np.stack([2 * image, 3 * image]))
