"""Whether batch normalization is traced as one operation, or as those that define it.

XLA makes few loops of the many small operations that Keras writes, and they are what users
wrote. TensorFlow's executor goes over the images once for each of them; its own operation for
all, and the one for its gradient, take less than half of their time.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class BatchNorms:
    """What is known of the batch normalizations of a trace.

    Args:
        fused: Whether they are one operation each.
        found: Whether there were any that can be.
    """

    fused: bool
    found: bool = False


_current: ContextVar[BatchNorms | None] = ContextVar("batch_norms", default=None)


@contextlib.contextmanager
def batch_norms(*, fused: bool) -> Iterator[BatchNorms]:
    """While a step is traced, says how to write batch normalizations, and notes if there are any.

    Args:
        fused: Whether each is one operation of TensorFlow's.

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
    """Asked where one could be fused: whether to do so."""
    norms = _current.get()
    if norms is None:
        return False
    norms.found = True
    return norms.fused
