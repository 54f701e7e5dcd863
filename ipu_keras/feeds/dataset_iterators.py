"""Iterators of datasets that programs read while they run, in graphs of sessions or without."""

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.feeds.dataset_feed import PREFETCH_DEPTH, synthetic_element
from ipu_keras.feeds.session_graphs import SessionGraph
from ipu_keras.internals.tensorflow.functions import unused_number
from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ir import TensorSpec
from ipu_keras.settings.flags import PoplarFlags, current_flags
from ipu_keras.settings.synthetic_data import replaces_infeeds

_HOST = "/device:CPU:0"

# Part of what TensorFlow says of an iterator that was not begun.
_NOT_INITIALIZED = "has not been initialized"


def read_or_synthetic(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset that an infeed reads: another one if `TF_POPLAR_FLAGS` asks for that."""
    flags = current_flags()
    if not replaces_infeeds(flags):
        return dataset
    return synthetic_dataset(dataset.element_spec, flags)


def synthetic_dataset(element_spec: Any, flags: PoplarFlags) -> tf.data.Dataset:
    """Returns a dataset without an end, of one element again and again."""
    leaves = tf.nest.flatten(element_spec)
    specs = [TensorSpec(static_sizes(leaf), leaf.dtype.name) for leaf in leaves]
    element = tf.nest.pack_sequence_as(element_spec, synthetic_element(specs, flags))
    return tf.data.Dataset.from_tensors(element).repeat()


class DatasetIterator:
    """An iterator from which a function reads the elements of a dataset, all of dense tensors.

    In a graph of TensorFlow 1 it is an operation of that graph, and each session has elements of
    its own, which are there once the operation of `begin` has run.
    """

    def __init__(self, dataset: tf.data.Dataset, name: str, prefetch_depth: int = PREFETCH_DEPTH):
        self.element_spec = dataset.element_spec
        self.name = name
        # Not the name, which users may give to two queues.
        self._label = f"infeed_{unused_number()}"
        self._specs = tf.nest.flatten(self.element_spec)
        self._began = False
        # Known once the first program that reads it runs.
        self._num_replicas: int | None = None
        self._dataset = dataset.prefetch(prefetch_depth)
        self._graph = SessionGraph(name)
        with tf.device(_HOST):
            if not self._graph.is_there:
                with tf.init_scope():
                    self._resource = tf.raw_ops.AnonymousIteratorV3(**self._types())
                return
            self._resource = tf.raw_ops.IteratorV2(
                shared_name=self._label, container="", **self._types()
            )
            # Exists in a session while the iterator has elements, which TensorFlow cannot be
            # asked.
            self._exists = tf.raw_ops.VarHandleOp(
                dtype=tf.bool, shape=[], shared_name=f"{self._label}_exists"
            )

    def begin(self) -> tf.Operation | None:
        """Begins with the first element, now or, in a session's graph, by an operation."""
        self._graph.check()
        self._began = True
        self._num_replicas = None
        with tf.device(_HOST):
            made = self._made_of(read_or_synthetic(self._dataset))
            if made is None:
                return None
            with tf.control_dependencies([made]):
                return tf.raw_ops.AssignVariableOp(resource=self._exists, value=True)

    def delete(self) -> tf.Operation | None:
        """Forgets the elements, now or by an operation, which fails if there are none."""
        self._graph.check()
        self._began = False
        with tf.device(_HOST):
            if tf.executing_eagerly():
                return self._made_of(self._nothing())
            gone = tf.raw_ops.DestroyResourceOp(resource=self._exists, ignore_lookup_error=False)
            with tf.control_dependencies([gone]):
                return self._made_of(self._nothing())

    def read_by(self, num_replicas: int) -> None:
        """Notes that a program of so many replicas reads it.

        Raises a `FailedPreconditionError` if another program has another number of replicas.
        """
        if self._num_replicas not in (None, num_replicas):
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                f"Iterator for feed {self.name} has already been setup with a replication factor "
                f"of {self._num_replicas} when it should have {num_replicas}.Infeeds must be used "
                "by graphs of the same replication factor. Make an IPUInfeedQueue for each.",
            )
        self._num_replicas = num_replicas

    @property
    def began(self) -> bool:
        return self._began

    def is_behind(self, error: tf.errors.OpError) -> bool:
        """Whether reading this iterator caused an error of TensorFlow."""
        return (
            re.search(rf"\b{self._label}(/next\b| {_NOT_INITIALIZED})", error.message) is not None
        )

    @staticmethod
    def is_missing(error: tf.errors.OpError) -> bool:
        """Whether an error says that an iterator's elements were not begun, or are deleted."""
        return _NOT_INITIALIZED in error.message

    def read(self) -> Any:
        """Returns the next element, as operations of the graph that is being built."""
        self._graph.check()
        return tf.nest.pack_sequence_as(self.element_spec, self._next())

    def read_many(self, count: int) -> list[tf.Tensor]:
        """Returns the tensors of the next elements, each `(count, ...)`."""
        self._graph.check()
        if count == 1:
            return [tensor[None] for tensor in self._next()]
        start = [
            tf.TensorArray(spec.dtype, count, element_shape=spec.shape) for spec in self._specs
        ]

        def body(index: Any, *arrays: Any) -> tuple:
            pairs = zip(arrays, self._next(), strict=True)
            return index + 1, *(array.write(index, tensor) for array, tensor in pairs)

        with tf.name_scope(self._label):
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
            iterator=self._resource, **self._types(), name=f"{self._label}/next"
        )

    def _made_of(self, dataset: tf.data.Dataset) -> tf.Operation | None:
        variant = tf.data.experimental.to_variant(dataset)
        return tf.raw_ops.MakeIterator(dataset=variant, iterator=self._resource)

    def _nothing(self) -> tf.data.Dataset:
        """Returns a dataset of the same types, whose first element is an error."""

        def refuse(_: Any) -> Any:
            # The same words as TensorFlow's own error, so that `is_missing` finds both.
            said = tf.debugging.Assert(False, [f"{self._label} {_NOT_INITIALIZED}"])
            with tf.control_dependencies([] if said is None else [said]):
                return tf.nest.map_structure(
                    lambda spec: tf.zeros(spec.shape, spec.dtype), self.element_spec
                )

        return tf.data.Dataset.range(1).map(refuse)

    def _types(self) -> dict[str, Sequence[Any]]:
        return {
            "output_types": [spec.dtype for spec in self._specs],
            "output_shapes": [spec.shape for spec in self._specs],
        }
