"""Makes traces again if the device has other replicas than it was taken to have."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.variable_scopes import VariableNames

_again: ContextVar[bool] = ContextVar("traced_again", default=False)


def is_traced_again() -> bool:
    """Whether what is being traced takes the place of an earlier trace."""
    return _again.get()


@contextlib.contextmanager
def traced_again() -> Iterator[None]:
    """While this is open, what is traced takes the place of an earlier trace."""
    token = _again.set(True)
    try:
        yield
    finally:
        _again.reset(token)


class Traces:
    """The traces of a function that makes variables; all use those that the first one made.

    The object is made where the function is traced first, in the graph of a session.
    """

    def __init__(self) -> None:
        self._names = VariableNames.now()
        self._made: list[Any] = []

    @contextlib.contextmanager
    def first(self) -> Iterator[None]:
        with tf.variable_creator_scope(self._made_now):
            yield

    @contextlib.contextmanager
    def again(self, *, may_make_more: bool = False) -> Iterator[None]:
        """While this is open, the function is traced again, and gets the variables that it made.

        With `may_make_more` it may make others too, as no trace has come to its end; else a
        `RuntimeError` says that it does.
        """
        left = list(self._made)

        def same(create: Callable[..., Any], **options: Any) -> Any:
            found = _alike(left, options.get("name"))
            # A variable in no collection, such as the copy of a replica, may be new: no script
            # lists or initializes it.
            if found is None and options.get("collections") == []:
                return create(**options)
            if found is None and not left and may_make_more:
                return create(**options)
            if found is None and not left:
                raise RuntimeError(
                    "A computation that is traced again for the replicas of its device makes "
                    "variables that it has not made before. Configure the system before "
                    f"`ipu_compiler.compile`. Received: the variable {options.get('name')!r}"
                )
            found = left[0] if found is None else found
            left[:] = [one for one in left if one is not found]
            return found

        with traced_again(), self._names.again(), tf.variable_creator_scope(same):
            yield

    def _made_now(self, create: Callable[..., Any], **options: Any) -> Any:
        variable = create(**options)
        self._made.append(variable)
        return variable


def _alike(variables: Sequence[Any], name: str | None) -> Any:
    """Returns the first variable with a name; `None` if there is none."""
    # A variable may be made with the name of a scope, which ends with a slash.
    last = f"/{(name or '').rstrip('/')}"
    found = (one for one in variables if name and f"/{one.op.name}".endswith(last))
    return next(found, None)
