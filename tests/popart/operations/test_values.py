"""Values, and the orders of their axes."""

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.graph import AI_ONNX, GraphInput, Node, OnnxGraph, OnnxModel
from ipu_keras.popart.operations.evaluation import outputs_of
from ipu_keras.popart.operations.values import LaidOutTensor, Order, results_of, value_of

OPSETS = {AI_ONNX: 11}
IMAGES = np.arange(2 * 3 * 4 * 4, dtype=np.float32).reshape(2, 3, 4, 4) / 48 - 1
KERNEL = np.arange(5 * 3 * 1 * 1, dtype=np.float32).reshape(5, 3, 1, 1) / 8 - 1
BIAS = np.float32([1, 2, 3, 4, 5]).reshape(5, 1, 1)


def node(kind, inputs, outputs=("y",), **attributes):
    return Node(kind, AI_ONNX, tuple(inputs), tuple(outputs), attributes=attributes)


def chain(*nodes, outputs=("y",)):
    """A model that begins with a convolution, whose result is `conv`."""
    conv = node("Conv", ["x", "kernel"], ["conv"])
    initialisers = {"kernel": KERNEL, "bias": BIAS}
    return OnnxModel(
        OnnxGraph("one", (conv, *nodes), (GraphInput("x"),), outputs, initialisers), OPSETS
    )


def run(model):
    """The outputs of a model, and how many transpositions its trace has."""
    traced = tf.function(lambda x: outputs_of(model, {"x": x}), autograph=False)
    graph = traced.get_concrete_function(tf.TensorSpec(IMAGES.shape)).graph
    number = sum(each.type == "Transpose" for each in graph.get_operations())
    return [each.numpy() for each in traced(tf.constant(IMAGES))], number


def convolved():
    return np.einsum("nchw,oc->nohw", IMAGES, KERNEL[:, :, 0, 0])


def test_a_chain_is_not_transposed_within():
    model = chain(node("Add", ["conv", "bias"], ["sum"]), node("Relu", ["sum"]))
    (result,), number = run(model)
    np.testing.assert_allclose(result, np.maximum(convolved() + BIAS, 0), rtol=1e-5, atol=1e-5)
    # Of its input, and of its output.
    assert number == 2


def test_two_branches_are_added_as_they_are():
    model = chain(node("Sigmoid", ["conv"], ["gate"]), node("Mul", ["gate", "conv"], outputs=["y"]))
    (result,), number = run(model)
    expected = convolved() / (1 + np.exp(-convolved()))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    assert number == 2


@pytest.mark.parametrize("axis", [1, -3, 2, 0])
def test_images_are_joined_and_split_as_they_are(axis):
    model = chain(
        node("Concat", ["conv", "conv"], ["both"], axis=axis),
        node("Split", ["both"], ["a", "y"], axis=axis),
        outputs=("y", "both"),
    )
    (half, both), number = run(model)
    np.testing.assert_allclose(half, convolved(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(both, np.concatenate([convolved()] * 2, axis), rtol=1e-5, atol=1e-5)
    assert number == 3


@pytest.mark.parametrize("axis", [4, -5])
def test_an_axis_that_images_do_not_have_is_refused(axis):
    with pytest.raises(popart_exception, match=rf"In Concat 'y': .* rank 4 .*Received: {axis}"):
        run(chain(node("Concat", ["conv", "conv"], axis=axis)))


def test_what_depends_on_the_order_gets_that_of_onnx():
    model = chain(node("Flatten", ["conv"]), node("Relu", ["conv"], ["z"]), outputs=("y", "z"))
    (flat, rectified), number = run(model)
    np.testing.assert_allclose(flat, convolved().reshape(2, -1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rectified, np.maximum(convolved(), 0), rtol=1e-5, atol=1e-5)
    assert number == 3


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((4,), (1, 1, 4, 1)),
        ((3, 1, 4), (1, 1, 4, 3)),
        ((2, 3, 5, 4), (2, 5, 4, 3)),
        # It fits as it is.
        ((), None),
    ],
)
@pytest.mark.parametrize("is_known", [True, False])
def test_smaller_tensors_fit_to_images(shape, expected, is_known):
    array = np.ones(shape, np.float32)
    value = LaidOutTensor(known=array) if is_known else LaidOutTensor(tf.constant(array))
    made = value.broadcast(4, Order.IMAGES)
    assert expected is None or tuple(made.shape) == expected
    assert (tf.zeros([2, 5, 4, 3]) + made).shape == (2, 5, 4, 3)


def test_a_tensor_is_made_once_in_each_order():
    value = LaidOutTensor(tf.zeros([2, 3, 4]))
    assert value.in_order(Order.IMAGES) is value.in_order(Order.IMAGES)
    assert value.in_order(Order.IMAGES).shape == (2, 4, 3)
    assert value.in_order(Order.KERNEL).shape == (4, 3, 2)
    assert LaidOutTensor(value.in_order(Order.IMAGES), order=Order.IMAGES).shape == (2, 3, 4)


def in_a_branch(use):
    return tf.cond(tf.random.uniform([]) > -1, use, lambda: tf.zeros([2, 4, 3]))


def in_a_loop(use):
    _, result = tf.while_loop(
        lambda step, _: step < 1,
        lambda step, _: (step + 1, use()),
        (tf.constant(0), tf.zeros([2, 4, 3])),
    )
    return result


@pytest.mark.parametrize("within", [in_a_branch, in_a_loop])
@pytest.mark.parametrize("kind", ["tensor", "known", "weight"])
def test_what_is_made_in_branches_and_loops_stays_there(within, kind):
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    variable = tf.Variable(array)

    def read(order):
        return tf.transpose(variable.read_value(), order.permutation(3))

    @tf.function(autograph=False)
    def both(x):
        values = {
            "tensor": lambda: LaidOutTensor(x),
            "known": lambda: LaidOutTensor(known=array),
            "weight": lambda: LaidOutTensor(read=read, is_weight=True),
        }
        value = values[kind]()
        return within(lambda: value.in_order(Order.IMAGES)), value.in_order(Order.IMAGES)

    for result in both(tf.constant(array)):
        np.testing.assert_array_equal(result, array.transpose(0, 2, 1))


def test_a_list_is_one_result_and_a_tuple_several():
    one, two = tf.constant(1.0), np.float32(2)
    (sequence,) = results_of([one, two])
    assert [each.known is None for each in sequence] == [True, False]
    first, second = results_of((one, two))
    assert first.tensor is one
    assert second.known.dtype == np.float32
    assert value_of(first) is first


def test_some_results_are_images_and_others_not():
    images, rows = results_of((tf.zeros([2, 4, 4, 3]), tf.zeros([3, 2])), num_images=1)
    assert (images.shape, rows.shape) == ((2, 3, 4, 4), (3, 2))
