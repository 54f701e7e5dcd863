"""Changes how TensorFlow reads datasets eagerly."""

from collections.abc import Callable, Iterator
from typing import Any

from ipu_keras.hooks.installation import install
from ipu_keras.internals.tensorflow.datasets import eager_iterator


def replace_iterators(replaced_by: Callable[[Any], Iterator | None]) -> None:
    """Lets another iterator stand in for one over a dataset, whenever an element is read.

    TensorFlow has no hook for it, so the step method of its eager iterator is wrapped.
    `replaced_by` may return `None` to read from TensorFlow's iterator, or raise so that nothing
    is read.
    """

    def wrapper(original: Callable) -> Callable:
        def _next_internal(self):
            other = replaced_by(self)
            return original(self) if other is None else next(other)

        return _next_internal

    install(eager_iterator(), "_next_internal", wrapper)
