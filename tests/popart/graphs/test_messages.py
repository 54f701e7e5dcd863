"""A model that was loaded goes on where it ended."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_calls import called

from ipu_keras.popart.builder import Builder
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.graphs.methods import onnx_methods
from ipu_keras.popart.graphs.tensor_types import shape_of


@pytest.mark.parametrize("version", [6, 8, 9, 11])
def test_a_model_comes_back_as_it_was(version):
    builder = Builder()
    builder.setGraphName("mine")
    with builder.virtualGraph(1), builder.nameScope("scope"):
        for name, method in onnx_methods(version).items():
            if not onnx.defs.get_schema(method.kind, version).deprecated:
                results = called(builder, name, version)
    builder.addOutputTensor(results[0])
    before = builder.getModelProto()
    again = Builder(before)
    assert again.getModelProto() == before
    for id_ in (*builder.getValueTensorIds(), *builder.getInputTensorIds()):
        assert again.draft.types[id_] == builder.draft.types[id_]
    assert again.getTrainableTensorIds() == builder.getTrainableTensorIds()


def test_it_goes_on(tmp_path):
    builder = Builder(opsets={"ai.onnx": 9})
    x = builder.addInputTensor("FLOAT", [2, 3])
    y = builder.aiOnnx.relu([x])
    builder.addOutputTensor(y)
    builder.saveModelProto(tmp_path / "model.onnx")
    for source in (builder.getModelProto(), str(tmp_path / "model.onnx")):
        again = Builder(source)
        assert again.getTensorShape(y) == [2, 3]
        assert again.aiOnnx.version == 9
        assert again.aiOnnx.relu([y]) == "Relu:0/1"
        assert again.addInputTensor("FLOAT", [1]) == "input/1"
        with pytest.raises(RuntimeError, match=r"domain ai\.onnx already defined as 9"):
            _ = again.aiOnnxOpset10


def test_names_in_subgraphs_are_taken():
    builder = Builder()
    called(builder, "logical_if", 10)
    again = Builder(builder.getModelProto())
    x = again.getInputTensorIds()[1]
    # Both branches have such a tensor.
    assert again.aiOnnx.neg([x]) == builder.aiOnnx.neg([x]) == "Neg:0/1"


@pytest.mark.parametrize("declared", [[3, 2], None])
def test_declared_types_say_what_does_not_follow(declared):
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    shape = helper.make_tensor_value_info("shape", TensorProto.INT64, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, declared)
    opsets = [helper.make_opsetid("", 10)]
    graph = helper.make_graph([node], "g", [x, shape], [y])
    builder = Builder(
        helper.make_model(graph, opset_imports=opsets, ir_version=4).SerializeToString()
    )
    assert shape_of(builder.draft.types["y"]) == declared
    assert builder.getTensorDtypeString("y") == "float32"


@pytest.mark.parametrize("version", [8, 9])
def test_values_are_inputs_in_the_older_format(version):
    builder = Builder(opsets={"ai.onnx": version})
    w = builder.addInitializedInputTensor(np.zeros(2, np.float32))
    builder.addOutputTensor(builder.aiOnnx.relu([w]))
    model = onnx.ModelProto.FromString(builder.getModelProto())
    assert model.ir_version == (3 if version == 8 else 4)
    assert [each.name for each in model.graph.input] == ([w] if version == 8 else [])
    onnx.checker.check_model(model)
    assert Builder(builder.getModelProto()).getInputTensorIds() == []


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (b"", "It is empty"),
        (b"no model", "It is a text, and no ONNX model"),
        ("no_such_file.onnx", "There is no such file"),
        (3, "as the path of a file, or as bytes"),
    ],
)
def test_there_is_no_model(source, text):
    with pytest.raises(popart_exception, match=text):
        Builder(source)


def test_a_model_whose_shapes_do_not_fit():
    node = helper.make_node("MatMul", ["a", "b"], ["c"])
    a, b = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "ab")
    c = helper.make_tensor_value_info("c", TensorProto.FLOAT, [2, 2])
    opsets = [helper.make_opsetid("", 10)]
    model = helper.make_model(helper.make_graph([node], "g", [a, b], [c]), opset_imports=opsets)
    model.ir_version = 4
    with pytest.raises(popart_exception, match="In MatMul 'c': Incompatible dimensions"):
        Builder(model.SerializeToString())


def test_a_model_of_a_newer_opset_keeps_it_and_takes_operations_of_other_domains():
    nodes = [
        helper.make_node("Constant", [], ["axes"], value_ints=[1]),
        helper.make_node("Unsqueeze", ["x", "axes"], ["y"]),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 1])
    made = helper.make_model(
        helper.make_graph(nodes, "graph", [given], [result]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    builder = Builder(made.SerializeToString())
    assert builder.getTensorShape("y") == [3, 1]
    assert builder.getTensorShape("axes") == [1]
    text = "is of opset 17 of ai.onnx, and builders add operations of 6 to 11. Add some of ai.graph"
    with pytest.raises(popart_exception, match=text):
        _ = builder.aiOnnx
    assert builder.getTensorShape(builder.aiGraphcore.gelu(["y"])) == [3, 1]
    again = onnx.ModelProto.FromString(builder.getModelProto())
    onnx.shape_inference.infer_shapes(again, strict_mode=True)
    assert again.ir_version == 8
    assert {each.domain: each.version for each in again.opset_import} == {"": 17, "ai.graphcore": 1}
