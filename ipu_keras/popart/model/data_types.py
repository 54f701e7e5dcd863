"""Knows the data types of ONNX that PopART has, and how they are narrowed to those of an IPU."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import onnx
import onnx.helper

from ipu_keras.popart.exceptions import popart_exception

# Newer opsets add floating point numbers of 8 bits and numbers of 4 and 2 bits, which PopART 2.1
# does not know.
_NAMES = (
    *("FLOAT", "UINT8", "INT8", "UINT16", "INT16", "INT32", "INT64", "STRING", "BOOL", "FLOAT16"),
    *("DOUBLE", "UINT32", "UINT64", "COMPLEX64", "COMPLEX128", "BFLOAT16"),
)
_DTYPES: Mapping[int, np.dtype] = MappingProxyType(
    {
        onnx.TensorProto.DataType.Value(name): np.dtype(
            onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(name))
        )
        for name in _NAMES
    }
)
# ONNX's numbers of data types by PopART's names, such as `"FLOAT16"`.
NUMBERS = MappingProxyType({name: onnx.TensorProto.DataType.Value(name) for name in _NAMES})
_NUMBERS = MappingProxyType({dtype: number for number, dtype in _DTYPES.items()})

_NARROWED = MappingProxyType(
    {
        np.dtype("int64"): np.dtype("int32"),
        np.dtype("uint64"): np.dtype("uint32"),
        np.dtype("float64"): np.dtype("float32"),
    }
)
_ON_DEVICE = ("float32", "float16", "int32", "uint32", "int8", "uint8", "bool")


def dtype_of(number: int) -> np.dtype:
    """Returns NumPy's type of one of the data types here, `object` for strings."""
    if number not in _DTYPES:
        raise popart_exception(
            f"Unknown data type {number}. The data types are: "
            f"{', '.join(f'{each} ({name_of(dtype)})' for each, dtype in _DTYPES.items())}."
        )
    return _DTYPES[number]


def number_of(dtype: np.dtype) -> int:
    """Returns ONNX's number of a data type."""
    if dtype not in _NUMBERS:
        raise popart_exception(f"ONNX has no data type for arrays of {dtype}.")
    return _NUMBERS[dtype]


def name_of(dtype: np.dtype) -> str:
    """Returns PopART's name of a data type, such as `"FLOAT16"`."""
    return onnx.TensorProto.DataType.Name(number_of(dtype))


def dtype_on_device(dtype: np.dtype) -> np.dtype:
    """Returns the type that a tensor has on an IPU, whose numbers have 32 bits at most."""
    narrow = _NARROWED.get(dtype, dtype)
    if narrow.name not in _ON_DEVICE:
        supported = ", ".join(name_of(np.dtype(name)) for name in _ON_DEVICE)
        raise popart_exception(
            f"The data type {name_of(dtype)} is not supported in Poplar. Expected one of: "
            f"{supported}, or INT64, UINT64 or DOUBLE, which become types of 32 bits. "
            "`popart.GraphTransformer` converts models."
        )
    return narrow


def narrowed(array: np.ndarray, name: str) -> np.ndarray:
    """Returns an array in the type that an IPU has for it, which must hold all values."""
    dtype = dtype_on_device(array.dtype)
    if dtype == array.dtype:
        return array
    outside = values_outside(array, dtype)
    if outside.size:
        raise popart_exception(
            f"{name!r} has the value {outside[0]}, which {name_of(dtype)} cannot hold: IPUs "
            f"compute {name_of(array.dtype)} as {name_of(dtype)}. Scale the values, or clip them."
        )
    return array.astype(dtype)


def values_outside(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Returns the finite values of an array that are out of the range of a narrower type."""
    limits = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    is_outside = (array < limits.min) | (array > limits.max)
    if array.dtype.kind not in "iu":
        is_outside &= np.isfinite(array)
    return array[is_outside]
