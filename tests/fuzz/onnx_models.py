"""Small ONNX models of all that a file can have, for `onnx_files.py` to damage."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT
# Of each model that has data in another file.
WEIGHTS = "weights.bin"


def models(folder: Path) -> list[bytes]:
    """Serialised models that are right.

    Args:
        folder: Where the data is written that is in another file.
    """
    made = [_mlp(), _cnn(), _typed(), _branches(), _shapes(), _graphcore()]
    return [each.SerializeToString() for each in (*made, _external(folder))]


def model_of(nodes, inputs, outputs, initialisers=(), opset=11, graphcore=False):
    """A model as the message that it is.

    Args:
        nodes: Its nodes.
        inputs: Shapes by name, of float tensors.
        outputs: Names.
        initialisers: Arrays by name, or messages.
        opset: Of ai.onnx.
        graphcore: Whether it imports the operations of ai.graphcore.
    """
    tensors = [
        numpy_helper.from_array(each, name) for name, each in dict(initialisers or {}).items()
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        tensors,
    )
    opsets = [helper.make_opsetid("", opset)]
    if graphcore:
        opsets.append(helper.make_opsetid("ai.graphcore", 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=7)


def _weights(*shape):
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def _mlp():
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], "first"),
        helper.make_node("Add", ["h", "b1"], ["hb"]),
        helper.make_node("Relu", ["hb"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["y"], "second"),
    ]
    arrays = {"w1": _weights(4, 8), "b1": _weights(8), "w2": _weights(8, 3)}
    return model_of(nodes, {"x": ["batch", 4]}, ["y"], arrays, opset=9)


def _cnn():
    nodes = [
        helper.make_node(
            "Conv", ["x", "k", "b"], ["c"], kernel_shape=[3, 3], strides=[1, 1], dilations=[1, 1]
        ),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Add", ["r", "c"], ["y"]),
    ]
    arrays = {"k": _weights(5, 2, 3, 3), "b": _weights(5)}
    return model_of(nodes, {"x": [1, 2, 6, 6]}, ["y"], arrays, opset=10)


def _typed():
    """Data in the fields of its types, not in bytes."""
    model = model_of([helper.make_node("Add", ["x", "f"], ["y"])], {"x": [2]}, ["y"])
    for name, number in TensorProto.DataType.items():
        if 0 < number <= TensorProto.BFLOAT16:
            values = ["a", "b"] if name == "STRING" else [1, 2]
            tensor = helper.make_tensor(name, number, [2], values)
            model.graph.initializer.append(tensor)
    model.graph.initializer[0].name = "f"
    return model


def _branches():
    def branch(name, node):
        output = helper.make_tensor_value_info(node.output[0], FLOAT, None)
        return helper.make_graph([node], name, [], [output])

    then = branch("then", helper.make_node("Add", ["x", "x"], ["t"]))
    inner = helper.make_node("If", ["c"], ["i"], then_branch=then, else_branch=then)
    value = numpy_helper.from_array(np.array(True), "value")
    nodes = [
        helper.make_node("Constant", [], ["c"], value=value),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=branch("else", inner)),
    ]
    return model_of(nodes, {"x": [2, 2]}, ["y"])


def _shapes():
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["r"]),
        helper.make_node("ConstantOfShape", ["s"], ["z"]),
        helper.make_node("Add", ["r", "z"], ["a"]),
        helper.make_node("Transpose", ["a"], ["t"], perm=[1, 0]),
        helper.make_node("Concat", ["t", "t"], ["y"], axis=-1),
    ]
    return model_of(nodes, {"x": [2, 6]}, ["y"], {"s": np.array([3, 4])})


def _graphcore():
    nodes = [
        helper.make_node("Gelu", ["x"], ["g"], domain="ai.graphcore", __pipeline_stage=1),
        helper.make_node("Softmax", ["g"], ["y"], axis=1),
    ]
    return model_of(nodes, {"x": [2, 6]}, ["y"], graphcore=True)


def _external(folder):
    model = _mlp()
    with open(folder / WEIGHTS, "wb") as file:
        for tensor in model.graph.initializer:
            onnx.external_data_helper.set_external_data(
                tensor, WEIGHTS, file.tell(), len(tensor.raw_data)
            )
            file.write(tensor.raw_data)
            tensor.ClearField("raw_data")
    return model
