"""Turns values that users give into attributes of ONNX nodes, and back."""

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, numpy_helper

from ipu_keras.popart.exceptions import popart_exception


def _is_integer(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        # Scripts pass elements of arrays as numbers, which may be arrays of rank 0.
        return value.ndim == 0 and value.dtype.kind in "iub"
    # PopART's enumerations are no `int`, but have an index.
    return hasattr(value, "__index__") or isinstance(value, np.bool_)


def _is_number(value: Any) -> bool:
    is_array = isinstance(value, np.ndarray)
    return isinstance(value, numbers.Real | np.bool_) or (
        is_array and value.ndim == 0 and value.dtype.kind in "iubf"
    )


def _is_string(value: Any) -> bool:
    return isinstance(value, str)


def _several(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        if isinstance(value, np.ndarray):
            return value.ndim == 1 and all(of(each) for each in value)
        return isinstance(value, Sequence) and not _is_string(value) and all(map(of, value))

    return check


# By type: its name in errors, whether a value is one, and the value that is written.
_KINDS: dict[int, tuple[str, Callable[[Any], bool], Callable[[Any], Any]]] = {
    AttributeProto.INT: ("an integer", _is_integer, int),
    AttributeProto.FLOAT: ("a number", _is_number, float),
    AttributeProto.STRING: ("a string", _is_string, str),
    AttributeProto.INTS: (
        "a list of integers",
        _several(_is_integer),
        lambda value: [int(each) for each in value],
    ),
    AttributeProto.FLOATS: (
        "a list of numbers",
        _several(_is_number),
        lambda value: [float(each) for each in value],
    ),
    AttributeProto.STRINGS: ("a list of strings", _several(_is_string), list),
    AttributeProto.TENSOR: (
        "a NumPy array",
        lambda value: isinstance(value, np.ndarray | np.generic),
        lambda value: numpy_helper.from_array(np.array(value, order="C")),
    ),
    AttributeProto.GRAPH: (
        "a graph",
        lambda value: isinstance(value, onnx.GraphProto),
        lambda value: value,
    ),
}

# The types of a value that comes without one. The first that fits counts: an integer is no float,
# and an empty list is one of integers.
_GUESSES = (
    AttributeProto.INT,
    AttributeProto.FLOAT,
    AttributeProto.STRING,
    AttributeProto.INTS,
    AttributeProto.FLOATS,
    AttributeProto.STRINGS,
)

_FIELDS = {
    AttributeProto.INT: lambda attribute: attribute.i,
    AttributeProto.FLOAT: lambda attribute: attribute.f,
    AttributeProto.STRING: lambda attribute: attribute.s.decode(),
    AttributeProto.INTS: lambda attribute: list(attribute.ints),
    AttributeProto.FLOATS: lambda attribute: list(attribute.floats),
    AttributeProto.STRINGS: lambda attribute: [each.decode() for each in attribute.strings],
}


def attribute_of(name: str, value: Any, kind: int) -> AttributeProto:
    """Returns an attribute, whose value must fit a type such as `AttributeProto.INTS`."""
    words, is_one, written = _KINDS[kind]
    if not is_one(value):
        raise popart_exception(
            f"The attribute `{name}` is {words}. Received: {name}={value!r}, of type "
            f"{type(value).__name__}"
        )
    try:
        return onnx.helper.make_attribute(name, written(value), attr_type=kind)
    except ValueError as error:
        raise popart_exception(
            f"The attribute `{name}` has a value that no model can hold. Received: "
            f"{name}={value!r}. {error}"
        ) from error


def attribute_of_any(name: str, value: Any) -> AttributeProto:
    """Returns an attribute of the type that fits an integer, number, string, or list of these."""
    for kind in _GUESSES:
        if _KINDS[kind][1](value):
            return attribute_of(name, value, kind)
    raise popart_exception(
        f"The attribute `{name}` is an integer, a number or a string, or a list of one of these. "
        f"Received: {name}={value!r}, of type {type(value).__name__}"
    )


def value_of(attribute: AttributeProto, kind: int) -> Any:
    """Returns the value of an attribute, which has to be of the type `kind`."""
    if attribute.type != kind:
        found = AttributeProto.AttributeType.Name(attribute.type)
        raise popart_exception(
            f"The attribute {attribute.name!r} is not {_KINDS[kind][0]}, but of type {found}: ask "
            "for it by the method of that type."
        )
    return _FIELDS[kind](attribute)
