"""The budget that `@pytest.mark.ipu_fits` gives a program, checked without TensorFlow."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

# Copied from `ipu_keras.machine.target`, whose import takes seconds; a test compares the two.
TARGETS = ("gc2", "gc200", "bow", "c600")
MOST_IPUS = 16


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a program may cost, and on which hardware.

    Args:
        target: The hardware, `"gc2"`, `"gc200"`, `"bow"` or `"c600"`.
        num_ipus: The most IPUs that it may take, 1 to 16.
        max_cycles: The most cycles of a step; `None` for any number.
        max_tile_memory: The largest share of a tile's memory that may be in use on the fullest
            tile, above 0, at most 1.

    Raises:
        TypeError: A value is of another type.
        ValueError: A value is out of its range.

    Example:

    >>> Budget(max_cycles=1000)
    Budget(target='gc200', num_ipus=1, max_cycles=1000, max_tile_memory=1.0)
    """

    target: str = "gc200"
    num_ipus: int = 1
    max_cycles: int | None = None
    max_tile_memory: float = 1.0

    def __post_init__(self) -> None:
        _require(self.target in TARGETS, f"one of {', '.join(TARGETS)}", target=self.target)
        _require_integer("num_ipus", self.num_ipus, MOST_IPUS)
        if self.max_cycles is not None:
            _require_integer("max_cycles", self.max_cycles, None)
        share, expected = self.max_tile_memory, "a share of a tile's memory, above 0 and at most 1"
        if isinstance(share, bool) or not isinstance(share, int | float):
            raise TypeError(f"`max_tile_memory` must be {expected}. {_received(share)}")
        _require(0 < share <= 1, expected, max_tile_memory=share)

    def __str__(self) -> str:
        """Writes the marker that gives this budget, without defaults."""
        given = (
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) != field.default
        )
        return f"ipu_fits({', '.join(given)})"


def budget_of(positional: tuple[Any, ...], named: Mapping[str, Any]) -> Budget:
    """Makes the budget of a marker's arguments, all of which must be named.

    Example:

    >>> budget_of((), {"max_cycle": 1000})
    Traceback (most recent call last):
    TypeError: `ipu_fits` has no argument `max_cycle`. Did you mean `max_cycles`? It takes target, \
num_ipus, max_cycles, max_tile_memory
    """
    known = [field.name for field in fields(Budget)]
    if positional:
        raise TypeError(
            f"`ipu_fits` takes named arguments only: {', '.join(known)}. Received: "
            f"{', '.join(map(repr, positional))}"
        )
    for name in named:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean `{close[0]}`?" if close else ""
            raise TypeError(
                f"`ipu_fits` has no argument `{name}`.{hint} It takes {', '.join(known)}"
            )
    return Budget(**named)


def _require(holds: bool, expected: str, **received: Any) -> None:
    [(name, value)] = received.items()
    if not holds:
        raise ValueError(f"`{name}` must be {expected}. Received: {name}={value!r}")


def _require_integer(name: str, value: Any, most: int | None) -> None:
    limit = "" if most is None else f", at most {most}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"`{name}` must be a positive integer{limit}. {_received(value)}")
    within = value >= 1 and (most is None or value <= most)
    _require(within, f"a positive integer{limit}", **{name: value})


def _received(value: Any) -> str:
    return f"Received: {value!r} of type {type(value).__name__}"
