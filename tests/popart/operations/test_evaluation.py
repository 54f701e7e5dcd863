import contextlib

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.graph import AI_ONNX, GraphInput, Node, OnnxGraph, OnnxModel
from ipu_keras.popart.operations.evaluation import Evaluation, outputs_of
from ipu_keras.popart.operations.values import LaidOutTensor, value_of

OPSETS = {AI_ONNX: 11}


def node(kind, inputs, outputs=("y",), name="", **attributes):
    return Node(kind, AI_ONNX, tuple(inputs), tuple(outputs), name, attributes)


def model(*nodes, inputs=("x",), outputs=("y",), initialisers=None, opsets=OPSETS):
    inputs = tuple(GraphInput(each) for each in inputs)
    return OnnxModel(OnnxGraph("one", nodes, inputs, tuple(outputs), initialisers or {}), opsets)


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (
            node("LeakyRelu", ["x"], beta=1.0),
            r"^In LeakyRelu 'y': Unknown attribute 'beta'\. It takes: alpha\.$",
        ),
        (
            node("Relu", ["x"], alpha=1.0),
            r"^In Relu 'y': Unknown attribute 'alpha'\. It takes: none\.$",
        ),
        (
            node("Concat", ["x"], name="joined"),
            r"^In Concat 'joined': The attribute 'axis' is missing\.$",
        ),
        (
            node("Add", ["x"]),
            r"^In Add 'y': It has invalid number of inputs 1\. Must be between 2\.\.2\.$",
        ),
        (
            node("Relu", ["x", "x"]),
            r"^In Relu 'y': It has invalid number of inputs 2\. Must be between 1\.\.1\.$",
        ),
        (
            node("Clip", ["x"] * 4),
            r"^In Clip 'y': It has invalid number of inputs 4\. Must be between 1\.\.3\.$",
        ),
        (node("Nonsense", ["x"]), r"^Unknown operation 'Nonsense' of the domain 'ai\.onnx'\."),
        # TensorFlow's words.
        (
            node("Transpose", ["x"], perm=[0, 1]),
            r"^In Transpose 'y': `perm` must have each of 0 to 0 once",
        ),
    ],
)
def test_nodes_that_are_wrong_are_refused(one, text):
    with pytest.raises(popart_exception, match=text):
        outputs_of(model(one), {"x": np.float32([1, 2])})


def test_what_must_be_known_is_not_traced():
    reshape = model(node("Reshape", ["x", "shape"]), inputs=("x", "shape"))

    @tf.function(autograph=False)
    def run(x, shape):
        return outputs_of(reshape, {"x": x, "shape": shape})

    text = r"In Reshape 'y': The input 'shape' has to be known before anything runs, as programs"
    with pytest.raises(popart_exception, match=text + r".* make it a constant or an initialiser\."):
        run(tf.zeros([2, 3]), tf.constant([3, 2]))
    # Without tracing all is known.
    (result,) = outputs_of(reshape, {"x": np.zeros((2, 3)), "shape": np.array([3, 2])})
    assert result.shape == (3, 2)


def test_what_is_known_is_computed_while_tracing():
    shapes = model(
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "last"], ["size"]),
        node("Concat", ["one", "size"], ["new"], axis=0),
        node("Reshape", ["x", "new"]),
        initialisers={"last": np.array([-1]), "one": np.array([-1])},
    )
    traced = tf.function(lambda x: outputs_of(shapes, {"x": x}), autograph=False)
    graph = traced.get_concrete_function(tf.TensorSpec([2, 3, 4])).graph
    kinds = {operation.type for operation in graph.get_operations()}
    assert kinds == {"Placeholder", "Const", "Reshape", "Identity"}
    assert traced(tf.zeros([2, 3, 4]))[0].shape == (6, 4)


def test_weights_are_not_computed_while_tracing():
    variable = tf.Variable([1.0, 2.0])
    weight = LaidOutTensor(known=variable.numpy(), is_weight=True)

    @tf.function(autograph=False)
    def run():
        weight = LaidOutTensor(read=lambda order: variable.read_value(), is_weight=True)
        environment = {"x": weight}
        Evaluation(OPSETS).run(model(node("Neg", ["x"])).graph, environment)
        return environment["y"].tensor

    assert run().numpy().tolist() == [-1, -2]
    variable.assign([3.0, 4.0])
    assert run().numpy().tolist() == [-3, -4]
    environment = {"x": weight}
    Evaluation(OPSETS).run(model(node("Neg", ["x"])).graph, environment)
    assert environment["y"].known is None


@pytest.mark.parametrize(
    ("one", "num_inputs"),
    [
        (node("Identity", ["x0"]), 1),
        (node("Sum", ["x0"]), 1),
        (node("Clip", ["x0"]), 1),
        (node("Cast", ["x0"], to=1), 1),
    ],
)
def test_a_result_has_a_gradient_of_its_own(one, num_inputs):
    x = tf.constant([1.0, 2.0])
    environment = {"x0": value_of(x)}
    with tf.GradientTape() as tape:
        tape.watch(x)
        Evaluation(OPSETS).run(model(one).graph, environment)
        y = environment["y"].tensor
        loss = tf.reduce_sum(y + 2 * x)
    of_input, of_result = tape.gradient(loss, [x, y])
    assert of_input.numpy().tolist() == [3, 3]
    assert of_result.numpy().tolist() == [1, 1]


def test_types_of_64_bits_become_those_of_devices():
    environment = {"x": value_of(tf.constant([1.0, 3.0]))}
    one = model(node("ArgMax", ["x"], keepdims=0))
    Evaluation(OPSETS, narrows=True).run(one.graph, environment)
    assert environment["y"].dtype is tf.int32
    assert environment["y"].tensor.numpy() == 1


def test_each_node_is_computed_within_what_is_around_it():
    seen = []

    @contextlib.contextmanager
    def around(each):
        seen.append(f"begin {each.kind}")
        yield
        seen.append(f"end {each.kind}")

    environment = {"x": value_of(tf.constant([1.0]))}
    two = model(node("Neg", ["x"], ["h"]), node("Exp", ["h"]))
    Evaluation(OPSETS, around=around).run(two.graph, environment)
    assert seen == ["begin Neg", "end Neg", "begin Exp", "end Exp"]


def test_outputs_that_nobody_names_are_left_out():
    split = model(node("Split", ["x"], ["", "y"]))
    (result,) = outputs_of(split, {"x": np.array([1, 2, 3, 4])})
    assert result.numpy().tolist() == [3, 4]


def test_known_values_are_arrays_and_others_tensors():
    two = model(node("Shape", ["x"], ["shape"]), node("Neg", ["x"], ["z"]), outputs=("shape", "z"))
    shape, negative = outputs_of(two, {"x": np.zeros((2, 3))})
    assert isinstance(shape, np.ndarray)
    assert tf.is_tensor(negative)


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("ConstantOfShape", "n"),
        ("Expand", "one n"),
        ("Tile", "one n"),
        ("Range", "zero size step"),
        ("MatMul", "column row"),
    ],
)
def test_what_a_few_bytes_would_make_is_not_made(kind, inputs):
    """Of 2 GB and more, which nobody has to wait for."""
    arrays = {
        "n": np.array([2**31 - 1]),
        "size": np.array(2**31),
        "one": np.zeros(1, np.int32),
        "zero": np.array(0),
        "column": np.zeros((2**15, 1), np.int32),
        "row": np.zeros((1, 2**15), np.int32),
        "step": np.array(1),
    }
    names = inputs.split()
    nodes = [node("Constant", [], [name], value=arrays[name]) for name in names]
    main = model(*nodes, node(kind, names), inputs=()).graph
    with pytest.raises(popart_exception, match=f"^In {kind} 'y': .* may have 1073741824 bytes"):
        Evaluation(OPSETS).run(main, {})


def test_what_is_made_together_is_not_made_either():
    evaluation, environment = Evaluation(OPSETS, folded=[2**30 - 12]), {}
    zeros = (node("ConstantOfShape", ["n"], [name]) for name in "yz")
    main = model(*zeros, inputs=(), initialisers={"n": np.array([2])}).graph
    text = "^In ConstantOfShape 'z': .* a tensor with which they have 1073741828$"
    with pytest.raises(popart_exception, match=text):
        evaluation.run(main, environment)
    assert environment["y"].known.tolist() == [0, 0]
