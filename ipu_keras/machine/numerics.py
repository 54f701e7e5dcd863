"""How a device computes with the numbers of an IPU."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ipu_keras.settings.enumerations import StochasticRoundingBehaviour


class FloatingPointException(enum.Enum):
    """What arithmetic may meet that stops an IPU, by the names of its flags."""

    INV = "invalid operation (INV)"
    DIV0 = "division by zero (DIV0)"
    OFLO = "overflow (OFLO)"


def families_in_halves(*, convolution: Mapping[str, Any], dot: Mapping[str, Any]) -> frozenset[str]:
    """Returns the families whose Poplar options ask for partial sums of halves.

    Example:

    >>> families_in_halves(convolution={"partialsType": "half"}, dot={})
    frozenset({'convolution'})
    """
    options = {"convolution": convolution, "dot": dot}
    return frozenset(name for name, own in options.items() if own.get("partialsType") == "half")


@dataclass(frozen=True)
class Numerics:
    """How a device computes with halves, and which exceptions stop it.

    Args:
        nanoo: Whether a half that overflows becomes NaN; else it becomes 65504, the largest.
        stops_at: The exceptions that stop an execution.
        rounding: When numbers are rounded to halves at random, where no scope says so.
        half_partials: The families of operations whose partial sums are halves, where no scope says
            what they are: `"convolution"` and `"dot"`.
    """

    nanoo: bool = False
    stops_at: frozenset[FloatingPointException] = frozenset()
    rounding: StochasticRoundingBehaviour = StochasticRoundingBehaviour.OFF
    half_partials: frozenset[str] = frozenset()

    def __str__(self) -> str:
        """Returns the options of an `IPUConfig` that say so.

        Example:

        >>> print(Numerics(nanoo=True, stops_at=frozenset({FloatingPointException.INV})))
        inv, nanoo
        """
        found = sorted(kind.name.lower() for kind in self.stops_at)
        if self.rounding is not StochasticRoundingBehaviour.OFF:
            found.append(f"esr {self.rounding.name}")
        found += ["nanoo"] * self.nanoo
        found += [f"half partials of {family}" for family in sorted(self.half_partials)]
        return ", ".join(found) or "no options"

    @property
    def shows_overflow(self) -> bool:
        """Whether halves that overflow are NaN on the host.

        They are where an overflow stops the execution as well: what comes after it is never
        seen, and a saturated half could not be told from any other.
        """
        return self.nanoo or FloatingPointException.OFLO in self.stops_at

    def of_replicas(self, num_replicas: int) -> "Numerics":
        """Returns what the replicas of a program do by themselves.

        Only a single one rounds at random where all replicas compute the same.

        Example:

        >>> alike = Numerics(rounding=StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY)
        >>> [alike.of_replicas(count).rounding.name for count in (1, 2)]
        ['ON', 'OFF']
        """
        if self.rounding is not StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY:
            return self
        behaviours = StochasticRoundingBehaviour
        return replace(self, rounding=behaviours.ON if num_replicas == 1 else behaviours.OFF)
