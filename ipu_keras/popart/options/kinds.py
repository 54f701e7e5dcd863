"""Types of options' values, which are checked when they, or a part of them, are assigned."""

from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, MutableSet
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.settings.arguments import integer_in
from ipu_keras.settings.option import Constraint, one_of_texts


@dataclass(frozen=True)
class Kind:
    """The values that an option takes.

    Args:
        expected: How errors call them, such as "a bool".
        take: Returns what is kept of a given value; raises a `TypeError` without a text if it is
            of another type.
        constraint: A condition on values of the right type, if any.
    """

    expected: str
    take: Callable[[Any], Any]
    constraint: Constraint | None = None

    def taken(self, name: str, value: Any) -> Any:
        """Returns what is kept of a value.

        Raises a `TypeError` if it is of another type, and a `popart_exception` if it is out of
        range.
        """
        try:
            kept = self.take(value)
        except TypeError:
            raise TypeError(
                f"`{name}` must be {self.expected}. Received: {name}={value!r} of type "
                f"{type(value).__name__}"
            ) from None
        if self.constraint is not None and not self.constraint.holds(kept):
            raise popart_exception(
                f"`{name}` must be {self.constraint.expected}. Received: {name}={value!r}"
            )
        return kept


def _bool(value: Any) -> bool:
    if isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise TypeError


def _integer(value: Any) -> int:
    number = integer_in(value)
    if number is None:
        raise TypeError
    return number


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


BOOL = Kind("a bool", _bool)
NUMBER = Kind("a float", _number)
TEXT = Kind("a str", _text)
PART = Kind(
    "a float", _number, Constraint(lambda value: 0 <= value <= 1, "in the range from 0 to 1")
)


def integer(least: int) -> Kind:
    """Returns the kind of integers of 64 bits that are at least `least`."""
    return Kind(
        "an int",
        _integer,
        Constraint(lambda value: least <= value < 2**63, f"at least {least}, and less than 2**63"),
    )


def one_of(kind: type) -> Kind:
    """Returns the kind of an enumeration's members, or of objects of a class, which are copied."""

    def take(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError
        # Settings are values in PopART: to change what was assigned does not change the option.
        return value.copy() if hasattr(value, "copy") else value

    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    return Kind(f"{article} {kind.__name__}", take)


def choice(*texts: str) -> Kind:
    """Returns the kind of certain texts."""
    return Kind("a str", _text, one_of_texts(*texts))


def kind_of(default: Any) -> Kind:
    """Returns the kind of a default: integers are 0 or more; what items are has to be said."""
    kinds = {bool: BOOL, int: integer(0), float: NUMBER, str: TEXT}
    return kinds.get(type(default)) or one_of(type(default))


def list_of(item: Kind) -> Kind:
    """Returns the kind of lists whose items are of a kind."""
    return Kind(f"a list, each item {item.expected}", lambda value: CheckedList(item, _each(value)))


def set_of(item: Kind) -> Kind:
    """Returns the kind of sets whose items are of a kind."""
    return Kind(f"a set, each item {item.expected}", lambda value: CheckedSet(item, _each(value)))


def _each(value: Any) -> Iterable:
    # A text would be a list of its characters, a dictionary one of its keys.
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise TypeError
    return value


def dict_of(item: Kind) -> Kind:
    """Returns the kind of dictionaries from texts to values of a kind."""

    def take(value: Any) -> "CheckedDict":
        if not isinstance(value, Mapping):
            raise TypeError
        return CheckedDict(item, value)

    return Kind(f"a dict from str, each value {item.expected}", take)


class CheckedDict(UserDict):
    """A dictionary from texts whose values are checked."""

    def __init__(self, item: Kind, values: Mapping):
        self._item = item
        super().__init__(values)

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, str):
            raise TypeError(f"Keys must be str. Received: {key!r} of type {type(key).__name__}")
        super().__setitem__(key, self._item.taken(key, value))


class CheckedList(MutableSequence):
    """A list whose items are checked. It equals lists with the same items."""

    def __init__(self, item: Kind, values: Iterable):
        self._item = item
        self._values = [item.taken("item", value) for value in values]

    def __getitem__(self, index: Any) -> Any:
        return self._values[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            self._values[index] = CheckedList(self._item, value)
        else:
            self._values[index] = self._item.taken("item", value)

    def __delitem__(self, index: Any) -> None:
        del self._values[index]

    def __len__(self) -> int:
        return len(self._values)

    def insert(self, index: int, value: Any) -> None:
        """Inserts an item before an index."""
        self._values.insert(index, self._item.taken("item", value))

    def __eq__(self, other: object) -> bool:
        return self._values == (other._values if isinstance(other, CheckedList) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._values)


class CheckedSet(MutableSet):
    """A set whose items are checked. It equals sets with the same items."""

    def __init__(self, item: Kind, values: Iterable):
        self._item = item
        self._values = {item.taken("item", value) for value in values}

    def _from_iterable(self, values: Iterable) -> set:  # type: ignore[override]
        # The result of `|` and the like is a plain set, as it is no option.
        return set(values)

    def __contains__(self, value: Any) -> bool:
        return value in self._values

    def __iter__(self) -> Iterator:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: Any) -> None:
        """Adds an item."""
        self._values.add(self._item.taken("item", value))

    def discard(self, value: Any) -> None:
        """Removes an item if it is there."""
        self._values.discard(value)

    def __repr__(self) -> str:
        return repr(self._values)
