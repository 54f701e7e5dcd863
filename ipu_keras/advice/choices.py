"""Finds which of several choices for a step is the smallest that fits."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar


class Modelled(Protocol):
    """A step under one combination of choices."""

    @property
    def num_ipus(self) -> int:
        """IPUs of all replicas."""

    @property
    def fits(self) -> bool:
        """Whether it fits into the memory of every tile of every IPU."""

    @property
    def samples_per_second(self) -> float | None:
        """Samples of all replicas by time; `None` if the step takes no time."""


T = TypeVar("T", bound=Modelled)


def combinations(choices: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Returns each value of a choice with each value of the others; the last changes first.

    Example:

    >>> combinations({"target": ["gc200", "bow"], "num_ipus": [1, 2]})[:2]
    [{'target': 'gc200', 'num_ipus': 1}, {'target': 'gc200', 'num_ipus': 2}]
    """
    return [
        dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())
    ]


def smallest_that_fits(steps: Iterable[T]) -> T | None:
    """Returns the fitting step with the fewest IPUs and, of these, the least time per sample.

    Of equal ones, the first counts; `None` if none fits.
    """

    def size_and_time(step: T) -> tuple[int, float]:
        return step.num_ipus, -(step.samples_per_second or math.inf)

    return min((step for step in steps if step.fits), key=size_and_time, default=None)
