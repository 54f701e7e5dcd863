"""Which shard, one IPU of several, the operations of a graph run on."""

import collections
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.functions import attribute_scope, is_trace
from ipu_keras.internals.tensorflow.operations import set_attribute
from ipu_keras.internals.tensorflow.xla import sharding_of, sharding_on
from ipu_keras.tracing.frontend_attributes import (
    SHARD,
    attributed,
    attributes_of,
    set_attribute_of,
    shard_in,
)
from ipu_keras.tracing.replication import note_shards

# XLA looks for this attribute too. In functions, which XLA may compile for one CPU, it must not
# find it: there a frontend attribute says the shard.
_SHARDING = "_XlaSharding"
_COLOCATION_PREFIX = "loc:@"


def dependencies(roots: Iterable[Any]) -> list[tf.Operation]:
    """Returns all operations that others need.

    Args:
        roots: Operations, or tensors of a graph.

    Returns:
        The roots and their ancestors, by data or by control, each once; the nearest first.

    Raises:
        TypeError: One of the roots is neither an operation nor a tensor of a graph.

    Example:

    >>> with tf.Graph().as_default():
    ...     a, b = tf.constant(1.0, name="a"), tf.constant(2.0, name="b")
    ...     found = dependencies([(a * 3.0).op])
    >>> a.op in found, b.op in found
    (True, False)
    """
    if not isinstance(roots, Iterable):
        raise TypeError(
            f"`roots` must be a list of operations or tensors. Received: roots={roots!r}"
        )
    pending = collections.deque(_operation(root) for root in roots)
    found: dict[tf.Operation, None] = {}
    while pending:
        op = pending.popleft()
        if op not in found:
            found[op] = None
            pending.extend(t.op for t in op.inputs)
            pending.extend(op.control_inputs)
    return list(found)


def has_attr(o: tf.Operation, attr_name: str) -> bool:
    """Whether an operation has an attribute.

    Args:
        o: The operation that is asked.
        attr_name: Name of the attribute.

    Raises:
        TypeError: `o` is no operation, or `attr_name` no text.
    """
    _check("o", o, tf.Operation)
    _check("attr_name", attr_name, str)
    try:
        o.get_attr(attr_name)
    except ValueError:
        return False
    return True


def get_shard_from_colocation(op: tf.Operation) -> int | None:
    """Returns the shard of an operation that this one is to be colocated with.

    Args:
        op: An operation, such as one of a backward pass.

    Returns:
        The number of the shard; `None` if no such operation has one.

    Raises:
        TypeError: `op` is no operation.
    """
    _check("op", op, tf.Operation)
    shards = (shard_of(other) for other in _colocated(op))
    return next((shard for shard in shards if shard is not None), None)


def propagate_sharding(g: tf.Graph) -> None:
    """Puts operations of the backward pass on the shards of those that they are colocated with.

    TensorFlow colocates them with the forward pass when gradients are computed with
    `colocate_gradients_with_ops=True`, and weight updates with their variables. Operations
    that have a shard keep it.

    Args:
        g: The graph, whose operations are changed in place.

    Raises:
        TypeError: `g` is no graph.

    Example:

    >>> with tf.Graph().as_default() as graph:
    ...     x = tf.constant(2.0)
    ...     y = x * x
    ...     assign_shard(y.op, 1)
    ...     gradient, = tf.compat.v1.gradients(y, x, colocate_gradients_with_ops=True)
    ...     propagate_sharding(graph)
    >>> shard_of(gradient.op)
    1
    """
    _check("g", g, tf.Graph)
    for op in g.get_operations():
        if shard_of(op) is None and (shard := get_shard_from_colocation(op)) is not None:
            assign_shard(op, shard)


def shard_of(op: tf.Operation) -> int | None:
    """Returns the shard of an operation; `None` if it has none, or is spread over several."""
    sharding = sharding_of(op)
    if sharding is None:
        return shard_in(attributes_of(op))
    return sharding.tile_assignment_devices[0] if sharding.type == sharding.MAXIMAL else None


def assign_shard(op: tf.Operation, shard: int) -> None:
    """Puts an operation on a shard, in place."""
    if is_trace(op.graph):
        set_attribute_of(op, SHARD, str(shard))
    else:
        set_attribute(op, _SHARDING, tf.compat.v1.AttrValue(s=sharding_on(shard)))


@contextlib.contextmanager
def sharded(graph: Any, shards: Sequence[int]) -> Iterator[None]:
    """Puts new operations of a graph on shards; reports and costs know the first one."""
    if is_trace(graph):
        note_shards(graph, max(shards) + 1)
        with attributed(graph, SHARD, ",".join(map(str, shards))):
            yield
    else:
        sharding = tf.compat.v1.AttrValue(s=sharding_on(*shards))
        with attribute_scope(graph, {_SHARDING: sharding}):
            yield


def _operation(root: Any) -> tf.Operation:
    operation = root.op if tf.is_symbolic_tensor(root) else root
    _check("roots", operation, tf.Operation)
    return operation


def _check(argument: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(
            f"`{argument}` must be of type {kind.__name__}. "
            f"Received: {argument}={value!r} of type {type(value).__name__}"
        )


def _colocated(op: tf.Operation) -> Iterator[tf.Operation]:
    for group in op.colocation_groups():
        try:
            yield op.graph.get_operation_by_name(group.decode().removeprefix(_COLOCATION_PREFIX))
        except KeyError:
            # In a loop or a branch, an operation of the graph around it.
            continue
