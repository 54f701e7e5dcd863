import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from ipu_keras.popart.model.graph import AI_ONNX, GraphInput
from ipu_keras.popart.model.parsing import parsed_graph

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(width=32, allow_nan=False)


def attribute(value):
    """What is read of a node's attribute."""
    node = helper.make_node("Relu", ["x"], ["y"], a=value)
    return parsed_graph(helper.make_graph([node], "graph", [], [])).nodes[0].attributes["a"]


@given(
    st.one_of(
        *(INTEGERS, FLOATS, TEXTS),
        *(st.lists(each, min_size=1, max_size=4) for each in (INTEGERS, FLOATS, TEXTS)),
    )
)
def test_attributes_come_back(value):
    found = attribute(value)
    assert found == value
    assert type(found) is type(value)


def test_attributes_of_tensors_and_graphs():
    tensor = helper.make_tensor("t", TensorProto.INT8, [2], [1, -1])
    np.testing.assert_array_equal(attribute(tensor), np.array([1, -1], np.int8))
    assert [each.tolist() for each in attribute([tensor, tensor])] == [[1, -1], [1, -1]]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["z"])], "inner", [], [])
    assert attribute(graph).name == "inner"
    assert [each.nodes[0].outputs for each in attribute([graph])] == [("z",)]


def test_inputs():
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2])
    values = [
        helper.make_tensor_value_info("a", TensorProto.FLOAT16, [2, "n", None]),
        helper.make_tensor_value_info("b", TensorProto.BFLOAT16, []),
        helper.make_tensor_value_info("c", TensorProto.STRING, None),
        sequence,
        helper.make_tensor_value_info("w", TensorProto.FLOAT, [1]),
    ]
    weights = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    graph = parsed_graph(helper.make_graph([], "graph", values, [], [weights]))
    assert graph.inputs == (
        GraphInput("a", "float16", (2, None, None)),
        GraphInput("b", "bfloat16", ()),
        GraphInput("c", "object", None),
        GraphInput("s"),
    )
    assert graph.initialisers["w"].tolist() == [1.0]


def test_nodes():
    proto = helper.make_node("Gelu", ["x", ""], ["", "y"], "name", domain="ai.graphcore", __a=1)
    node = parsed_graph(helper.make_graph([proto], "graph", [], [])).nodes[0]
    assert (node.kind, node.domain, node.name) == ("Gelu", "ai.graphcore", "name")
    assert (node.inputs, node.outputs, node.attributes) == (("x", ""), ("", "y"), {"__a": 1})
    proto.domain = ""
    assert parsed_graph(helper.make_graph([proto], "graph", [], [])).nodes[0].domain == AI_ONNX
