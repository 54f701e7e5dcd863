"""Turns ONNX's messages of tensors into arrays, and arrays into messages."""

import math
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.data_types import dtype_of, name_of, number_of, values_outside
from ipu_keras.popart.model.external_data import ExternalData

# IPUs count elements along an axis in 32 bits, and no system of them has memory for so many.
MOST_ALONG_AXIS = 2**31 - 1
MOST_ELEMENTS = 2**40
MOST_AXES = 64
# The limit of elements of a tensor that a few bytes of a file describe.
MOST_DENSE = 2**26

_FIELDS = ("float_data", "int32_data", "int64_data", "uint64_data", "double_data", "string_data")
# Where the data of a type is, if it is not in `raw_data`. Types that are missing here are in
# `int32_data`.
_FIELD_OF = {
    TensorProto.FLOAT: "float_data",
    TensorProto.COMPLEX64: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.COMPLEX128: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
    TensorProto.STRING: "string_data",
}

# Protobuf's tag of the field `float_data` (4), with the kind of field whose length follows (2).
_FLOAT_DATA = bytes([4 << 3 | 2])


def check_dimensions(sizes: Sequence[int | None], what: str) -> None:
    """Raises a `popart_exception` if sizes, `None` for unknown ones, are negative or too large."""
    known = [size for size in sizes if size is not None]
    if any(size < 0 for size in known):
        raise popart_exception(
            f"{what} has a negative dimension. Received: dimensions={_shown(sizes)}"
        )
    if (
        len(sizes) > MOST_AXES
        or any(size > MOST_ALONG_AXIS for size in known)
        or math.prod(known) > MOST_ELEMENTS
    ):
        raise popart_exception(
            f"{what} is too large: at most {MOST_AXES} axes, 2**31 - 1 elements along each, and "
            f"2**40 elements in all. Received: dimensions={_shown(sizes)}"
        )


def declared_sizes(shape: onnx.TensorShapeProto) -> list[int | None]:
    """Returns the sizes that a shape declares, and `None` for those that it leaves open."""
    # ONNX gives open sizes a name or nothing, but some exporters write -1.
    return [
        each.dim_value if each.HasField("dim_value") and each.dim_value != -1 else None
        for each in shape.dim
    ]


def array_of(tensor: TensorProto, what: str, external: ExternalData | None = None) -> np.ndarray:
    """Returns the data of a message as an array, which may be read-only; errors call it `what`."""
    try:
        dtype = dtype_of(tensor.data_type)
    except popart_exception as error:
        raise popart_exception(f"{what} has an unknown data type: {error}") from error
    shape = tuple(tensor.dims)
    check_dimensions(shape, what)
    if tensor.HasField("segment"):
        raise popart_exception(f"{what} is a segment of a tensor. Expected: a whole one.")
    if is_external(tensor):
        return _outside(tensor, what, dtype, shape, external)
    used = [name for name in _FIELDS if len(getattr(tensor, name))]
    if tensor.HasField("raw_data"):
        used.append("raw_data")
    expected = _FIELD_OF.get(tensor.data_type, "int32_data")
    if len(used) > 1 or (used and used[0] not in (expected, "raw_data")):
        raise popart_exception(
            f"{what} has data in {' and '.join(f'`{name}`' for name in used)}. Expected: data in "
            f"either `raw_data` or `{expected}`, as it is of type {name_of(dtype)}."
        )
    if used == ["raw_data"]:
        if dtype.kind == "O":
            raise popart_exception(f"{what} has texts in `raw_data`. Expected: `string_data`.")
        return _of_bytes(tensor.raw_data, what, dtype, shape)
    return _of_field(tensor, expected, what, dtype, shape)


def dense_array_of(tensor: onnx.SparseTensorProto, what: str) -> np.ndarray:
    """Returns all elements of a sparse tensor; errors call it `what`."""
    values = array_of(tensor.values, f"{what}, of its values,")
    indices = array_of(tensor.indices, f"{what}, of its indices,")
    shape = tuple(tensor.dims)
    check_dimensions(shape, what)
    size = math.prod(shape)
    if size > MOST_DENSE:
        # A few bytes of a file would be enough to allocate all memory.
        raise popart_exception(
            f"{what} is a sparse tensor of more than {MOST_DENSE} elements, as IPUs have dense "
            f"ones only. Received: dimensions={_shown(shape)}"
        )
    # ONNX takes indices into the flat tensor, or an index for each axis.
    is_flat = indices.ndim == 1
    bounds = np.array([size] if is_flat else shape)
    if (
        indices.dtype != np.int64
        or values.ndim != 1
        or indices.shape not in ((len(values),), (len(values), len(shape)))
        or (indices < 0).any()
        or (indices >= bounds).any()
    ):
        raise popart_exception(
            f"{what} has indices that do not fit. Expected: one within "
            f"dimensions={_shown(shape)} for each of {values.size} values. Received: indices of "
            f"type {indices.dtype} and dimensions={_shown(indices.shape)}"
        )
    dense = np.zeros(shape, values.dtype)
    if is_flat:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense


def tensor_of(array: np.ndarray, name: str, *, in_field: bool = False) -> TensorProto:
    """Returns the message of an array.

    With `in_field`, floats go to `float_data`, where PopART's builder puts them and scripts look;
    all other numbers are in `raw_data`.
    """
    tensor = TensorProto(name=name, data_type=number_of(array.dtype), dims=array.shape)
    if array.dtype.kind == "O":
        tensor.string_data.extend(str(text).encode() for text in array.ravel())
    elif in_field and array.dtype == np.float32 and array.size:
        # Written as protobuf encodes the field: extending it from Python's numbers takes seconds.
        content = array.astype("<f4").tobytes()
        tensor.MergeFromString(_FLOAT_DATA + _varint(len(content)) + content)
    else:
        tensor.raw_data = array.tobytes()
    return tensor


def raw_data_of(tensor: TensorProto) -> bytes:
    """Returns the data of an initialiser in the encoding of `raw_data`, whichever field has it."""
    return array_of(tensor, f"The initialiser {tensor.name!r}").tobytes()


def put_inside(tensor: TensorProto, what: str, external: ExternalData) -> None:
    """Copies the data of a tensor from its file into the message; errors call it `what`."""
    tensor.raw_data = array_of(tensor, what, external).tobytes()
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")


def text_of(content: bytes, what: str) -> str:
    """Decodes a string of a message, or raises a `popart_exception` if it is not valid UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise popart_exception(
            f"{what} has bytes that are no text in UTF-8. Received: {content[:40]!r}"
        ) from error


def is_external(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == TensorProto.EXTERNAL


def _outside(
    tensor: TensorProto,
    what: str,
    dtype: np.dtype,
    shape: tuple[int, ...],
    external: ExternalData | None,
) -> np.ndarray:
    if external is None or dtype.kind == "O":
        raise popart_exception(f"{what} cannot have its data in another file.")
    num_bytes = math.prod(shape) * dtype.itemsize
    return _of_bytes(external.bytes_of(tensor, num_bytes), what, dtype, shape)


def _of_bytes(content: bytes, what: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    expected = math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        raise popart_exception(
            f"{what} has {'more' if len(content) > expected else 'less'} data than its dimensions "
            f"say. Received: {len(content)} bytes, for dimensions={_shown(shape)} of type "
            f"{name_of(dtype)}, which need {expected}"
        )
    if dtype.kind == "b":
        # Any byte but zero is true. NumPy would keep other bytes than 1, and then compute wrongly.
        return (np.frombuffer(content, np.uint8) != 0).reshape(shape)
    return np.frombuffer(content, dtype).reshape(shape)


def _of_field(
    tensor: TensorProto, field: str, what: str, dtype: np.dtype, shape: tuple[int, ...]
) -> np.ndarray:
    data = getattr(tensor, field)
    expected = math.prod(shape) * (2 if dtype.kind == "c" else 1)
    if len(data) != expected:
        raise popart_exception(
            f"{what} has {'more' if len(data) > expected else 'less'} data than its dimensions "
            f"say. Received: {len(data)} elements in `{field}`, for dimensions={_shown(shape)}"
        )
    if dtype.kind == "O":
        texts = np.empty(len(data), object)
        texts[:] = [text_of(one, what) for one in data]
        return texts.reshape(shape)
    given = _floats(tensor) if field == "float_data" else np.asarray(data)
    if dtype.kind == "c":
        return given.view(dtype).reshape(shape)
    if dtype.kind == "b":
        return (given != 0).reshape(shape)
    # ONNX stores floating point numbers of 16 bits as the bits of an integer.
    stored = np.dtype(np.uint16) if field == "int32_data" and dtype.kind not in "iu" else dtype
    if stored.itemsize < given.dtype.itemsize:
        outside = values_outside(given, stored)
        if outside.size:
            raise popart_exception(
                f"{what} has the value {outside[0]} in `{field}`, which {name_of(dtype)} cannot "
                "hold."
            )
    return given.astype(stored).view(dtype).reshape(shape)


def _floats(tensor: TensorProto) -> np.ndarray:
    """Reads `float_data` from its encoding, without making a Python number of each element."""
    bare = TensorProto()
    bare.float_data.MergeFrom(tensor.float_data)
    content = bare.SerializeToString()
    return np.frombuffer(content[len(content) - 4 * len(tensor.float_data) :], "<f4")


def _varint(number: int) -> bytes:
    """Encodes a number as protobuf does."""
    content = bytearray()
    while number > 127:
        content.append(number & 127 | 128)
        number >>= 7
    return bytes([*content, number])


def _shown(sizes: Sequence[int | None]) -> str:
    """Formats the first sizes of a shape, which may have any number of axes in a hostile file."""
    first = ", ".join("?" if size is None else str(size) for size in sizes[:8])
    return f"[{first}{', ...' if len(sizes) > 8 else ''}]"
