"""What is known of an expression without computing it."""

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import CodeType
from typing import Any

import keras
import tensorflow as tf

from ipu_keras.keras.extensions.model_extension import ModelExtension


@dataclass(frozen=True)
class Known:
    """A module, class, function or constant that exists."""

    value: Any


@dataclass(eq=False)
class UserClass:
    """A class that the script defines.

    Args:
        bases: What is known of its bases, in order.
        methods: What is known of the names that its body defines.
        attributes: What is known of `self.name`, as far as methods have set it.
        is_open: Whether it may have further attributes, from an unknown base or decorator.
    """

    name: str
    bases: tuple[Any, ...]
    methods: dict[str, Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    is_open: bool = False
    _below: tuple["UserClass", ...] = field(init=False)

    def __post_init__(self) -> None:
        own = [base for base in self.bases if isinstance(base, UserClass)]
        found = dict.fromkeys(one for base in own for one in (base, *base._below))
        self._below = tuple(found)[:_MOST_BASES]
        self.is_open |= any(base is UNKNOWN for base in self.bases)
        self.is_open |= any(base.is_open for base in own)
        #: The first class of a library that it is made of.
        self.library_base: type | None = next(filter(None, map(_library_class, self.bases)), None)

    def defines(self, name: str) -> bool:
        """Whether it, or a class of the script among its bases, has a method or attribute."""
        return any(name in one.methods or name in one.attributes for one in (self, *self._below))


def _library_class(base: Any) -> type | None:
    if isinstance(base, UserClass):
        return base.library_base
    is_class = isinstance(base, Known) and isinstance(base.value, type)
    return base.value if is_class else None


@dataclass(frozen=True)
class Instance:
    """An object of a class, of which nothing else is known.

    Args:
        kind: The class, of a library or of the script.
        is_exact: Whether it is of this very class, and not of one derived from it.
    """

    kind: type | UserClass
    is_exact: bool = False

    @property
    def library_kind(self) -> type | None:
        """The class of a library that says what the object can do."""
        return self.kind.library_base if isinstance(self.kind, UserClass) else self.kind


@dataclass(frozen=True)
class Symbolic:
    """A tensor of Keras that has no value: the output of a layer of a functional model."""


@dataclass(frozen=True)
class Options:
    """An `IPUConfig`, or a category of one; `path` has the names from the root, with dots."""

    path: str = ""


@dataclass(frozen=True)
class Several:
    """A tuple or list, as `several` makes it.

    Args:
        members: What is known of each member.
        has_symbolic: Whether one of them is a tensor of Keras without a value.
        levels: How deep tuples are nested, from 1.
    """

    members: tuple[Any, ...]
    has_symbolic: bool
    levels: int


@dataclass(eq=False)
class ScriptFunction:
    """A function that the script defines.

    Args:
        node: The definition of the function.
        scope: The scope with the names that it sees.
        follow: Says what a call of it gives; takes the function, and what is given by place and
            by name.
        owner: The class whose method it is, if it is one.
    """

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Any
    follow: Callable[["ScriptFunction", list[Any], dict[str, Any]], Any]
    owner: UserClass | None = None


@dataclass(eq=False)
class UserModule:
    """A module that lies beside the script, with its names."""

    scope: Any


# The most bases of the script's own, and levels of tuples, that are looked through, so that the
# time of reading is linear in the length of a script.
_MOST_BASES, _MOST_LEVELS = 64, 4

# A script with one of these may give objects attributes under names that it computes.
_MAKING_NAMES = frozenset({"__dict__", "__getattr__", "__getattribute__", "setattr", "vars"})

# Attributes of properties and class methods that hold their functions.
_PARTS = ("fget", "fset", "__func__")

# Nothing is known, or different things are, depending on what the script does.
UNKNOWN = None

# What is known of attributes that Keras gives to instances, which classes do not show.
_ATTRIBUTES: Mapping[tuple[type, str], Any] = {
    (keras.Model, "optimizer"): Instance(keras.optimizers.Optimizer),
    (keras.callbacks.Callback, "model"): Instance(keras.Model),
    (keras.layers.Layer, "output"): Symbolic(),
    (keras.layers.Layer, "input"): Symbolic(),
}


def several(members: Sequence[Any]) -> Any:
    """Returns what is known of a tuple or list; nothing if it is nested too deeply."""
    inner = [one.levels for one in members if isinstance(one, Several)]
    levels = 1 + max(inner, default=0)
    if levels > _MOST_LEVELS:
        return UNKNOWN
    has_symbolic = any(isinstance(one, Symbolic) for one in members)
    return Several(tuple(members), has_symbolic, levels)


def is_symbolic(value: Any) -> bool:
    """Whether a value is a tensor of Keras without a value, or a tuple or list that has one."""
    return value.has_symbolic if isinstance(value, Several) else isinstance(value, Symbolic)


def kinds(value: Any) -> Iterator[type]:
    """Yields the classes of libraries that a value is an instance of."""
    if isinstance(value, Symbolic):
        yield keras.KerasTensor
    elif isinstance(value, Instance) and value.library_kind is not None:
        yield value.library_kind
        if issubclass(value.library_kind, keras.Model):
            # Models that are made in a strategy's scope are both.
            yield ModelExtension


def is_a(value: Any, kind: type) -> bool:
    """Whether a value is an instance of a class of a library."""
    return any(issubclass(one, kind) for one in kinds(value))


def attribute_of_instance(value: Any, name: str) -> Any:
    """Returns what is known of an attribute of an instance."""
    if isinstance(value, Instance) and isinstance(value.kind, UserClass):
        if name in value.kind.attributes:
            return value.kind.attributes[name]
        if name in value.kind.methods:
            return value.kind.methods[name]
    for (kind, attribute), found in _ATTRIBUTES.items():
        if attribute == name and is_a(value, kind):
            return found
    for kind in kinds(value):
        method = getattr(kind, name, None)
        if callable(method):
            return Known(method)
    return UNKNOWN


def missing_attribute(value: Any, name: str) -> AttributeError | None:
    """Returns the error for an attribute that no class of an instance has, or `None`."""
    if isinstance(value, Instance) and isinstance(value.kind, UserClass):
        if value.kind.defines(name):
            return None
        shown = value.kind.name
    else:
        shown = next((kind.__name__ for kind in kinds(value)), "")
    found = [kind for kind in kinds(value) if _is_looked_into(kind, name)]
    if not found or any(hasattr(kind, name) for kind in kinds(value)):
        return None
    # Instances have attributes that classes do not show. Whether this one is an error is known only
    # if Keras 2 had it, which `advice` tells by the kind of the object.
    of_kind = None if inspect.isabstract(found[0]) else object.__new__(found[0])
    return AttributeError(f"{shown!r} object has no attribute {name!r}", name=name, obj=of_kind)


def _is_looked_into(kind: type, name: str) -> bool:
    """Whether something is known of what objects of a class had before."""
    if issubclass(kind, tf.data.Dataset):
        return hasattr(tf.compat.v1.data.Dataset, name)
    return kind.__module__.startswith("keras.")


def is_nowhere(value: Any, name: str) -> bool:
    """Whether no instance of a class has an attribute, as none of its methods mentions the name."""
    if not isinstance(value, Instance) or not value.is_exact:
        return False
    if isinstance(value.kind, UserClass) and value.kind.is_open:
        return False
    if is_a(value, tf.data.Dataset):
        return True  # `missing_attribute` knows what they had
    return not any(name in _mentioned_by(kind) for kind in kinds(value))


@cache
def _mentioned_by(kind: type) -> frozenset[str]:
    """Returns the names in the code of a class, its bases and the classes that it may turn into."""
    found: set[str] = set()
    made: list[type] = [kind]
    for one in made:
        # `keras.Model` makes a `Functional`, for instance.
        made += filter(_is_of_library, one.__subclasses__())
    for one in dict.fromkeys(base for each in made for base in each.__mro__):
        for member in vars(one).values():
            for function in (member, *(getattr(member, part, None) for part in _PARTS)):
                code = getattr(inspect.unwrap(function) if callable(function) else 0, "__code__", 0)
                if isinstance(code, CodeType):
                    found |= set(_names_in(code))
    return frozenset(found)


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
        elif isinstance(constant, str):
            yield constant


def _is_of_library(kind: type) -> bool:
    return kind.__module__.startswith(("keras.", "ipu_keras.", "ipu_addons.", "tensorflow."))


def makes_names(text: str) -> bool:
    """Whether a name in a script says that attributes may be made that nobody sees in it."""
    return text in _MAKING_NAMES
