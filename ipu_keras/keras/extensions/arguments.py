"""The arguments of calls of Keras's methods, by name."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Arguments:
    """What a method of a model takes.

    Args:
        method: The method; to look at its signature takes as long as to look at the data.

    Example:

    >>> arguments = Arguments(lambda self, x, y=None: None)
    >>> arguments.bound(None, [1], {})
    {'x': 1, 'y': None}
    """

    def __init__(self, method: Callable):
        self._signature = inspect.signature(method)

    def bound(self, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, defaults included.

        Args:
            model: What the method is called of.
            args: Positional arguments.
            kwargs: Named arguments.

        Raises:
            TypeError: The method does not take these.
        """
        bound = self._signature.bind(model, *args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        arguments.pop("self")
        arguments.update(arguments.pop("kwargs", {}))
        return arguments
