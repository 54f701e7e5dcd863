"""Checks arguments that turn something on or off."""

from typing import Any

import numpy as np


def checked_switch(argument: str, value: Any) -> bool:
    """Returns a truth value of Python or NumPy as a bool, or raises a `TypeError`.

    Other values, such as the text `"False"`, would be truth values that nobody meant.

    Example:

    >>> checked_switch("asynchronous", True)
    True
    """
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"`{argument}` must be True or False. Received: {argument}={value!r}")
    return bool(value)
