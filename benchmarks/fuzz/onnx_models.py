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
    made = [_mlp(), _cnn(), _typed(), _branches(), _shapes(), _loop()]
    made += [_graphcore(), _graphcore_layers(), _graphcore_tensors(), _graphcore_losses()]
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


def _graphcore_node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs, outputs, domain="ai.graphcore", **attributes)


def _graphcore_layers():
    arrays = {
        **{"scale": _weights(4), "bias": _weights(4), "kernel": _weights(4, 4, 3, 3)},
        **{"gates": _weights(4, 4 + 3, 3), "offsets": _weights(4, 3)},
    }
    nodes = [
        _graphcore_node(
            "GroupNormalization", ["x", "scale", "bias"], ["n", "m", "v"], num_groups=2
        ),
        _graphcore_node("MultiConv", ["n", "kernel", "bias"], ["c"], pads=[1] * 4, strides=[1] * 2),
        _graphcore_node("Subsample", ["c"], ["s"], strides=[1, 1, 2, 2]),
        _graphcore_node("DepthToSpace", ["s"], ["d"], blocksize=2),
        _graphcore_node("Reshape", ["d"], ["r"], shape=[6, 2, -1]),
        helper.make_node("Slice", ["r"], ["i"], axes=[2], starts=[0], ends=[4]),
        _graphcore_node("LSTM", ["i", "gates", "offsets"], ["l", "cell"], outputFullSequence=1),
        _graphcore_node("ShapedDropout", ["l"], ["p"], shape=[6, 2, 1], ratio=0.5),
        _graphcore_node("Nop", ["p"], ["y"]),
    ]
    model = model_of(nodes, {"x": [2, 4, 6, 6]}, ["y", "cell", "m"], arrays, 9, graphcore=True)
    return model


def _graphcore_tensors():
    called = helper.make_graph(
        [_graphcore_node("Scale", ["a"], ["b"], scale=2.0)],
        "called",
        [helper.make_tensor_value_info("a", FLOAT, [2, 6])],
        [helper.make_tensor_value_info("b", FLOAT, [2, 6])],
    )
    arrays = {
        "at": np.array([1], np.uint32),
        "part": _weights(2, 2),
        "places": np.array([[0, 1, 2, 0, 1, 2]] * 2, np.int32),
        "rows": np.array([1], np.int32),
        "set": np.array([0], np.int32),
    }
    along = {"axes": [1], "sizes": [2]}
    nodes = [
        _graphcore_node("Call", ["x"], ["c"], callee=called),
        _graphcore_node("Abort", ["set"], []),
        _graphcore_node("DynamicUpdate", ["c", "at", "part"], ["u"], **along),
        _graphcore_node("DynamicAdd", ["u", "at", "part"], ["a"], **along),
        _graphcore_node("DynamicZero", ["a", "at"], ["z"], **along),
        _graphcore_node("DynamicSlice", ["z", "at"], ["d"], **along),
        _graphcore_node("Reverse", ["z"], ["v"], dimensions=[1]),
        _graphcore_node("ScatterReduce", ["v", "places"], ["s"], axis=1, axis_size=3),
        _graphcore_node("ReduceMedian", ["v"], ["m", "i"], axes=[1], keepdims=1),
        _graphcore_node("SequenceSlice", ["x", "v", "rows", "rows", "rows"], ["q"]),
        _graphcore_node("Init", [], ["n"], shape=[2, 6], data_type=1, init_type=1, batch_axis=-1),
        _graphcore_node("ScaledAdd", ["q", "n"], ["f"], scale0=0.5),
        _graphcore_node("Fmod", ["f", "v"], ["k"]),
        _graphcore_node("BitwiseNot", ["i"], ["j"]),
        _graphcore_node("Round", ["k"], ["y"]),
    ]
    return model_of(nodes, {"x": [2, 6]}, ["y", "s", "d", "j"], arrays, graphcore=True)


def _graphcore_losses():
    arrays = {
        "labels": np.array([1, 2], np.int32),
        "targets": np.array([[1, 2]] * 3, np.int32),
        "lengths": np.array([3, 3, 3], np.uint32),
        "sizes": np.array([2, 2, 1], np.uint32),
    }
    nodes = [
        helper.make_node("Softmax", ["x"], ["p"], axis=1),
        _graphcore_node("Nll", ["p", "labels"], ["n"], reduction="Mean", ignoreIndex=0),
        _graphcore_node("L1", ["x"], ["l"], reduction="Sum", **{"lambda": 0.5}),
        helper.make_node("LogSoftmax", ["t"], ["q"], axis=2),
        _graphcore_node("Ctc", ["q", "targets", "lengths", "sizes"], ["c"], blank=0),
        _graphcore_node("CtcBeamSearchDecoder", ["q", "lengths"], ["b", "k", "o"], top_paths=1),
        helper.make_node("Sum", ["n", "l", "c"], ["s"]),
        _graphcore_node("IdentityLoss", ["s"], ["y"], reduction="Sum"),
    ]
    inputs = {"x": [2, 4], "t": [3, 3, 4]}
    return model_of(nodes, inputs, ["y", "b", "o"], arrays, graphcore=True)


def _loop():
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "x"], ["next"]),
            helper.make_node("Identity", ["going"], ["goes"]),
            helper.make_node("Gather", ["next", "number"], ["row"], axis=1),
        ],
        "body",
        [
            helper.make_tensor_value_info("number", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", FLOAT, [2, 6]),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", FLOAT, [2, 6]),
            helper.make_tensor_value_info("row", FLOAT, [2]),
        ],
    )
    arrays = {"count": np.array(3), "begins": np.array(True)}
    node = helper.make_node("Loop", ["count", "begins", "x"], ["y", "rows"], body=body)
    return model_of([node], {"x": [2, 6]}, ["y", "rows"], arrays)


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
