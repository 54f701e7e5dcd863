"""Whether gradients have been added up over processes already, before what is done with them."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_are_summed: ContextVar[bool] = ContextVar("gradients_are_summed", default=False)


@contextlib.contextmanager
def summed_gradients() -> Iterator[None]:
    """While this is open, optimizers get from strategies what they give them to add up."""
    token = _are_summed.set(True)
    try:
        yield
    finally:
        _are_summed.reset(token)


def are_summed() -> bool:
    """Returns whether optimizers have gradients that are added up over processes."""
    return _are_summed.get()
