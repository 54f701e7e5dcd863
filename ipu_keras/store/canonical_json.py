"""Frozen values as JSON and back: equal values give equal text, in any process.

Dataclasses become objects of their fields, tuples become lists, enumerations their values, and
mappings whose keys are no texts lists of pairs. The text does not name types: the reader knows
them. Unlike a pickle, it can hold nothing that runs.
"""

import dataclasses
import enum
import functools
import hashlib
import json
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

# The types that JSON gives for an annotation. Floats without a fraction may be integers there.
_SCALARS: Mapping[Any, tuple[type, ...]] = {
    bool: (bool,),
    int: (int,),
    float: (float, int),
    str: (str,),
    types.NoneType: (types.NoneType,),
}

# Makes a value from what `json` read.
_Reader = Callable[[Any], Any]


def to_json(value: Any) -> str:
    """Returns the JSON of a value, without spaces.

    It may have dataclasses, tuples, mappings, enumerations, NumPy arrays and scalars, texts,
    numbers, truth values and `None`; anything else is a `TypeError`.

    Example:

    >>> from ipu_keras.ir import TensorSpec
    >>> to_json(TensorSpec((2, 3), "float32"))
    '{"shape":[2,3],"dtype":"float32"}'
    """
    return json.dumps(_with_text_keys(value), default=_plain, separators=(",", ":"))


def from_json(kind: type[T], text: str) -> T:
    """Returns the value of a type that `to_json` made a text of.

    Annotations say what is in it. Where they say `Any`, lists become tuples.

    Raises:
        TypeError: An annotation has a type that `to_json` does not take, or the text is of
            another type.
        ValueError: The text is no JSON, or a value in it does not fit its type.

    Example:

    >>> from ipu_keras.ir import TensorSpec
    >>> from_json(TensorSpec, '{"shape":[2,3],"dtype":"float32"}')
    TensorSpec(shape=(2, 3), dtype='float32')
    """
    return _reader(typing.cast(Any, kind))(json.loads(text))


def digest(text: str) -> str:
    """Returns the SHA-256 of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _with_text_keys(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return _with_text_keys(dict(value))
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.name, "values": value.tolist()}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(
        "Only dataclasses, tuples, mappings, enumerations, arrays, texts and numbers have a "
        f"canonical JSON. Received: {value!r} of type {type(value).__name__}"
    )


@functools.cache  # a graph is thousands of values of a few types
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(typing.cast(Any, kind)))


def _with_text_keys(value: Any) -> Any:
    """Replaces a mapping whose keys are no texts by its pairs, as JSON has text keys only."""
    if not isinstance(value, dict | types.MappingProxyType):
        return value
    if all(type(key) is str for key in value):
        return dict(value)
    return [[key, _with_text_keys(member)] for key, member in value.items()]


@functools.cache
def _reader(kind: Any) -> _Reader:
    if kind is Any:
        return _tuples
    if kind in _SCALARS:
        return _scalar_reader(_SCALARS[kind])
    origin, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin is np.ndarray:
        return _array
    if origin in (typing.Union, types.UnionType):
        return _optional_reader(kind, arguments)
    if origin is tuple:
        return _tuple_reader(arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping_reader(*arguments)
    if isinstance(origin, type) and issubclass(origin, enum.Enum):
        return _enum_reader(origin)
    if dataclasses.is_dataclass(origin):
        return _dataclass_reader(origin)
    raise TypeError(f"Values of this type cannot be read from JSON. Received: {kind!r}")


def _scalar_reader(kinds: tuple[type, ...]) -> _Reader:
    def scalar(plain):
        # Types are compared exactly, since a bool is an int for `isinstance`.
        if type(plain) not in kinds:
            raise TypeError(f"Not of type {kinds[0].__name__}. Received: {plain!r:.100}")
        if type(plain) is int and not -(2**63) <= plain < 2**63:
            raise ValueError(f"Not a number of 64 bits. Received: {plain!r:.100}")
        return plain

    return scalar


def _enum_reader(kind: type[enum.Enum]) -> _Reader:
    def member(plain):
        found = kind(plain)
        if type(found.value) is not type(plain):
            raise ValueError(f"No value of {kind.__name__}. Received: {plain!r:.100}")
        return found

    return member


def _array(plain: Any) -> np.ndarray:
    values, dtype = _fields(plain, ("dtype", "values"))["values"], np.dtype(plain["dtype"])
    if dtype.kind not in "biuf":
        raise ValueError(f"Not a type of numbers. Received: {plain['dtype']!r:.100}")
    array = np.asarray(values, dtype)
    # NumPy would silently parse texts as numbers, and drop fractions for integer types.
    if not np.array_equal(array, np.asarray(values), equal_nan=dtype.kind == "f"):
        raise ValueError(f"Not numbers of type {dtype.name}. Received: {values!r:.100}")
    return array


def _fields(plain: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Returns an object of JSON that has exactly these members, or raises."""
    if type(plain) is not dict or plain.keys() != set(names):
        raise TypeError(f"Not an object of {', '.join(names)}. Received: {plain!r:.100}")
    return plain


def _list(plain: Any) -> list:
    """Returns a list of JSON, or raises if it is none."""
    if type(plain) is not list:
        raise TypeError(f"Not a list. Received: {plain!r:.100}")
    return plain


def _tuples(plain: Any) -> Any:
    if isinstance(plain, list):
        return tuple(map(_tuples, plain))
    if isinstance(plain, dict):
        return {name: _tuples(member) for name, member in plain.items()}
    return plain


def _optional_reader(kind: Any, arguments: tuple) -> _Reader:
    others = [argument for argument in arguments if argument is not types.NoneType]
    if len(others) != 1:
        raise TypeError(f"JSON does not say which type of several it is. Received: {kind!r}")
    read = _reader(others[0])
    return lambda plain: None if plain is None else read(plain)


def _tuple_reader(arguments: tuple) -> _Reader:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        read = _reader(arguments[0])
        return lambda plain: tuple(map(read, _list(plain)))
    readers = tuple(map(_reader, arguments))
    return lambda plain: tuple(
        read(member) for read, member in zip(readers, _list(plain), strict=True)
    )


def _mapping_reader(key: Any, member: Any) -> _Reader:
    read_key, read = _reader(key), _reader(member)

    def mapping(plain):
        pairs = plain.items() if isinstance(plain, dict) else _list(plain)
        return {read_key(name): read(value) for name, value in pairs}

    return mapping


def _dataclass_reader(kind: Any) -> _Reader:
    @functools.cache
    # Made when first used, as a class may have members of its own type.
    def readers() -> dict[str, _Reader]:
        hints = typing.get_type_hints(kind)
        return {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}

    def read(plain):
        members = _fields(plain, _names(kind))
        return kind(**{name: reader(members[name]) for name, reader in readers().items()})

    return read
