"""The data types of ONNX that PopART knows, and those that an IPU has."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import onnx
import onnx.helper

from ipu_keras.popart.exceptions import popart_exception

# Newer opsets have more: numbers of 8, 4 and 2 bits.
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
# Numbers of data types in ONNX by PopART's names of them, such as `"FLOAT16"`.
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
    """NumPy's type of a data type; objects for texts.

    Args:
        number: Of the data type in ONNX, such as `onnx.TensorProto.FLOAT`.

    Raises:
        popart_exception: There is none, or it is one of 8 bits or less of floating point, or of
            fewer bits than 8.
    """
    if number not in _DTYPES:
        raise popart_exception(
            f"Unknown data type {number}. The data types are: "
            f"{', '.join(f'{each} ({name_of(dtype)})' for each, dtype in _DTYPES.items())}."
        )
    return _DTYPES[number]


def number_of(dtype: np.dtype) -> int:
    """The number of a data type in ONNX.

    Args:
        dtype: One that `dtype_of` gives.

    Raises:
        popart_exception: It has none.
    """
    if dtype not in _NUMBERS:
        raise popart_exception(f"ONNX has no data type for arrays of {dtype}.")
    return _NUMBERS[dtype]


def name_of(dtype: np.dtype) -> str:
    """What PopART calls a data type, such as `"FLOAT16"`.

    Args:
        dtype: It.
    """
    return onnx.TensorProto.DataType.Name(number_of(dtype))


def dtype_on_device(dtype: np.dtype) -> np.dtype:
    """The data type that a tensor has on an IPU, where numbers have 32 bits at most.

    Args:
        dtype: Of the tensor in the model.

    Raises:
        popart_exception: An IPU has nothing like it.

    Example:

    >>> dtype_on_device(np.dtype("int64"))
    dtype('int32')
    """
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
    """An array as an IPU has it, in types of 32 bits at most.

    Args:
        array: It.
        name: What errors call it.

    Raises:
        popart_exception: An IPU has no such type, or a value is out of the narrow type's range.

    Example:

    >>> narrowed(np.array([1, 2]), "x")
    array([1, 2], dtype=int32)
    """
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
    """The values of an array that a narrower type does not have in its range; infinity is none.

    Args:
        array: Integers or floats.
        dtype: The narrower type, of the same kind.
    """
    limits = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    is_outside = (array < limits.min) | (array > limits.max)
    if array.dtype.kind not in "iu":
        is_outside &= np.isfinite(array)
    return array[is_outside]
