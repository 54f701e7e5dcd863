"""Calls of Keras's methods as dictionaries of their arguments."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Arguments:
    """The signature of a method of a model, kept because to inspect it takes as long as a look
    at the data.

    Example:

    >>> arguments = Arguments(lambda self, x, y=None: None)
    >>> arguments.bound(None, [1], {})
    {'x': 1, 'y': None}
    """

    def __init__(self, method: Callable):
        self._signature = inspect.signature(method)

    def bound(self, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of a call by name, defaults included."""
        bound = self._signature.bind(model, *args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        arguments.pop("self")
        arguments.update(arguments.pop("kwargs", {}))
        return arguments
