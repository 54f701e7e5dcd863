"""How a device computes with the numbers of an IPU."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Numerics:
    """How a device computes with halves.

    Args:
        nanoo: Whether a half that overflows becomes NaN; else it becomes 65504, the largest.
    """

    nanoo: bool = False
