"""What a method of a model was given, as a note of the errors that it raises."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from ipu_keras.ops.argument_checks import received

_Method = TypeVar("_Method", bound=Callable)


def notes_arguments(of: Callable | None = None) -> Callable[[_Method], _Method]:
    """Makes a method add what it was given to its errors, most of which are Keras's own.

    Keras says what a layer did not take, and not which argument that came from. Type and text of
    an error stay as they are: Python prints notes after them.

    Args:
        of: Keras's method, whose arguments it takes; `None` if it has arguments of its own.

    Example:

    >>> @notes_arguments(lambda self, x, y=None: None)
    ... def train(self, x, y=None):
    ...     raise ValueError("Expected shape (None, 3).")
    >>> try:
    ...     train(None, [1, 2])
    ... except ValueError as error:
    ...     print(error.__notes__)
    ['Arguments of `train`: x=[1, 2]']
    """

    def decorate(method):
        signature = inspect.signature(method if of is None else of)

        @functools.wraps(method)
        def noting(*args, **kwargs):
            try:
                return method(*args, **kwargs)
            except Exception as error:
                _add_note(error, f"Arguments of `{method.__name__}`: ", signature, args, kwargs)
                raise

        return noting

    return decorate


def _add_note(error: Exception, title: str, signature: inspect.Signature, args, kwargs) -> None:
    # Of methods that call each other, the innermost says what was wrong.
    if any(note.startswith("Arguments of `") for note in getattr(error, "__notes__", ())):
        return
    try:
        _, *given = signature.bind(*args, **kwargs).arguments.items()
    except TypeError:  # an argument that there is none of, which the error says
        return
    error.add_note(title + ", ".join(_shown(*argument) for argument in given))


def _shown(name: str, value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        return received(name, value)
    return f"{name} of shape {tuple(shape)} and type {getattr(dtype, 'name', dtype)}"
