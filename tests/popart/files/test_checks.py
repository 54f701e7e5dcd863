"""What models of newer opsets may have, and what is said of what they may not."""

import pytest
from onnx import TensorProto, helper

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.files.loading import load


def model_of(*nodes, shape=(2,), opsets=(("", 19),)):
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    result = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "graph", [given], [result])
    imported = [helper.make_opsetid(*each) for each in opsets]
    return helper.make_model(graph, opset_imports=imported, ir_version=8).SerializeToString()


def test_all_unknown_operations_are_named_at_once():
    nodes = (
        helper.make_node("STFT", ["x", "x"], ["a"], "spectrum"),
        helper.make_node("DFT", ["a"], ["b"]),
        helper.make_node("DeformConv", ["b", "b", "b"], ["y"]),
    )
    with pytest.raises(popart_exception) as caught:
        load(model_of(*nodes))
    assert (
        "In STFT 'spectrum': Unknown operation 'STFT' of the domain 'ai.onnx'. It is none of those "
        "that docs/popart.md lists. Compute it before the session runs, and give the model its "
        "result as an input. Not known either: DFT, DeformConv."
    ) in str(caught.value)


def test_unknown_operations_within_nodes_are_found():
    inner = helper.make_graph(
        [helper.make_node("DFT", ["x"], ["z"])],
        "branch",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    node = helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)
    with pytest.raises(popart_exception, match="In DFT 'z': Unknown operation 'DFT'"):
        load(model_of(node))


def test_operations_of_onnxruntime_say_where_they_come_from():
    node = helper.make_node("FusedConv", ["x"], ["y"], domain="com.microsoft")
    text = "those that onnxruntime's optimisers write: give the model as it was before they ran."
    with pytest.raises(popart_exception, match=text):
        load(model_of(node))


def test_sizes_of_minus_one_are_open_as_named_ones_are():
    content = model_of(helper.make_node("Relu", ["x"], ["y"]), shape=[-1, "n", 3])
    assert load(content).model.graph.inputs[0].shape == (None, None, 3)


def test_a_domain_without_operations_may_be_imported_in_any_version():
    content = model_of(helper.make_node("Relu", ["x"], ["y"]), opsets=(("", 17), ("ai.onnx.ml", 5)))
    assert load(content).model.opsets == {"ai.onnx": 17, "ai.onnx.ml": 5}
