"""Translates types of tensors between PopART's names, NumPy's types and ONNX's messages."""

import math
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.data_types import NUMBERS, dtype_of, number_of


def element_type(name: str) -> int:
    """Returns ONNX's number of a dtype that PopART names, such as `"FLOAT16"`."""
    number = NUMBERS.get(name)
    if number is None:
        raise popart_exception(f"Unknown dtype {name!r}. It is one of {', '.join(NUMBERS)}.")
    return number


def lower_case(element: int) -> str:
    """Returns PopART's lower-case name of ONNX's number of a dtype, such as `"float32"`."""
    if element == onnx.TensorProto.STRING:
        return "string"
    return dtype_of(element).name


def checked_shape(shape: Any) -> list[int]:
    """Returns the sizes of a shape, or raises a `popart_exception` if one is no size."""
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
    """Makes the type of a tensor; unknown sizes are `None`, and so is a shape of unknown rank."""
    return onnx.helper.make_tensor_type_proto(element, None if shape is None else list(shape))


def type_of_array(array: np.ndarray) -> onnx.TypeProto:
    return tensor_type(number_of(array.dtype), array.shape)


def shape_of(type_: onnx.TypeProto | None) -> list[int | None] | None:
    """Returns the sizes in a type, `None` for unknown ones; `None` if the rank is unknown."""
    if type_ is None or not type_.HasField("tensor_type"):
        return None
    if not type_.tensor_type.HasField("shape"):
        return None
    return [d.dim_value if d.HasField("dim_value") else None for d in type_.tensor_type.shape.dim]


def num_elements(type_: onnx.TypeProto | None) -> int | None:
    """Returns how many elements a tensor of a type has; `None` if that is not known."""
    shape = shape_of(type_)
    sizes = [] if shape is None else [size for size in shape if size is not None]
    return math.prod(sizes) if shape is not None and len(sizes) == len(shape) else None


def is_complete(type_: onnx.TypeProto | None) -> bool:
    """Whether all of a type is known; sequences count as complete, as they have no sizes."""
    if type_ is not None and type_.HasField("sequence_type"):
        return True
    shape = shape_of(type_)
    return shape is not None and None not in shape


def words_of(type_: onnx.TypeProto | None) -> str:
    """Formats a type for errors, such as `float32 (2, 3)`."""
    if type_ is None or not type_.HasField("tensor_type"):
        return "unknown" if type_ is None else "sequence"
    shape = shape_of(type_)
    sizes = "" if shape is None else " " + str(tuple("?" if d is None else d for d in shape))
    return lower_case(type_.tensor_type.elem_type) + sizes.replace("'", "")
