"""How tables on the host are looked up and trained.

A table is a variable of the host. Programs gather rows of it and, in the gradient, subtract from
rows of it; nothing that they compute is as large as the table.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.internals.tensorflow.variables import plain_variable
from ipu_keras.ops import host_embedding_registration as registration
from ipu_keras.ops.argument_checks import check_integer, check_number
from ipu_keras.ops.collectives import all_reduce_sum, groups_of_process
from ipu_keras.settings.arguments import MOST
from ipu_keras.tracing.poplar_operation import differentiable, poplar_operation
from ipu_keras.tracing.replication import current_replicas

_KIND = "HostEmbedding"

# Collections of a graph with its lookups and updates, as "table\noperation".
_LOOKUPS = "ipu_host_embedding_lookups"
_UPDATES = "ipu_host_embedding_updates"


class HostEmbeddingOptimizerSpec:
    """Trains a `HostEmbedding` with SGD: each gradient is subtracted as soon as it is known.

    The device computes the gradient of the rows that it looked up; the host subtracts it, times
    the learning rate, from these rows of the table. Rows that were looked up several times get
    the sum. All replicas share the table: they look it up before any of them changes it in the
    same step, and the changes of all are added.

    The update is a part of the gradient of the lookup: it happens whenever a gradient of what
    depends on the lookup is computed, with `tf.GradientTape` (whatever it is computed with
    respect to) or with the `minimize` of an optimizer of TensorFlow 1.

    Args:
        learning_rate: The SGD learning rate, a number that is not negative.
        optimizer_name: `"SGD"`, which `None` stands for. There are no others.

    Raises:
        TypeError: The learning rate is not a number.
        ValueError: The learning rate is negative or not finite, or there is no such optimizer.

    Example:

    >>> HostEmbeddingOptimizerSpec(0.5).get_learning_rate()
    0.5
    """

    def __init__(self, learning_rate: float, optimizer_name: str | None = None):
        learning_rate = check_number("learning_rate", learning_rate)
        if learning_rate < 0:
            raise ValueError(
                f"`learning_rate` must be at least 0. Received: learning_rate={learning_rate}"
            )
        if optimizer_name is not None and (
            not isinstance(optimizer_name, str) or optimizer_name != "SGD"
        ):
            raise ValueError(
                "`optimizer_name` must be None or 'SGD': it is the only optimizer of host "
                f"embeddings. Received: optimizer_name={optimizer_name!r}"
            )
        self._learning_rate = learning_rate

    def get_learning_rate(self) -> float:
        """Returns the SGD learning rate."""
        return self._learning_rate

    def create_slot_variables(
        self, embedding_tensor: Any, name: str, num_indices: int | None = None
    ) -> list:
        """Makes the variables that the optimizer needs beside the table; called by lookups.

        Args:
            embedding_tensor: The table, a variable.
            name: Name of the table.
            num_indices: How many ids a lookup has; `None` while this is not known.

        Returns:
            The variables, all on the host. Plain SGD needs a scalar, which is always 0: it is
            trainable, and what is computed from it therefore has a gradient.
        """
        return [_variable(tf.zeros([], embedding_tensor.dtype), f"{name}/gradient", trainable=True)]

    def create_register_instruction(
        self, embedding_tensor: Any, slot_vars: Sequence, name: str
    ) -> tf.Operation | None:
        """Makes the operation that opens `HostEmbedding.register`.

        Args:
            embedding_tensor: The table, a variable.
            slot_vars: Variables that `create_slot_variables` returned.
            name: Name of the table.

        Returns:
            The operation; in eager mode it was run, and there is `None`.
        """
        return registration.connect(name)

    def create_deregister_instruction(
        self, embedding_tensor: Any, slot_vars: Sequence, name: str
    ) -> tf.Operation | None:
        """Makes the operation that closes `HostEmbedding.register`.

        Args:
            embedding_tensor: The table, a variable.
            slot_vars: Variables that `create_slot_variables` returned.
            name: Name of the table.

        Returns:
            The operation; in eager mode it was run, and there is `None`.
        """
        return registration.disconnect(name)

    def create_lookup_instruction(
        self,
        embedding_tensor: Any,
        indices: tf.Tensor,
        slot_vars: Sequence,
        partition_strategy: str,
        name: str,
    ) -> tf.Tensor:
        """Looks up rows; `HostEmbedding.lookup` calls it.

        Args:
            embedding_tensor: The table, a variable.
            indices: Integers `(ids,)`, all of them of rows that exist.
            slot_vars: Variables that `create_slot_variables` returned.
            partition_strategy: Where remote buffers have which part of the table. It changes
                nothing that is computed.
            name: Name of the table.

        Returns:
            The rows, `(ids, ...)`, a tensor on the device.

        Raises:
            tf.errors.FailedPreconditionError: When it runs and the table is not registered.
        """

        def run(trigger, rows):
            def gradient(upstream):
                # The sum of zeros waits until all replicas have looked the table up. It is all
                # that they exchange: each sends its own gradient to the host.
                done = all_reduce_sum(zero, groups_of_process())
                with tf.control_dependencies([done, *_before_update(name)]):
                    rows_read = indices + tf.cast(done, indices.dtype)
                    update = self._update(embedding_tensor, rows_read, upstream, slot_vars)
                _note(_UPDATES, name, update)
                # A session runs only what leads to what is fetched, such as an update of this
                # variable: so its gradient has to come after the update of the table.
                with _after(update):
                    return tf.zeros_like(trigger), None

            return tf.identity(rows), gradient

        with poplar_operation(_KIND):
            rows, zero = host_rows(embedding_tensor, indices, name)
            return differentiable(run, tf.convert_to_tensor(slot_vars[0]), rows)

    def _update(
        self, table: Any, indices: tf.Tensor, gradient: tf.Tensor, slots: Sequence
    ) -> tf.Operation | None:
        # A sparse update: rows that were looked up several times get the sum, and no others
        # move.
        return tf.raw_ops.ResourceScatterSub(
            resource=table.handle,
            indices=indices,
            updates=tf.cast(self._learning_rate, gradient.dtype) * gradient,
        )


class HostEmbeddingSGDGAOptimizerSpec(HostEmbeddingOptimizerSpec):
    """Trains a `HostEmbedding` with SGD and gradient accumulation.

    The gradients of several mini-batches are collected; then their sum, times the learning rate,
    is subtracted from the table. Until then lookups see the table as it was. Each replica has its
    own mini-batches, and the gradients of all are summed.

    Gradients are collected as they come, with their ids, and not in a second table: that takes as
    much memory as all lookups of these mini-batches, however large the table is. Mini-batches
    that are still too few at the end of `HostEmbedding.register` are kept for the next time.

    Args:
        learning_rate: The SGD learning rate, a number that is not negative.
        accumulation_factor: The number of mini-batches, a positive integer.

    Raises:
        TypeError: An argument is not a number.
        ValueError: An argument is too small.

    Example:

    >>> HostEmbeddingSGDGAOptimizerSpec(0.5, 4).get_accumulation_factor()
    4
    """

    def __init__(self, learning_rate: float, accumulation_factor: int):
        super().__init__(learning_rate)
        self._accumulation_factor = check_integer(
            "accumulation_factor", accumulation_factor, 1, MOST
        )

    def get_accumulation_factor(self) -> int:
        """Returns the number of mini-batches whose gradients are summed."""
        return self._accumulation_factor

    def create_slot_variables(
        self, embedding_tensor: Any, name: str, num_indices: int | None = None
    ) -> list:
        """Makes the variables that the optimizer needs beside the table; called by lookups.

        Args:
            embedding_tensor: The table, a variable.
            name: Name of the table.
            num_indices: How many ids a lookup has; `None` while this is not known.

        Returns:
            The variables, all on the host: a scalar, as for plain SGD, and if the number of ids is
            known, the collected ids and gradients, and how many lookups they are of.
        """
        slots = super().create_slot_variables(embedding_tensor, name)
        if num_indices is None:
            return slots
        # The mini-batches of all replicas are collected, one after the other.
        shape = (self._accumulation_factor * current_replicas(), num_indices)
        gradients = tf.zeros((*shape, *static_sizes(embedding_tensor)[1:]), embedding_tensor.dtype)
        return [
            *slots,
            _variable(tf.zeros(shape, tf.int32), f"{name}/collected_ids"),
            _variable(gradients, f"{name}/collected_gradients"),
            _variable(tf.constant(0), f"{name}/collected"),
        ]

    def _update(self, table, indices, gradient, slots):
        if len(slots) == 1:
            raise ValueError(
                "Gradients of a host embedding are accumulated for lookups of a static number of "
                f"ids. Give the ids a fully defined shape. Received: {static_sizes(indices)[0]} ids"
            )
        _, ids, gradients, num_collected = (slot.handle for slot in slots)
        size = static_sizes(slots[1])[0]
        position = tf.raw_ops.ReadVariableOp(resource=num_collected, dtype=tf.int32)
        writes = [
            tf.raw_ops.ResourceScatterUpdate(
                resource=ids, indices=position, updates=tf.cast(indices, tf.int32)
            ),
            tf.raw_ops.ResourceScatterUpdate(
                resource=gradients, indices=position, updates=gradient
            ),
        ]

        def subtract_all():
            all_ids = tf.raw_ops.ReadVariableOp(resource=ids, dtype=tf.int32)
            collected = tf.raw_ops.ReadVariableOp(resource=gradients, dtype=gradient.dtype)
            shape = (-1, *static_sizes(gradient)[1:])
            done = super(HostEmbeddingSGDGAOptimizerSpec, self)._update(
                table, tf.reshape(all_ids, [-1]), tf.reshape(collected, shape), slots
            )
            with _after(done):
                return tf.constant(0)

        with _after(*writes):
            num_after = tf.cond(position < size - 1, lambda: position + 1, subtract_all)
        return tf.raw_ops.AssignVariableOp(resource=num_collected, value=num_after)


def host_rows(table: Any, indices: tf.Tensor, name: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns rows of a table on the host, `(ids, ...)`, and a zero that exists once they are
    read.

    The table, a variable or a tensor, has to be registered when that runs; `indices` are all of
    rows that exist.
    """
    connection = registration.connection(name)
    shape = (tf.shape(indices)[0], *static_sizes(table)[1:])

    def read():
        if not hasattr(table, "handle"):
            return tf.gather(table, indices), connection
        # Read by the handle: TensorFlow would watch the variable for a gradient, and replicas
        # share what is on the host only if nothing else is known of it.
        resource = table.handle
        rows = tf.raw_ops.ResourceGather(resource=resource, indices=indices, dtype=table.dtype)
        return rows, connection

    # XLA would read rows where they are needed, maybe after the update, and would copy the whole
    # table for that. It does not look into a branch, and an update that takes the zero has to
    # come after the branch. The condition always holds, but XLA cannot know.
    rows, zero = tf.cond(
        tf.equal(connection, 0), read, lambda: (tf.zeros(shape, table.dtype), connection + 1)
    )
    rows.set_shape((static_sizes(indices)[0], *static_sizes(table)[1:]))
    if not tf.executing_eagerly():
        _note(_LOOKUPS, name, rows.op)
    return rows, zero


def num_lookups(name: str) -> int:
    """Returns how often the graph looks a table up, as far as it has been made."""
    return 0 if tf.executing_eagerly() else len(_noted(_LOOKUPS, name))


def _note(collection: str, name: str, operation: tf.Operation | None) -> None:
    """Notes in the graph what reads or writes a table; eager operations run in order anyway."""
    if operation is not None:
        graph = tf.compat.v1.get_default_graph()
        graph.add_to_collection(collection, f"{name}\n{operation.name}")


def _noted(collection: str, name: str) -> list[str]:
    found = tf.compat.v1.get_default_graph().get_collection(collection)
    pairs = (entry.split("\n") for entry in found)
    return [operation for table, operation in pairs if table == name]


def _before_update(name: str) -> list[tf.Operation]:
    """Returns the operations that an update must wait for; functions order them by themselves.

    These are all lookups, and the updates before it: of two that change a row at once, one is
    lost.
    """
    graph = tf.compat.v1.get_default_graph()
    if tf.executing_eagerly() or graph.building_function:
        return []
    names = [*_noted(_LOOKUPS, name), *_noted(_UPDATES, name)]
    return [graph.get_operation_by_name(operation) for operation in names]


def _after(*operations: tf.Operation | None) -> Any:
    """Makes what follows wait for operations, which are None in eager mode."""
    return tf.control_dependencies([each for each in operations if each is not None])


def _variable(value: tf.Tensor, name: str, *, trainable: bool = False) -> Any:
    return plain_variable(value, trainable=trainable, name=name)
