"""The types of tensors: PopART's names for them, NumPy's and ONNX's."""

import math
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.data_types import NUMBERS, dtype_of, number_of


def element_type(name: str) -> int:
    """ONNX's number of a dtype.

    Args:
        name: PopART's, such as `"FLOAT16"`.

    Raises:
        popart_exception: There is none of that name.
    """
    number = NUMBERS.get(name)
    if number is None:
        raise popart_exception(f"Unknown dtype {name!r}. It is one of {', '.join(NUMBERS)}.")
    return number


def lower_case(element: int) -> str:
    """How PopART writes a dtype in lower case, such as `"float32"`.

    Args:
        element: ONNX's number of it.
    """
    if element == onnx.TensorProto.STRING:
        return "string"
    return dtype_of(element).name


def checked_shape(shape: Any) -> list[int]:
    """A shape as whole numbers.

    Args:
        shape: Sizes of the axes.

    Raises:
        popart_exception: A size is negative or none at all.
    """
    try:
        sizes = [operator.index(size) for size in shape]
    except TypeError:
        raise popart_exception(
            f"`shape` is a list of whole numbers. Received: shape={shape!r}"
        ) from None
    if any(size < 0 for size in sizes):
        raise popart_exception(f"The sizes in a `shape` are not negative. Received: shape={sizes}")
    return sizes


def tensor_type(element: int, shape: Iterable[int | None] | None) -> onnx.TypeProto:
    """The type of a tensor.

    Args:
        element: ONNX's number of its dtype.
        shape: Sizes, `None` for one that is not known; `None` if not even their number is.
    """
    return onnx.helper.make_tensor_type_proto(element, None if shape is None else list(shape))


def type_of_array(array: np.ndarray) -> onnx.TypeProto:
    """The type of a tensor that has the value of an array.

    Args:
        array: The value.
    """
    return tensor_type(number_of(array.dtype), array.shape)


def shape_of(type_: onnx.TypeProto | None) -> list[int | None] | None:
    """The sizes of a tensor, `None` for one that is not known; `None` if not even their number is.

    Args:
        type_: Its type, as far as it is known.
    """
    if type_ is None or not type_.HasField("tensor_type"):
        return None
    if not type_.tensor_type.HasField("shape"):
        return None
    return [d.dim_value if d.HasField("dim_value") else None for d in type_.tensor_type.shape.dim]


def num_elements(type_: onnx.TypeProto | None) -> int | None:
    """How many elements a tensor has; `None` if that is not known.

    Args:
        type_: Its type, as far as it is known.
    """
    shape = shape_of(type_)
    sizes = [] if shape is None else [size for size in shape if size is not None]
    return math.prod(sizes) if shape is not None and len(sizes) == len(shape) else None


def is_complete(type_: onnx.TypeProto | None) -> bool:
    """Whether all of a type is known.

    Args:
        type_: As far as it is.
    """
    if type_ is not None and type_.HasField("sequence_type"):
        return True
    shape = shape_of(type_)
    return shape is not None and None not in shape


def words_of(type_: onnx.TypeProto | None) -> str:
    """A type as errors write it, such as `float32 (2, 3)`.

    Args:
        type_: As far as it is known.
    """
    if type_ is None or not type_.HasField("tensor_type"):
        return "unknown" if type_ is None else "sequence"
    shape = shape_of(type_)
    sizes = "" if shape is None else " " + str(tuple("?" if d is None else d for d in shape))
    return lower_case(type_.tensor_type.elem_type) + sizes.replace("'", "")
