"""What users turn on or off."""

from typing import Any

import numpy as np


def checked_switch(argument: str, value: Any) -> bool:
    """Checks a switch.

    Args:
        argument: What it was given as, for the error.
        value: A truth value of Python or NumPy. Others, such as the text `"False"`, would count
            as one that nobody meant.

    Raises:
        TypeError: It is none.

    Example:

    >>> checked_switch("asynchronous", True)
    True
    """
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"`{argument}` must be True or False. Received: {argument}={value!r}")
    return bool(value)
