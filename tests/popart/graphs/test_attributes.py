"""Attributes of nodes, there and back."""

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import AttributeProto

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.graphs.attributes import attribute_of, attribute_of_any, value_of
from ipu_keras.popart.options.enumerations import InitType

INTEGERS = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.floats(width=32, allow_nan=False)
TEXTS = st.text()


@given(st.one_of(INTEGERS, NUMBERS, TEXTS, *(st.lists(e, min_size=1) for e in (INTEGERS, TEXTS))))
def test_values_come_back(value):
    attribute = attribute_of_any("a", value)
    assert attribute.name == "a"
    assert value_of(attribute, attribute.type) == value


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, AttributeProto.INT),
        (np.int32(3), AttributeProto.INT),
        (np.bool_(True), AttributeProto.INT),
        (InitType.Zero, AttributeProto.INT),
        (np.float16(0.5), AttributeProto.FLOAT),
        ([1, 2.5], AttributeProto.FLOATS),
        (np.array([1, 2]), AttributeProto.INTS),
        (np.array(3), AttributeProto.INT),
        (np.array(0.5), AttributeProto.FLOAT),
        ((), AttributeProto.INTS),
    ],
)
def test_the_type_follows_from_the_value(value, kind):
    assert attribute_of_any("a", value).type == kind


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (1.5, AttributeProto.INT, "an integer. Received: a=1.5, of type float"),
        ("1", AttributeProto.INT, "an integer"),
        ("1", AttributeProto.FLOAT, "a number"),
        (1, AttributeProto.STRING, "a string"),
        (1, AttributeProto.INTS, "a list of integers"),
        ([1.5], AttributeProto.INTS, "a list of integers"),
        ("ab", AttributeProto.STRINGS, "a list of strings"),
        (np.zeros((2, 2)), AttributeProto.FLOATS, "a list of numbers"),
        ([1.0], AttributeProto.TENSOR, "a NumPy array"),
        (2**63, AttributeProto.INT, "no model can hold"),
    ],
)
def test_a_value_of_another_type(value, kind, words):
    with pytest.raises(popart_exception, match=f"The attribute `a` .*{words}"):
        attribute_of("a", value, kind)


@pytest.mark.parametrize("value", [None, {}, object(), [[1]], [1, "a"]])
def test_a_value_of_no_type(value):
    with pytest.raises(popart_exception, match="an integer, a number or a string, or a list"):
        attribute_of_any("a", value)


def test_arrays_need_not_be_contiguous():
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    attribute = attribute_of("value", array, AttributeProto.TENSOR)
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(attribute.t), array)


def test_reading_another_type():
    with pytest.raises(popart_exception, match="'a' is not a number, but of type INT: ask"):
        value_of(attribute_of_any("a", 1), AttributeProto.FLOAT)
