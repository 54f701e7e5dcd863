"""Tables that stay on the host, in which programs look up rows."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.internals.tensorflow.variables import plain_variable
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops import host_embedding_registration as registration
from ipu_keras.ops.argument_checks import check_choice, check_flag, converted
from ipu_keras.ops.embedding_lookup import integers
from ipu_keras.ops.host_embedding_optimizers import (
    HostEmbeddingOptimizerSpec,
    host_rows,
    num_lookups,
)
from ipu_keras.ops.host_embedding_registration import HOST
from ipu_keras.settings.arguments import checked_name, noted
from ipu_keras.settings.enumerations import SyntheticDataCategory
from ipu_keras.settings.flags import current_flags
from ipu_keras.settings.synthetic_data import synthetic_array
from ipu_keras.tracing.poplar_operation import poplar_operation
from ipu_keras.tracing.replication import current_replicas

_STRATEGIES = ("TOKEN", "ENCODING")


class HostEmbedding:
    """A table on the host in which programs look up rows, for tables too large for an IPU.

    Only the rows that are looked up, and their gradients, go to the device and back: the memory
    and the time of a step do not depend on the size of the table. It is trained where a gradient
    of what was looked up is computed; see `HostEmbeddingOptimizerSpec`. The optimizer of the
    other variables has no part in that.

    Replicas of a program share the table. In the cost model, indices go to the host and rows come
    from it; the table takes no memory of the IPU. It, too, needs a table that is registered: call
    `ipu_keras.profile` within `register`.

    Args:
        name: Which table it is, unique in a program.
        embedding_tensor: The table, a variable of float16 or float32, of the shape
            `(tokens, encoding)`. If it is not trained, a tensor will do.
        partition_strategy: `"TOKEN"` or `"ENCODING"`: the axis along which replicas share the
            table if `experimental.enable_remote_buffer_embedding` of an `IPUConfig` has it in
            remote buffers. `"ENCODING"` has no effect: the same values are computed, and the cost
            model does not know of it.
        optimizer_spec: How the table is trained; `None` if it is not.

    Raises:
        TypeError: The table, the name or the optimizer is of another type.
        ValueError: The table is not of rank 2, the name is empty, or there is no such strategy.

    Example:

    >>> optimizer = HostEmbeddingOptimizerSpec(learning_rate=0.5)
    >>> embedding = create_host_embedding("words", (1000, 2), tf.float32, optimizer_spec=optimizer)
    >>> @tf.function
    ... def step(ids):
    ...     with tf.GradientTape() as tape:
    ...         loss = tf.reduce_sum(embedding.lookup(ids))
    ...     tape.gradient(loss, [])  # trains the table
    ...     return loss
    >>> with embedding.register():
    ...     first, second = step(tf.constant([7, 7])), step(tf.constant([7, 7]))
    >>> # Two rows of two numbers, of each of which 0.5 was subtracted twice.
    >>> print(round(float(second - first), 4))
    -4.0
    """

    def __init__(
        self,
        name: str,
        embedding_tensor: Any,
        partition_strategy: str = "TOKEN",
        optimizer_spec: HostEmbeddingOptimizerSpec | None = None,
    ):
        _check(name, partition_strategy, optimizer_spec)
        _check_table(embedding_tensor, is_trained=optimizer_spec is not None)
        if partition_strategy != "TOKEN":
            warnings.warn(
                f"partition_strategy={partition_strategy!r} has no effect here: remote buffers "
                "with parts of a host embedding are not modelled. The values are the same.",
                stacklevel=2,
            )
        self._name = name
        self._embedding_tensor = embedding_tensor
        self._partition_strategy = partition_strategy
        self._optimizer_spec = optimizer_spec
        # The optimizer's variables for each lookup of a program, by the number of the lookup, of
        # its ids, and of replicas.
        self._slots: dict[tuple[int, int | None, int], list] = {}

    def __call__(self, *args, **kwargs):
        """Refuses the call by which releases before `register` opened the connection."""
        raise noted(
            NotImplementedError(
                "HostEmbedding.__call__ is not supported. Please use the context manager "
                "created with HostEmbedding.register."
            ),
            "Use `with embedding.register(session):` around running the program, and "
            "`embedding.lookup(ids)` in it.",
        )

    def get_embedding_tensor(self) -> Any:
        """Returns the table that was given, or the variable that was made."""
        return self._embedding_tensor

    @contextlib.contextmanager
    def register(self, session: Any = None) -> Iterator[None]:
        """Opens the connection between programs and the table, for a `with` statement.

        Args:
            session: A `tf.compat.v1.Session`, whose programs may look the table up; in a graph,
                the default session if it is `None`. Without graphs and sessions there is no
                argument: then it is for all functions.

        Raises:
            ValueError: There is no session, or the table is registered already.
        """
        session = _session(session)
        with _graph_of(session):
            self._refuse_second(session)
            _run(self._create_instruction("register"), session)
        try:
            yield
        finally:
            with _graph_of(session):
                _run(self._create_instruction("deregister"), session)

    def lookup(self, indices: Any, clip_indices: bool = True) -> tf.Tensor:
        """Looks up rows, from within a program.

        Args:
            indices: A tensor of integers, of any shape.
            clip_indices: Whether an index below 0 stands for the first row, and one that is
                too large for the last. Otherwise the rows of such indices, which on hardware
                have arbitrary values, are NaN, and their gradients are dropped.

        Returns:
            A tensor of the table's type, of the shape `(*indices.shape, encoding)`.

        Raises:
            TypeError: `indices` is not a tensor of integers.
            tf.errors.FailedPreconditionError: When the program runs and the table is not
                registered.
            NotImplementedError: The table is trained by several processes, each of which would
                have one of its own.
        """
        if self._optimizer_spec is not None and SYSTEM.world.size > 1:
            raise NotImplementedError(
                "Tables on the host are trained by one process alone: the processes of an "
                "application do not exchange updates of theirs. "
                f"Received: host embedding {self._name!r} with an optimizer in process "
                f"{SYSTEM.world.rank} of {SYSTEM.world.size}. Keep the table in the model, as "
                "`keras.layers.Embedding`, or start one process with all replicas."
            )
        indices, clip_indices = (
            integers(indices, "indices"),
            check_flag("clip_indices", clip_indices),
        )
        num_rows, encoding = static_sizes(self._embedding_tensor)
        flat = tf.reshape(indices, [-1])
        # Indices are always clipped, as the host gathers rows that have to exist.
        rows = self._rows(tf.clip_by_value(flat, 0, num_rows - 1))
        if not clip_indices:
            exist = (flat >= 0) & (flat < num_rows)
            rows = tf.where(exist[:, tf.newaxis], rows, tf.constant(float("nan"), rows.dtype))
        found = tf.reshape(rows, tf.concat([tf.shape(indices), [encoding]], axis=0))
        found.set_shape((*static_sizes(indices), encoding))
        return found

    def _rows(self, indices: tf.Tensor) -> tf.Tensor:
        flags = current_flags()
        if flags.asks_for_synthetic(SyntheticDataCategory.HostEmbedding):
            table = self._embedding_tensor
            row = synthetic_array(flags, static_sizes(table)[1:], table.dtype.name)
            return tf.broadcast_to(tf.constant(row), [tf.shape(indices)[0], *row.shape])
        if self._optimizer_spec is None:
            with poplar_operation("HostEmbedding"):
                rows, _ = host_rows(self._embedding_tensor, indices, self._name)
                return rows
        return self._optimizer_spec.create_lookup_instruction(
            self._embedding_tensor,
            indices,
            self._slots_for(static_sizes(indices)[0]),
            self._partition_strategy,
            self._name,
        )

    def _slots_for(self, num_indices: int | None) -> list:
        """Returns the slots of a program's next lookup, the same ones if it is traced again."""
        assert self._optimizer_spec is not None
        key = num_lookups(self._name), num_indices, current_replicas()
        if key not in self._slots:
            with tf.init_scope(), tf.device(HOST):
                self._slots[key] = self._optimizer_spec.create_slot_variables(
                    self._embedding_tensor, self._name, num_indices
                )
        return self._slots[key]

    def _create_instruction(self, kind: str) -> tf.Operation | None:
        """Returns the operation that registers the table, or that takes this back."""
        if self._optimizer_spec is None:
            make = {"register": registration.connect, "deregister": registration.disconnect}
            return make[kind](self._name)
        spec = self._optimizer_spec
        slots = [slot for slots in self._slots.values() for slot in slots]
        if kind == "register":
            return spec.create_register_instruction(self._embedding_tensor, slots, self._name)
        return spec.create_deregister_instruction(self._embedding_tensor, slots, self._name)

    def _refuse_second(self, session: Any) -> None:
        if _run(registration.is_connected(self._name), session):
            raise ValueError(
                "A host embedding can be registered once at a time; leave the first `with` "
                "statement before the second, and give each table a name of its own. "
                f"Received: name={self._name!r}, which is registered"
            )


def create_host_embedding(
    name: str,
    shape: Any,
    dtype: Any,
    partition_strategy: str = "TOKEN",
    optimizer_spec: HostEmbeddingOptimizerSpec | None = None,
    initializer: Any = None,
) -> HostEmbedding:
    """Makes a table on the host, and its `HostEmbedding`.

    Args:
        name: Which table it is, unique in a program; the variable is called so too.
        shape: Shape of the table, `(tokens, encoding)`.
        dtype: Type of the table, float16 or float32.
        partition_strategy: `"TOKEN"` or `"ENCODING"`, as for `HostEmbedding`. `"ENCODING"` has no
            effect: the same values are computed, and the cost model does not know of it.
        optimizer_spec: How the table is trained; `None` if it is not.
        initializer: What the table holds first: an initializer of TensorFlow or Keras, a function
            of a shape and a dtype, or an array. `None` for Glorot's uniform one.

    Returns:
        The embedding; its `get_embedding_tensor()` is the variable.

    Raises:
        TypeError: The name, the dtype or the optimizer is of another type.
        ValueError: The table is not of rank 2, the name is empty, or there is no such strategy.
    """
    _check(name, partition_strategy, optimizer_spec)
    shape = converted("shape", tf.TensorShape, shape)
    dtype = converted("dtype", tf.as_dtype, dtype)
    _check_spec(shape, dtype)

    def value():
        return converted("initializer", _initial_value, initializer, shape, dtype)

    with tf.init_scope(), tf.device(HOST):
        # Not through a strategy, which would put the variable on its own device. In a graph,
        # `tf.compat.v1` has to know the variable, to initialise and to save it.
        if tf.executing_eagerly():
            table = plain_variable(value, trainable=False, name=name)
        else:
            table = tf.compat.v1.get_variable(
                name, initializer=value, dtype=dtype, trainable=False, use_resource=True
            )
    return HostEmbedding(name, table, partition_strategy, optimizer_spec)


def _initial_value(initializer: Any, shape: tf.TensorShape, dtype: tf.DType) -> tf.Tensor:
    if initializer is not None and not callable(initializer):
        return tf.ensure_shape(tf.convert_to_tensor(initializer, dtype), shape)
    make = tf.compat.v1.glorot_uniform_initializer if initializer is None else initializer
    make = make() if isinstance(make, type) else make
    return make(shape.as_list(), dtype=dtype)


def _session(session: Any) -> Any:
    """Returns the session to register with; None if there are no sessions."""
    session = session or tf.compat.v1.get_default_session()
    if session is None and not tf.executing_eagerly():
        raise ValueError(
            "In a graph, `session` must be the session that will run the program. "
            "Received: session=None, and there is no default session"
        )
    return session


def _graph_of(session: Any) -> contextlib.AbstractContextManager:
    return tf.init_scope() if session is None else session.graph.as_default()


def _run(instruction: Any, session: Any) -> Any:
    return instruction if session is None else session.run(instruction)


def _check(name: Any, partition_strategy: Any, optimizer_spec: Any) -> None:
    checked_name("name", name)
    check_choice("partition_strategy", partition_strategy, _STRATEGIES)
    if optimizer_spec is not None and not isinstance(optimizer_spec, HostEmbeddingOptimizerSpec):
        raise TypeError(
            "`optimizer_spec` must be a HostEmbeddingOptimizerSpec, or None for a table that is "
            f"not trained. Received: optimizer_spec={optimizer_spec!r}"
        )


def _check_table(table: Any, *, is_trained: bool) -> None:
    is_variable = isinstance(table, tf.Variable) and hasattr(table, "handle")
    if not is_variable and (is_trained or not isinstance(table, tf.Tensor)):
        raise TypeError(
            "`embedding_tensor` must be a resource variable of TensorFlow, or a tensor if it is "
            f"not trained. Received: embedding_tensor of type {type(table).__name__}"
            f"{', with an optimizer' if is_trained else ''}"
        )
    _check_spec(table.shape, table.dtype)


def _check_spec(shape: tf.TensorShape, dtype: tf.DType) -> None:
    if shape.rank != 2 or not shape.is_fully_defined() or 0 in shape:
        raise ValueError(
            "The table of a host embedding, `embedding_tensor`, must have the `shape` (tokens, "
            f"encoding), of two positive integers. Received: shape {shape}"
        )
    if dtype not in (tf.float16, tf.float32):
        raise TypeError(
            "The table of a host embedding, `embedding_tensor`, must have the `dtype` float16 or "
            f"float32, as IPUs compute in these. Received: {dtype.name}"
        )
