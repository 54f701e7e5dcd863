import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import model_of

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.files.loading import load
from ipu_keras.popart.files.transformer import GraphTransformer
from ipu_keras.popart.model.data_types import dtype_of


def transformed(model, change):
    transformer = GraphTransformer(model.SerializeToString())
    change(transformer)
    return onnx.ModelProto.FromString(transformer.getModelProto())


def typed(number, values=(1, 2)):
    """A model with tensors of a type wherever there can be some."""
    array = np.array(values).astype(dtype_of(number))
    value = helper.make_tensor("value", number, [2], array.tobytes(), raw=True)
    inner = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["inner"], to=number)],
        "branch",
        [],
        [helper.make_tensor_value_info("inner", number, [2])],
    )
    made = model_of(
        [
            helper.make_node("Constant", [], ["constant"], value=value),
            helper.make_node("If", ["c"], ["choice"], then_branch=inner, else_branch=inner),
        ],
        {},
        [],
        {"c": np.array(True)},
    )
    value.name = "w"
    made.graph.initializer.append(value)
    made.graph.input.append(helper.make_tensor_value_info("x", number, [2]))
    made.graph.output.append(helper.make_tensor_value_info("choice", number, [2]))
    made.graph.value_info.append(helper.make_tensor_sequence_value_info("s", number, [2]))
    return made


CONVERSIONS = {
    "convertFloatsToHalfs": ("FLOAT", "FLOAT16"),
    "convertUINT8ToINT32": ("UINT8", "INT32"),
    "convertUINT16ToINT32": ("UINT16", "INT32"),
    "convertINT8ToINT32": ("INT8", "INT32"),
    "convertINT16ToINT32": ("INT16", "INT32"),
    "convertINT64ToINT32": ("INT64", "INT32"),
    "convertDoublesToFloats": ("DOUBLE", "FLOAT"),
    "convertDoublesToHalfs": ("DOUBLE", "FLOAT16"),
    "convertBFloats16ToFloat32": ("BFLOAT16", "FLOAT"),
}


@pytest.mark.parametrize(("method", "kinds"), CONVERSIONS.items(), ids=CONVERSIONS)
def test_conversions(method, kinds):
    old, new = (TensorProto.DataType.Value(kind) for kind in kinds)
    found = transformed(typed(old), lambda each: getattr(each, method)())
    assert found == typed(new)
    # Others stay as they are.
    other = typed(TensorProto.UINT32)
    assert transformed(other, lambda each: getattr(each, method)()) == other


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**63 - 1])
def test_integers_that_do_not_fit(value):
    made = typed(TensorProto.INT64, [1, value])
    transformer = GraphTransformer(made.SerializeToString())
    expected = (
        f"The initialiser 'w' has the value {value}, which INT32 cannot hold. "
        "`convertINT64ToINT32(clip=True)` takes the nearest value for it."
    )
    with pytest.raises(popart_exception, match=f"^{re.escape(expected)}$"):
        transformer.convertINT64ToINT32()
    assert onnx.ModelProto.FromString(transformer.getModelProto()) == made
    transformer.convertINT64ToINT32(clip=True)
    found = load(transformer.getModelProto()).model.graph.initialisers["w"]
    assert found.tolist() == [1, np.clip(value, -(2**31), 2**31 - 1)]
    assert found.dtype == np.int32


def test_floats_that_do_not_fit():
    made = GraphTransformer(typed(TensorProto.FLOAT, [1, -1e9]).SerializeToString())
    text = r"has values that FLOAT16 cannot hold, such as -1000000000\.0, which become infinite\."
    with pytest.warns(UserWarning, match=text) as warned:
        made.convertFloatsToHalfs()
    assert {each.filename for each in warned} == {__file__}
    found = load(made.getModelProto()).model.graph.initialisers["w"]
    assert found.tolist() == [1, -np.inf]


def test_nodes_that_make_floats_if_they_say_nothing():
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["a"]),
        helper.make_node("RandomNormal", [], ["b"], shape=[2]),
        helper.make_node("RandomUniform", [], ["c"], shape=[2], dtype=TensorProto.DOUBLE),
    ]
    made = model_of(nodes, {}, ["a"], {"s": np.array([2])})
    found = transformed(made, lambda each: each.convertFloatsToHalfs())
    value, normal, uniform = (
        next(each for each in node.attribute if each.name in ("value", "dtype"))
        for node in found.graph.node
    )
    assert (value.t.data_type, value.t.raw_data) == (TensorProto.FLOAT16, b"\0\0")
    assert (normal.i, uniform.i) == (TensorProto.FLOAT16, TensorProto.DOUBLE)


def test_unused_inputs():
    inner = helper.make_graph(
        [helper.make_node("Relu", ["captured"], ["z"])],
        "branch",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)]
    arrays = {name: np.array(True) for name in ("c", "free", "given_back")}
    made = model_of(nodes, {"captured": [2], "unused": [2]}, ["y", "given_back"], arrays)
    found = transformed(made, lambda each: each.removeUnusedInputs()).graph
    assert [each.name for each in found.input] == ["captured"]
    assert [each.name for each in found.initializer] == ["c", "given_back"]


def test_nodes_for_training():
    arrays = {name: np.ones(2, np.float32) for name in ("s", "b", "m", "y_mean")}
    node = helper.make_node("BatchNormalization", ["x", "s", "b", "m", "m"], ["y"])
    made = model_of([node], {"x": [1, 2, 3]}, ["y"], arrays)
    found = transformed(made, lambda each: each.prepareNodesForTraining())
    expected = ["y", "y_mean/1", "y_var", "y_saved_mean", "y_saved_var"]
    assert list(found.graph.node[0].output) == expected
    assert transformed(found, lambda each: each.prepareNodesForTraining()) == found


def test_initialisers_become_constants():
    arrays = {"a": np.ones(2, np.float32), "b": np.array([1]), "c": np.array(True)}
    made = model_of([helper.make_node("Add", ["x", "a"], ["y"])], {"x": [2]}, ["y"], arrays)
    made.graph.input.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [2]))
    all_integers = transformed(
        made, lambda each: each.convertAllFixedPointInitializersToConstants()
    )
    assert [list(node.output) for node in all_integers.graph.node] == [["b"], ["c"], ["y"]]
    assert [each.name for each in all_integers.graph.initializer] == ["a"]
    found = load(
        transformed(
            made, lambda each: each.convertInitializersToConstants(["a"])
        ).SerializeToString()
    ).model.graph
    assert [each.name for each in found.inputs] == ["x"]
    assert found.nodes[0].attributes["value"].tolist() == [1, 1]
    for ids, text in ((["a", "d"], "There is no initialiser 'd'."), ("a", "must be a list of")):
        with pytest.raises(popart_exception, match=text):
            transformed(made, lambda each, ids=ids: each.convertInitializersToConstants(ids))


def test_initialisers_are_saved_in_a_file(tmp_path):
    made = typed(TensorProto.FLOAT)
    transformer = GraphTransformer(made.SerializeToString())
    transformer.saveInitializersExternally(["w"], str(tmp_path / "weights"))
    assert (tmp_path / "weights").read_bytes() == made.graph.initializer[1].raw_data
    outer = transformer.getModelProto()
    assert not onnx.ModelProto.FromString(outer).graph.initializer[1].HasField("raw_data")
    assert load(outer).proto == made
    # What is in the file is converted, too.
    transformer.convertFloatsToHalfs()
    assert onnx.ModelProto.FromString(transformer.getModelProto()) == typed(TensorProto.FLOAT16)


def test_what_is_no_model(tmp_path):
    with pytest.raises(popart_exception, match="cannot be loaded: There is no such file"):
        GraphTransformer(str(tmp_path / "missing.onnx"))
    with pytest.raises(popart_exception, match=r"`clip` must be True or False\. Received: clip=1"):
        GraphTransformer(typed(TensorProto.INT64).SerializeToString()).convertINT64ToINT32(1)


def test_constants_that_are_numbers_become_tensors_of_the_type():
    nodes = [
        helper.make_node("Constant", [], ["a"], value_float=0.5),
        helper.make_node("Constant", [], ["b"], value_ints=[1, 2]),
    ]
    made = helper.make_model(
        helper.make_graph(nodes, "graph", [], [onnx.ValueInfoProto(name="a")]),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=7,
    )
    transformer = GraphTransformer(made.SerializeToString())
    transformer.convertFloatsToHalfs()
    transformer.convertINT64ToINT32()
    found = onnx.ModelProto.FromString(transformer.getModelProto())
    values = [onnx.numpy_helper.to_array(node.attribute[0].t) for node in found.graph.node]
    assert [each.dtype for each in values] == [np.float16, np.int32]
    assert (values[0].shape, values[1].tolist()) == ((), [1, 2])
