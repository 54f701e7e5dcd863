import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.data_types import (
    dtype_of,
    dtype_on_device,
    name_of,
    narrowed,
    number_of,
)

BFLOAT16 = dtype_of(TensorProto.BFLOAT16)


@pytest.mark.parametrize("number", range(1, 17))
def test_the_types_of_opset_11(number):
    dtype = dtype_of(number)
    assert number_of(dtype) == number
    assert name_of(dtype) == TensorProto.DataType.Name(number)


@pytest.mark.parametrize("number", [0, 17, -1, 2**31 - 1])
def test_other_types(number):
    with pytest.raises(popart_exception, match=rf"^Unknown data type {number}\. The data types ar"):
        dtype_of(number)
    with pytest.raises(popart_exception, match=r"ONNX has no data type for arrays of datetime64\."):
        number_of(np.dtype("datetime64"))


@pytest.mark.parametrize(
    ("given", "on_device"),
    [
        *((name, name) for name in ("float32", "float16", "int32", "uint32", "int8", "uint8")),
        *(("bool", "bool"), ("int64", "int32"), ("uint64", "uint32"), ("float64", "float32")),
    ],
)
def test_types_on_a_device(given, on_device):
    assert dtype_on_device(np.dtype(given)) == np.dtype(on_device)
    assert narrowed(np.ones(2, given), "x").dtype == np.dtype(on_device)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        *(("int16", "INT16"), ("uint16", "UINT16"), ("complex64", "COMPLEX64")),
        *(("complex128", "COMPLEX128"), (object, "STRING"), (BFLOAT16, "BFLOAT16")),
    ],
)
def test_types_that_no_device_has(dtype, name):
    expected = (
        f"The data type {name} is not supported in Poplar. Expected one of: FLOAT, FLOAT16, INT32, "
        "UINT32, INT8, UINT8, BOOL, or INT64, UINT64 or DOUBLE, which become types of 32 bits."
    )
    with pytest.raises(popart_exception, match=f"^{re.escape(expected)}"):
        dtype_on_device(np.dtype(dtype))
    with pytest.raises(popart_exception, match=re.escape(expected)):
        narrowed(np.ones(1, dtype), "x")


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        ("int64", [2**31 - 1, -(2**31)], [2**31, -(2**31) - 1, 2**63 - 1]),
        ("uint64", [0, 2**32 - 1], [2**32, 2**64 - 1]),
        ("float64", [3e38, -3e38, np.inf, -np.inf, np.nan, 1e-300], [1e39, -1e300]),
    ],
)
def test_ranges(dtype, good, bad):
    array = np.array([good], dtype)
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_allclose(narrowed(array, "x"), array, rtol=1e-6, atol=1e-40)
    for value in bad:
        with pytest.raises(popart_exception, match=r"'x' has the value .*, which \w+ cannot hold"):
            narrowed(np.array([*good, value], dtype), "x")


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_integers_are_the_same_or_refused(values):
    array = np.array(values, np.int64)
    if all(-(2**31) <= value < 2**31 for value in values):
        assert narrowed(array, "x").tolist() == values
    else:
        with pytest.raises(
            popart_exception, match="which INT32 cannot hold: IPUs compute INT64 as"
        ):
            narrowed(array, "x")
