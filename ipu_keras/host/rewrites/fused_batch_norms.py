"""Decides whether batch normalization is traced as one operation, or as those that define it.

XLA makes few loops of the many small operations that Keras writes, and reports show these as
users wrote them. TensorFlow's executor goes over the images once for each of them; its own
operation for all, and the one for its gradient, take less than half of their time.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class BatchNorms:
    """Whether batch normalizations of a trace are one operation, and whether any was found."""

    fused: bool
    found: bool = False


_current: ContextVar[BatchNorms | None] = ContextVar("batch_norms", default=None)


@contextlib.contextmanager
def batch_norms(*, fused: bool) -> Iterator[BatchNorms]:
    """While this is open, batch normalizations are traced in one way, and noted if there are any.

    Example:

    >>> with batch_norms(fused=True) as norms:
    ...     use_fused_batch_norm(), norms.found
    (True, True)
    >>> use_fused_batch_norm()
    False
    """
    norms = BatchNorms(fused)
    token = _current.set(norms)
    try:
        yield norms
    finally:
        _current.reset(token)


def use_fused_batch_norm() -> bool:
    """Notes a batch normalization that can be one operation; returns whether it should be."""
    norms = _current.get()
    if norms is None:
        return False
    norms.found = True
    return norms.fused
