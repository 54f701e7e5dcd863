import re

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import TensorProto, helper, numpy_helper

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.data_types import dtype_of
from ipu_keras.popart.model.tensors import array_of, dense_array_of, tensor_of

NUMBERS = [each for each in range(1, 17) if each not in (TensorProto.STRING, TensorProto.BFLOAT16)]


@st.composite
def tensors(draw, numbers=NUMBERS):
    number = draw(st.sampled_from(numbers))
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    return draw(arrays.arrays(dtype_of(number), shape)), number


def same(found, expected):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    # Also the bits of what is no number.
    assert found.tobytes() == expected.tobytes()


@given(tensors())
def test_arrays_come_back(case):
    array, number = case
    tensor = tensor_of(array, "w")
    assert (tensor.name, tensor.data_type) == ("w", number)
    same(array_of(tensor, "w"), array)
    same(numpy_helper.to_array(tensor), array)


@given(tensors())
def test_data_in_fields_is_that_in_bytes(case):
    array, number = case
    values = array.ravel()
    if number == TensorProto.BOOL:
        values = values.astype(int)
    if number == TensorProto.FLOAT16:
        values = values.view(np.uint16)
    if number in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        values = values.view(np.float32 if number == TensorProto.COMPLEX64 else np.float64)
    tensor = TensorProto(data_type=number, dims=array.shape)
    field = helper.tensor_dtype_to_field(number)
    getattr(tensor, field).extend(values.tolist())
    found = array_of(TensorProto.FromString(tensor.SerializeToString()), "w")
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_bfloat16():
    dtype = dtype_of(TensorProto.BFLOAT16)
    array = np.array([1.5, -2.0], dtype)
    same(array_of(tensor_of(array, "w"), "w"), array)
    in_field = TensorProto(data_type=TensorProto.BFLOAT16, dims=[2])
    in_field.int32_data.extend([0x3FC0, 0xC000])
    same(array_of(in_field, "w"), array)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5)))
def test_texts(texts):
    array = np.array(texts, object)
    found = array_of(tensor_of(array, "w"), "w")
    assert found.tolist() == texts
    assert found.dtype == object


def test_any_byte_but_zero_is_true():
    tensor = TensorProto(data_type=TensorProto.BOOL, dims=[3], raw_data=b"\0\1\7")
    found = array_of(tensor, "w")
    assert found.tolist() == [False, True, True]
    assert found.tobytes() == b"\0\1\1"


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("UINT8", "int32_data", 256),
        ("UINT8", "int32_data", -1),
        ("INT8", "int32_data", 128),
        ("UINT16", "int32_data", 2**16),
        ("FLOAT16", "int32_data", 2**16),
        ("UINT32", "uint64_data", 2**32),
    ],
)
def test_values_that_a_type_does_not_have(kind, field, value):
    tensor = TensorProto(data_type=TensorProto.DataType.Value(kind), dims=[2])
    getattr(tensor, field).extend([1, value])
    with pytest.raises(
        popart_exception, match=f"^w has the value {value} in `{field}`, which {kind}"
    ):
        array_of(tensor, "w")


def test_large_data_is_not_copied():
    tensor = tensor_of(np.ones(1000, np.float32), "w")
    assert not array_of(tensor, "w").flags.owndata


def test_texts_cannot_be_elsewhere():
    tensor = TensorProto(data_type=TensorProto.STRING, dims=[1], raw_data=b"abcd")
    with pytest.raises(popart_exception, match=r"w has texts in `raw_data`. Expected: `string_da"):
        array_of(tensor, "w")
    outside = TensorProto(data_type=TensorProto.FLOAT, data_location=onnx.TensorProto.EXTERNAL)
    with pytest.raises(popart_exception, match=r"w cannot have its data in another file\."):
        array_of(outside, "w")


def sparse(values, indices, dims):
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.array(values, np.float32)),
        numpy_helper.from_array(np.array(indices, np.int64)),
        dims,
    )


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_tensors(indices):
    found = dense_array_of(sparse([1, 2], indices, [2, 3]), "w")
    np.testing.assert_array_equal(found, np.array([[0, 1, 0], [0, 0, 2]], np.float32))


@pytest.mark.parametrize(
    ("values", "indices", "dims", "text"),
    [
        ([1], [6], [2, 3], "w has indices that do not fit. Expected: one within dimensions=[2, 3]"),
        ([1], [-1], [2, 3], "w has indices that do not fit."),
        ([1], [[0, 3]], [2, 3], "w has indices that do not fit."),
        ([1], [1, 2], [2, 3], "for each of 1 values. Received: indices of type int64 and"),
        ([1], [[1]], [2, 3], "w has indices that do not fit."),
        ([[1]], [[1, 1]], [2, 3], "w has indices that do not fit."),
        ([1], [0], [2**20, 2**10], "w is a sparse tensor of more than 67108864 elements"),
        ([1], [0], [-1], "w has a negative dimension. Received: dimensions=[-1]"),
    ],
)
def test_sparse_tensors_that_are_none(values, indices, dims, text):
    with pytest.raises(popart_exception, match=re.escape(text)):
        dense_array_of(sparse(values, indices, dims), "w")
