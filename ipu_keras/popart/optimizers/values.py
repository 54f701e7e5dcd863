"""Values of hyper-parameters, which are constant or change while a session lives."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np


class OptimizerValue:
    """A value of a hyper-parameter, rounded to float32 as IPUs have it.

    Args:
        val: It; or a tuple of it and of whether it is constant.
        isConst: Whether it is a part of the program, and stays what it is.

    Raises:
        TypeError: The value is not a number, or what says whether it is constant not a bool.

    Example:

    >>> value = OptimizerValue((0.5, False))
    >>> value.val(), value.isConst()
    (0.5, False)
    """

    def __init__(self, val: Any = 0.0, isConst: bool = True):
        if isinstance(val, tuple | list):
            if len(val) != 2:
                raise TypeError(_wrong(val))
            val, isConst = val
        if isinstance(val, bool | np.bool_) or not isinstance(val, int | float | np.number):
            raise TypeError(_wrong(val))
        if not isinstance(isConst, bool | np.bool_):
            raise TypeError(_wrong((val, isConst)))
        with np.errstate(over="ignore"):
            self._val = float(np.float32(val))
        self._is_const = bool(isConst)

    def val(self) -> float:
        """The value."""
        return self._val

    def isConst(self) -> bool:
        """Whether it stays what it is."""
        return self._is_const

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OptimizerValue):
            return NotImplemented
        return (self._val, self._is_const) == (other._val, other._is_const)

    def __hash__(self) -> int:
        return hash((self._val, self._is_const))

    def __str__(self) -> str:
        return f"{np.float32(self._val)!s} ({'const' if self._is_const else 'non-const'})"

    def __repr__(self) -> str:
        return f"OptimizerValue({np.float32(self._val)!s}, {self._is_const})"


class OptimizerValueMap:
    """The values of one hyper-parameter: the default, and those of some weights.

    Args:
        default: Of all other weights.
        specific: By names of weights.

    Example:

    >>> values = OptimizerValueMap(OptimizerValue(0.5), {"w": OptimizerValue(0.25)})
    >>> values.getDefault(), values.get("w"), values.get("b")
    (OptimizerValue(0.5, True), OptimizerValue(0.25, True), OptimizerValue(0.5, True))
    """

    def __init__(
        self, default: OptimizerValue, specific: Mapping[str, OptimizerValue] = MappingProxyType({})
    ):
        self._default = default
        self._specific = MappingProxyType(dict(specific))

    @property
    def specific(self) -> Mapping[str, OptimizerValue]:
        """The values of weights that have their own."""
        return self._specific

    def getDefault(self) -> OptimizerValue:
        """The value of weights that have none of their own."""
        return self._default

    def get(self, name: str) -> OptimizerValue:
        """The value of a weight.

        Args:
            name: Of the weight.
        """
        return self._specific.get(name, self._default)

    def with_specific(self, name: str, value: OptimizerValue) -> "OptimizerValueMap":
        """These values, with one of a weight's own.

        Args:
            name: Of the weight.
            value: Its value.
        """
        return OptimizerValueMap(self._default, {**self._specific, name: value})

    def __repr__(self) -> str:
        return f"OptimizerValueMap({self._default!r}, {dict(self._specific)!r})"


def _wrong(value: Any) -> str:
    return (
        "A value of an optimizer is a number and whether it is constant, such as (0.1, False). "
        f"Received: {value!r}"
    )
