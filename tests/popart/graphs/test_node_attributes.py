"""Attributes of nodes, which are named by all their outputs."""

import pytest

from ipu_keras.popart.core import _BuilderCore
from ipu_keras.popart.exceptions import popart_exception


@pytest.fixture
def builder() -> _BuilderCore:
    made = _BuilderCore()
    made.addInputTensor("FLOAT", [4], "x")
    made.aiOnnxOpset10.split(["x"], 2)
    made.aiOnnxOpset10.leakyrelu(["x"])
    return made


SPLIT, LEAKY = {"Split:0", "Split:1"}, {"LeakyRelu:0"}


@pytest.mark.parametrize(
    ("value", "getter"),
    [
        (3, "getInt64NodeAttribute"),
        ([1, 2], "getInt64VectorNodeAttribute"),
        (0.5, "getFloatNodeAttribute"),
        ([0.5, 1.5], "getFloatVectorNodeAttribute"),
        ("text", "getStringNodeAttribute"),
        (["a", "b"], "getStringVectorNodeAttribute"),
    ],
)
@pytest.mark.parametrize("outputs", [SPLIT, LEAKY])
def test_they_come_back_by_their_type(builder, outputs, value, getter):
    builder.addNodeAttribute("__mine", value, outputs)
    assert builder.nodeHasAttribute("__mine", outputs)
    assert getattr(builder, getter)("__mine", outputs) == value
    with pytest.raises(popart_exception, match=r"(LeakyRelu|Split) has the attribute '__mine'"):
        builder.addNodeAttribute("__mine", value, outputs)
    builder.removeNodeAttribute("__mine", outputs)
    assert not builder.nodeHasAttribute("__mine", outputs)
    with pytest.raises(popart_exception, match="Node does not have an attribute __mine"):
        getattr(builder, getter)("__mine", outputs)


def test_another_type_is_no_answer(builder):
    assert builder.getFloatNodeAttribute("alpha", LEAKY) == pytest.approx(0.01)
    with pytest.raises(popart_exception, match="'alpha' is not an integer, but of type FLOAT"):
        builder.getInt64NodeAttribute("alpha", LEAKY)


def test_all_names(builder):
    builder.addNodeAttribute("__mine", 1, LEAKY)
    assert builder.getAllNodeAttributeNames(LEAKY) == ["alpha", "__mine"]
    assert builder.getAllNodeAttributeNames(list(SPLIT)) == ["axis"]


@pytest.mark.parametrize("outputs", [{"Split:0"}, {"x"}, set(), {"Split:0", "LeakyRelu:0"}, None])
def test_there_is_no_such_node(builder, outputs):
    with pytest.raises(popart_exception, match=r"Could not find a node with output name\(s\)"):
        builder.getAllNodeAttributeNames(outputs)
    with pytest.raises(popart_exception, match="a set of the ids of all its outputs"):
        builder.addNodeAttribute("__mine", 1, outputs)


def test_a_value_of_no_type(builder):
    with pytest.raises(popart_exception, match="an integer, a number or a string"):
        builder.addNodeAttribute("__mine", {}, LEAKY)
    with pytest.raises(popart_exception, match="Node does not have an attribute axis"):
        builder.removeNodeAttribute("axis", LEAKY)
