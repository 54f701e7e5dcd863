"""Notes on errors that say which arguments a method of a model was given."""

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from ipu_keras.ops.argument_checks import received

_Method = TypeVar("_Method", bound=Callable)


def notes_arguments(
    of: Callable | None = None, advice: Callable[..., str | None] | None = None
) -> Callable[[_Method], _Method]:
    """Makes a method add what it was given to its errors, most of which are Keras's own.

    Keras says what a layer did not take, and not which argument that came from. Type and text of
    an error stay as they are, because scripts and tests match them: Python prints notes after
    them. `of` is the method of Keras whose signature names the arguments; `None` means the
    decorated one. `advice` takes the object, the method's name and the arguments by name, and says
    what to write.

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
                given = _given(error, signature, args, kwargs)
                if given is not None:
                    shown = ", ".join(_shown(*argument) for argument in given.items())
                    error.add_note(f"Arguments of `{method.__name__}`: {shown}")
                    if advice is not None:
                        _add_advice(error, lambda: advice(args[0], method.__name__, given))
                raise

        return noting

    return decorate


def _given(error: Exception, signature: inspect.Signature, args, kwargs) -> dict | None:
    """Returns the arguments to name; `None` if the error has been given them, or some are wrong."""
    # Methods call each other, as `fit` calls `evaluate`; the innermost was given what is wrong.
    if any(note.startswith("Arguments of `") for note in getattr(error, "__notes__", ())):
        return None
    try:
        first, *_ = given = signature.bind(*args, **kwargs).arguments
    except TypeError:  # the error itself says that there is no such argument
        return None
    return {name: value for name, value in given.items() if name != first}


def _add_advice(error: Exception, advice: Callable[[], str | None]) -> None:
    # It looks at objects of the user's, which must not hide the error by one of their own.
    with contextlib.suppress(Exception):
        note = advice()
        if note:
            error.add_note(note)


def _shown(name: str, value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        return received(name, value)
    return f"{name} of shape {tuple(shape)} and type {getattr(dtype, 'name', dtype)}"
