"""Values of hyper-parameters, which are constant or may change while a session lives."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np


class OptimizerValue:
    """A value of a hyper-parameter, rounded to float32 as IPUs have it.

    Args:
        val: The value; or a tuple of the value and of whether it is constant.
        isConst: Whether the value is part of the program, and never changes. Defaults to `True`.

    Raises:
        TypeError: The value is not a number, or `isConst` is not a bool.

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
        """Returns the value as a Python float."""
        return self._val

    def isConst(self) -> bool:
        """Whether the value never changes."""
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
        default: The value of weights that have none of their own.
        specific: The values of single weights by name. Defaults to none.

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
        """The values of single weights by name."""
        return self._specific

    def getDefault(self) -> OptimizerValue:
        """Returns the value of weights that have none of their own."""
        return self._default

    def get(self, name: str) -> OptimizerValue:
        """Returns the value of a weight.

        Args:
            name: The name of the weight.
        """
        return self._specific.get(name, self._default)

    def with_specific(self, name: str, value: OptimizerValue) -> "OptimizerValueMap":
        """Returns these values with another one for the weight `name`."""
        return OptimizerValueMap(self._default, {**self._specific, name: value})

    def __repr__(self) -> str:
        return f"OptimizerValueMap({self._default!r}, {dict(self._specific)!r})"


def _wrong(value: Any) -> str:
    return (
        "A value of an optimizer is a number and whether it is constant, such as (0.1, False). "
        f"Received: {value!r}"
    )
