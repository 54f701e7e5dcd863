"""The dtype and shape of tensors, and what is none."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.graphs.tensor_info import getTensorInfo
from ipu_keras.popart.tensorinfo import TensorInfo

NAMES = {
    "FLOAT": "float32",
    "FLOAT16": "float16",
    "DOUBLE": "float64",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT16": "int16",
    "UINT16": "uint16",
    "INT32": "int32",
    "UINT32": "uint32",
    "INT64": "int64",
    "UINT64": "uint64",
    "BOOL": "bool",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_and_its_numpy_dtype_say_the_same(name):
    for dtype in (name, np.dtype(NAMES[name]), getattr(np, np.dtype(NAMES[name]).type.__name__)):
        info = TensorInfo(dtype, [2, 3])
        assert info.data_type_lcase() == NAMES[name]
        assert info.shape() == [2, 3]


@given(st.lists(st.integers(0, 5), max_size=4), st.sampled_from(list(NAMES.values())))
def test_it_is_made_of_an_array(shape, dtype):
    info = TensorInfo(np.zeros(shape, dtype))
    assert (info.shape(), info.data_type_lcase()) == (shape, dtype)
    assert info == TensorInfo(np.dtype(dtype), np.array(shape, int))
    assert hash(info) == hash(TensorInfo(np.dtype(dtype), tuple(shape)))


def test_no_dtype():
    with pytest.raises(popart_exception, match=r"Unknown dtype 'FLAOT'\. It is one of FLOAT, "):
        TensorInfo("FLAOT", [1])
    with pytest.raises(KeyError, match="ONNX has no data type for arrays of datetime64"):
        TensorInfo(np.dtype("datetime64[s]"), [1])
    with pytest.raises(TypeError, match=r"a name such as 'FLOAT' or one of NumPy's\. Received: 3"):
        TensorInfo(3, [1])


@pytest.mark.parametrize("arguments", [(), ("FLOAT",), ("FLOAT", [1], 2), ([1.0],)])
def test_other_arguments(arguments):
    with pytest.raises(TypeError, match="a dtype and a shape, or of a NumPy array"):
        TensorInfo(*arguments)


def test_no_shape():
    with pytest.raises(popart_exception, match=r"not negative. Received: shape=\[2, -1\]"):
        TensorInfo("FLOAT", [2, -1])
    with pytest.raises(popart_exception, match=r"list of whole numbers\. Received"):
        TensorInfo("FLOAT", [2.5])
    with pytest.raises(TypeError, match=r"is a list of numbers\. Received: 4"):
        TensorInfo("FLOAT", 4)


def test_what_an_array_is():
    assert getTensorInfo(np.zeros((2, 3), np.int8)) == TensorInfo("INT8", [2, 3])
    with pytest.raises(TypeError, match=r"^`array` must be a NumPy array\. Received: list"):
        getTensorInfo([1])
    with pytest.raises(popart_exception, match="datetime64"):
        getTensorInfo(np.zeros(2, "datetime64[s]"))
