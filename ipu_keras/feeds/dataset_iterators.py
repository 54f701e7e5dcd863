"""Iterators of datasets that programs read while they run, in graphs of sessions or without."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.feeds.dataset_feed import PREFETCH_DEPTH

_HOST = "/device:CPU:0"


class DatasetIterator:
    """What a function reads the elements of a dataset from.

    In a graph of TensorFlow 1 it is an operation of that graph, and each session has elements
    of its own, which are there once the operation of `begin` has run.

    Args:
        dataset: Its elements are structures of dense tensors.
        name: What errors call it.
        prefetch_depth: Elements that are read ahead.
    """

    def __init__(self, dataset: tf.data.Dataset, name: str, prefetch_depth: int = PREFETCH_DEPTH):
        self.element_spec = dataset.element_spec
        self.name = name
        self._specs = tf.nest.flatten(self.element_spec)
        self._dataset = dataset.prefetch(prefetch_depth)
        with tf.device(_HOST):
            if tf.executing_eagerly():
                self._resource = tf.raw_ops.AnonymousIteratorV3(**self._types())
            else:
                self._resource = tf.raw_ops.IteratorV2(
                    shared_name=name, container="", **self._types()
                )

    def begin(self) -> tf.Operation | None:
        """Begins with the first element, now or, in a session's graph, by an operation."""
        with tf.device(_HOST):
            dataset = tf.data.experimental.to_variant(self._dataset)
            return tf.raw_ops.MakeIterator(dataset=dataset, iterator=self._resource)

    def delete(self) -> tf.Operation | None:
        """Forgets the elements, now or by an operation."""
        if tf.executing_eagerly():
            self._resource = tf.raw_ops.AnonymousIteratorV3(**self._types())
            return None
        return tf.raw_ops.DestroyResourceOp(resource=self._resource)

    def read(self) -> Any:
        """The next element, as operations of the graph that is being built."""
        return tf.nest.pack_sequence_as(self.element_spec, self._next())

    def read_many(self, count: int) -> list[tf.Tensor]:
        """The tensors of the next elements, each `(count, ...)`.

        Args:
            count: How many elements.
        """
        if count == 1:
            return [tensor[None] for tensor in self._next()]
        start = [
            tf.TensorArray(spec.dtype, count, element_shape=spec.shape) for spec in self._specs
        ]

        def body(index: Any, *arrays: Any) -> tuple:
            pairs = zip(arrays, self._next(), strict=True)
            return index + 1, *(array.write(index, tensor) for array, tensor in pairs)

        with tf.name_scope(self.name):
            _, *arrays = tf.while_loop(
                lambda index, *_: index < count,
                body,
                [tf.constant(0), *start],
                parallel_iterations=1,
                maximum_iterations=count,
            )
            return [array.stack() for array in arrays]

    def _next(self) -> Sequence[tf.Tensor]:
        return tf.raw_ops.IteratorGetNext(
            iterator=self._resource, **self._types(), name=f"{self.name}/next"
        )

    def _types(self) -> dict[str, Sequence[Any]]:
        return {
            "output_types": [spec.dtype for spec in self._specs],
            "output_shapes": [spec.shape for spec in self._specs],
        }
