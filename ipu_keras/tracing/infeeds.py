"""Shows the cost model an infeed where a function reads a dataset's iterator."""

import contextlib
import itertools
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.xla import custom_call

# XLA cannot compile an operation that reads an iterator, but lowers a custom call of any name.
_TARGET = "ipu.infeed"

# The infeeds that stand in for iterators, by `id`; `None` while iterators themselves are read.
_infeeds: ContextVar[dict[int, "InfeedIterator"] | None] = ContextVar("infeeds", default=None)


class InfeedIterator:
    """Stands in for a dataset's iterator in a function that is traced for the cost model.

    It raises a `ValueError` for elements without fully defined shapes, and for a loop over the
    whole dataset, whose length nobody knows.
    """

    def __init__(self, element_spec: Any):
        self._element_spec = element_spec
        # Each element has a number, as XLA would merge two equal calls into one.
        self._numbers = itertools.count()

    def __repr__(self) -> str:
        return f"<infeed of {self._element_spec}>"

    @property
    def element_spec(self) -> Any:
        return self._element_spec

    def __iter__(self) -> "InfeedIterator":
        # This is none of our exceptions, because AutoGraph raises only Python's own types again
        # as they are.
        raise ValueError(
            "A loop over all of a dataset has an unknown number of steps: call `next` in a loop "
            f"over `tf.range` instead. Received: {self!r}"
        )

    def __next__(self) -> Any:
        return tf.nest.map_structure(self._tensor, self._element_spec)

    get_next = __next__

    def _tensor(self, spec: Any) -> tf.Tensor:
        if not isinstance(spec, tf.TensorSpec):
            raise ValueError(f"What an IPU is fed must be dense tensors. Received: {spec}")
        if not spec.shape.is_fully_defined():
            raise ValueError(
                f"Output shape {spec.shape} is not fully defined. If using tf.Dataset.batch, set "
                "`drop_remainder=True`: what an IPU is fed must be tensors of fixed shapes. "
                f"Received: {spec}"
            )
        return custom_call(
            [],
            _TARGET,
            str(next(self._numbers)),
            shape=spec.shape,
            dtype=spec.dtype,
            name="infeed",
        )


@contextlib.contextmanager
def infeeds_for_iterators() -> Iterator[None]:
    """While this is open, functions that are traced read infeeds in place of captured iterators."""
    token = _infeeds.set({})
    try:
        yield
    finally:
        _infeeds.reset(token)


def is_traced_for_model() -> bool:
    """Whether a function is being traced for the cost model, and not to be run."""
    return _infeeds.get() is not None


def infeed_of(iterator: Any) -> InfeedIterator | None:
    """Returns the infeed that is read in place of an iterator, always the same, or `None`."""
    infeeds = _infeeds.get()
    if infeeds is None:
        return None
    return infeeds.setdefault(id(iterator), InfeedIterator(iterator.element_spec))


def is_infeed(instruction: Any) -> bool:
    """Whether an instruction of XLA reads an element of an infeed."""
    return instruction.opcode == "custom-call" and instruction.custom_call_target == _TARGET
