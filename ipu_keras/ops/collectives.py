"""Collectives of replicas with their gradients, behind the documented operations.

Without replicas there is nothing to exchange: then each collective returns what it would for a
group of one, and leaves no trace. `groups` says which replicas work together; all shapes are
those of one replica.
"""

from collections.abc import Collection
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ops.argument_checks import check_tensor, integer_in, received
from ipu_keras.tracing.poplar_operation import differentiable
from ipu_keras.tracing.replication import (
    Collective,
    ReplicaGroups,
    all_replicas,
    current_replicas,
    mark,
    mark_alone,
    need_replicas,
    replica_index,
)

# Types that a collective can add, and those that it can move.
_NUMBERS = ("float16", "float32", "int32", "uint32")
_MOVED = (*_NUMBERS, "bool", "int8", "uint8")


def replica_groups(size: int | None, argument: str) -> ReplicaGroups:
    """Returns the groups of the program that is being traced.

    `size` is the number of replicas in a group, a divisor of all, or None for all of them;
    `argument` is its name in the error.
    """
    num_replicas = all_replicas()
    if size is None:
        return ReplicaGroups(num_replicas, num_replicas)
    count = integer_in(size)
    if count is not None and count > 1 and num_replicas % count:
        need_replicas(count)
    if count is None or count < 1 or num_replicas % count:
        raise ValueError(
            f"`{argument}` must be a positive integer that divides the number of replicas. "
            f"Received: {received(argument, size)} in a program of {num_replicas} replica(s)"
        )
    return ReplicaGroups(num_replicas, count)


def groups_of_process() -> ReplicaGroups:
    """Returns one group of the replicas that are traced for, without those of other processes."""
    return ReplicaGroups(current_replicas(), current_replicas())


def all_reduce_sum(x: Any, groups: ReplicaGroups, name: str | None = None) -> tf.Tensor:
    """Adds the tensors of all replicas of a group; the result is equal in all of them."""
    x = _tensor(x, _NUMBERS, name or "all_reduce")

    def run(x):
        def gradient(upstream):
            return all_reduce_sum(upstream, groups)

        return _mark(x, Collective("all-reduce", groups, "add"), x.shape, name), gradient

    return _alone(x) if groups.size == 1 else differentiable(run, x)


def all_gather(x: Any, groups: ReplicaGroups, name: str | None = None) -> tf.Tensor:
    """Stacks the tensors of all replicas of a group, to `(group, *x.shape)` in each of them."""
    x = _tensor(x, _MOVED, name or "all_gather")

    def run(x):
        def gradient(upstream):
            mine = reduce_scatter(tf.reshape(upstream, [-1]), "add", groups)
            return tf.reshape(mine, x.shape)

        shape = (groups.size, *static_sizes(x))
        return _mark(x, Collective("all-gather", groups, dimensions=(0,)), shape, name), gradient

    return _alone(x)[tf.newaxis] if groups.size == 1 else differentiable(run, x)


def all_to_all(
    x: Any, split: int, concat: int, groups: ReplicaGroups, name: str | None = None
) -> tf.Tensor:
    """Gives each replica of a group its block of each one's tensor.

    `split` is the axis along which the tensor is cut into as many blocks as there are replicas,
    and `concat` the one along which blocks are put together, in the order of the replicas.
    """
    x = _tensor(x, _MOVED, name or "all_to_all")
    split = _axis("split_dimension", split, x.shape)
    concat = _axis("concat_dimension", concat, x.shape)
    if static_sizes(x)[split] % groups.size:
        raise ValueError(
            "The axis to split must be a multiple of the replicas that exchange its blocks. "
            f"Received: split_dimension={split} of shape {x.shape} with {groups.size} replicas"
        )
    shape = list(static_sizes(x))
    shape[split] //= groups.size
    shape[concat] *= groups.size

    def run(x):
        def gradient(upstream):
            return all_to_all(upstream, concat, split, groups)

        collective = Collective("all-to-all", groups, dimensions=(split, concat))
        return _mark(x, collective, shape, name), gradient

    return _alone(x) if groups.size == 1 else differentiable(run, x)


def reduce_scatter(
    x: Any, operation: str, groups: ReplicaGroups, name: str | None = None
) -> tf.Tensor:
    """Reduces a vector over replicas, and leaves each of a group with its part of the result.

    Args:
        x: A vector of float16, float32, int32 or uint32; of bool for the logical operations.
        operation: `"add"`, `"multiply"`, `"minimum"`, `"maximum"`, `"and"` or `"or"`.

    Returns:
        A vector of the size `ceil(x.shape[0] / group)`. Zeros fill up the last part.
    """
    is_logical = operation in ("and", "or")
    x = _tensor(x, ("bool",) if is_logical else _NUMBERS, name or "reduce_scatter")
    index = replica_index() % groups.size

    def run(x):
        parts = _padded_parts(x, groups)
        collective = Collective("reduce-scatter", groups, operation, (0,))
        result = _mark(tf.reshape(parts, [-1]), collective, static_sizes(parts)[1:], name)

        def gradient(upstream):
            share = _whole(upstream, static_sizes(x)[0], groups)
            if operation == "add":
                return share
            if operation == "multiply":
                return share * _product_of_others(x, index, groups)
            # Replicas that tie for the minimum or maximum share its gradient, as in
            # `tf.reduce_max`.
            chosen = tf.cast(tf.equal(x, _whole(result, static_sizes(x)[0], groups)), x.dtype)
            return share * chosen / all_reduce_sum(chosen, groups)

        return result, gradient

    return _alone(x) if groups.size == 1 else differentiable(run, x)


def own_part(x: Any, groups: ReplicaGroups, name: str | None = None) -> tf.Tensor:
    """Returns the part that `reduce_scatter` would leave this replica with if it added nothing."""
    x = _tensor(x, _MOVED, name or "reduce_scatter")
    if groups.size == 1:
        return _alone(x)
    return tf.identity(_padded_parts(x, groups)[replica_index() % groups.size], name=name)


def _axis(argument: str, value: Any, shape: tf.TensorShape) -> int:
    axis = integer_in(value)
    if axis is None or axis not in range(shape.rank):
        raise ValueError(
            f"`{argument}` must be an axis of the tensor, counted from 0. "
            f"Received: {received(argument, value)} for shape {shape}"
        )
    return axis


def _whole(part: tf.Tensor, size: int, groups: ReplicaGroups) -> tf.Tensor:
    """Returns the vector of which each replica of a group has a part."""
    return tf.reshape(all_gather(part, groups), [-1])[:size]


def _product_of_others(x: tf.Tensor, index: tf.Tensor, groups: ReplicaGroups) -> tf.Tensor:
    """Returns the product of the other replicas' vectors; a quotient would fail for zeros."""
    is_own = tf.equal(tf.range(groups.size), index)
    factors = tf.where(is_own[:, tf.newaxis], tf.ones_like(x), all_gather(x, groups))
    return tf.reduce_prod(factors, axis=0)


def _padded_parts(x: tf.Tensor, groups: ReplicaGroups) -> tf.Tensor:
    """Returns a vector as `(group, part)`, with zeros at its end."""
    padding = -static_sizes(x)[0] % groups.size
    padded = tf.pad(x, [[0, padding]]) if padding else x
    return tf.reshape(padded, [groups.size, -1])


def _mark(x: tf.Tensor, collective: Collective, shape: Any, name: str | None) -> tf.Tensor:
    return mark(x, collective, tuple(shape), name or collective.kind.replace("-", "_"))


def _alone(x: tf.Tensor) -> tf.Tensor:
    if all_replicas() == 1:
        mark_alone()
    return x


def _tensor(x: Any, dtypes: Collection[str], name: str) -> tf.Tensor:
    x = check_tensor("x", x)
    if x.dtype.name not in dtypes:
        raise TypeError(
            f"`{name}` takes tensors of {', '.join(dtypes)}; cast it first. "
            f"Received: `x`, a tensor of {x.dtype.name}"
        )
    # While a model is made, Keras calls layers with an open batch size; there are no replicas yet.
    if all_replicas() > 1 and not x.shape.is_fully_defined():
        raise ValueError(
            f"`{name}` takes tensors whose shape is fully defined, as IPU programs are static. "
            f"Give every dimension. Received: `x` of shape {x.shape}"
        )
    return x
