"""TensorFlow datasets as sources of feeds: element formats and dtype rules."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.program import FEED_DTYPES, TensorSpec
from ipu_keras.runtime import Feed, SuperBatch

# As on hardware, a super-batch for the running execution and two behind it.
PREFETCH_DEPTH = 3


@dataclass(frozen=True)
class ElementFormat:
    """How the elements of a dataset travel through a feed, as a row of arrays.

    Args:
        specs: The tensors of an element in the order of `tf.nest.flatten`.
        structure: The element's structure with, at each leaf, the tensor's
            position in `specs`, or `None` where the element has no tensor.
    """

    specs: tuple[TensorSpec, ...]
    structure: Any

    def flatten(self, element: Any) -> list[np.ndarray]:
        """The arrays of an element."""
        leaves = zip(tf.nest.flatten(self.structure), tf.nest.flatten(element), strict=True)
        return [_array(leaf) for position, leaf in leaves if position is not None]

    def unflatten(self, tensors: Sequence[Any]) -> Any:
        """The element that has these tensors."""
        return tf.nest.map_structure(
            lambda position: None if position is None else tensors[position], self.structure
        )


def element_format(element_spec: Any) -> ElementFormat:
    """Finds the format of the elements of a dataset.

    Args:
        element_spec: Nested structure of `tf.TensorSpec`, as
            `tf.data.Dataset.element_spec`.

    Returns:
        The `ElementFormat`; float64 becomes float32, which is what feeds carry.

    Raises:
        ValueError: A shape is not fully defined.
        tf.errors.FailedPreconditionError: A feed cannot carry the dtype.
        TypeError: A leaf is not a dense tensor.
    """
    specs: list[TensorSpec] = []

    def position(leaf):
        if leaf is None or isinstance(leaf, tf.NoneTensorSpec | tf.OptionalSpec):
            return None
        specs.append(_tensor_spec(leaf, len(specs)))
        return len(specs) - 1

    structure = tf.nest.map_structure(position, element_spec)
    return ElementFormat(tuple(specs), structure)


class ElementFeed(Feed):
    """A feed whose batches are the elements of any source.

    Args:
        open_source: Called on the feed's thread; returns the batches as rows of
            arrays, in the order of `element`.
        element: Their format.
        **options: The other arguments of `Feed`.
    """

    def __init__(
        self,
        open_source: Callable[[], Iterable[Sequence[np.ndarray]]],
        element: ElementFormat,
        **options: Any,
    ):
        super().__init__(open_source, element.specs, **options)
        self.element = element


class DatasetFeed(ElementFeed):
    """A feed over one pass of a dataset.

    Args:
        dataset: Its elements are batches.
        element: Their format.
        num_steps: Batches per super-batch.
        prefetch_depth: Super-batches made ahead.
        check: Called with arrays of batches `(batches, ...)`, before one can reach a
            program; raises on what the program must not see.
        name: What errors call the feed.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        element: ElementFormat,
        *,
        num_steps: int,
        prefetch_depth: int = PREFETCH_DEPTH,
        check: Callable[[list[np.ndarray]], None] | None = None,
        name: str = "infeed",
    ):
        def batches() -> Iterator[list[np.ndarray]]:
            # Joining batches in tf.data spares Python most of the work of an
            # element. Batches whose shapes tf.data does not know come singly,
            # so that one of another shape is told apart; optionals cannot be joined.
            joins = _is_static(dataset.element_spec)
            for value in dataset.batch(num_steps, drop_remainder=True) if joins else dataset:
                arrays = element.flatten(value)
                if not joins:
                    arrays = [array[np.newaxis] for array in arrays]
                if check is not None:
                    check(arrays)
                for step in range(num_steps if joins else 1):
                    yield [array[step] for array in arrays]

        super().__init__(
            batches, element, num_steps=num_steps, prefetch_depth=prefetch_depth, name=name
        )


def tensors_of(super_batch: SuperBatch) -> list[tf.Tensor]:
    """The tensors of a super-batch on the host, without a copy."""
    return [tf.experimental.dlpack.from_dlpack(capsule) for capsule in super_batch.capsules()]


def _is_static(element_spec: Any) -> bool:
    return all(
        isinstance(leaf, tf.TensorSpec) and leaf.shape.is_fully_defined()
        for leaf in tf.nest.flatten(element_spec)
        if leaf is not None
    )


def _array(leaf: Any) -> np.ndarray:
    return leaf.numpy() if tf.is_tensor(leaf) else np.asarray(leaf)


def _tensor_spec(leaf: Any, index: int) -> TensorSpec:
    if not isinstance(leaf, tf.TensorSpec):
        raise TypeError(
            f"An IPU feed carries dense tensors. Received: {type(leaf).__name__} at index {index}; "
            "convert it, for instance with `to_tensor()` or `tf.sparse.to_dense`."
        )
    if not leaf.shape.is_fully_defined():
        raise ValueError(
            f"The provided set of data contains a shape {leaf.shape} which is not fully defined. "
            "Executing on IPU requires all shapes to be known when the program is compiled: batch "
            f"with `drop_remainder=True` or give the shape. Received: index {index} of the element"
        )
    dtype = "float32" if leaf.dtype == tf.float64 else leaf.dtype.name
    if dtype not in FEED_DTYPES:
        raise tf.errors.FailedPreconditionError(
            None,
            None,
            f"Unsupported datatype {dtype} on index {index} of feed operation. An IPU feed carries "
            f"{', '.join(FEED_DTYPES)}. You should use a tf.data.Dataset.map() operation to cast "
            "the element, or cast the array before passing it, for instance to int32.",
        )
    return TensorSpec(tuple(leaf.shape), dtype)
