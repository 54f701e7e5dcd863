"""Sums over replicas, and the promise that they have equal values."""

from typing import Any

import tensorflow as tf

from ipu_keras.ops.argument_checks import check_flag, check_tensor
from ipu_keras.ops.collectives import all_reduce_sum, replica_groups
from ipu_keras.tracing.replication import assumed_equal


def cross_replica_sum(
    x: Any, replica_group_size: int | None = None, name: str | None = None
) -> tf.Tensor:
    """Sums a tensor over replicas.

    The gradient is the sum of the gradients of the replicas.

    Args:
        x: The tensor of this replica, of float16, float32, int32 or uint32.
        replica_group_size: How many neighbouring replicas add up their tensors; `None` for
            all of them. It must divide their number.
        name: Name of the operation.

    Returns:
        A tensor of the same shape, equal in all replicas of a group.

    Raises:
        TypeError: `x` has another type.
        ValueError: The group does not divide the replicas, or the shape of `x` is not
            fully defined.

    Example:

    >>> float(cross_replica_sum(3.0))  # without replicas
    3.0
    """
    groups = replica_groups(replica_group_size, "replica_group_size")
    return all_reduce_sum(x, groups, name or "cross_replica_sum")


def cross_replica_mean(
    x: Any, replica_group_size: int | None = None, name: str | None = None
) -> tf.Tensor:
    """Averages a tensor over replicas.

    Args:
        x: The tensor of this replica, of float16 or float32. It is divided before it is
            added to the others, which could exceed the range of float16.
        replica_group_size: Size of a group, as for `cross_replica_sum`.
        name: Name of the operation.

    Returns:
        A tensor of the same shape, equal in all replicas of a group.

    Raises:
        TypeError: `x` has another type.
        ValueError: The group does not divide the replicas, or the shape of `x` is not
            fully defined.

    Example:

    >>> float(cross_replica_mean(3.0))  # without replicas
    3.0
    """
    groups = replica_groups(replica_group_size, "replica_group_size")
    x = check_tensor("x", x, (tf.float16, tf.float32))
    return all_reduce_sum(x / groups.size, groups, name or "cross_replica_mean")


def assume_equal_across_replicas(tensors: Any, inplace: bool = False) -> Any:
    """Promises that tensors are equal in all replicas.

    Use it for what decides about a loop or a branch with a collective in it, which hangs an
    IPU if replicas decide differently.

    Args:
        tensors: A tensor, or a structure of tensors. What happens is undefined if they
            differ between replicas.
        inplace: Whether an IPU marks the tensors themselves, as slices of others need,
            or copies of them. Their values are the same either way.

    Returns:
        The tensors to use instead, in the same structure.

    Raises:
        TypeError: `tensors` contains something else, or `inplace` is not a boolean.

    Example:

    >>> marked = assume_equal_across_replicas({"loss": tf.constant(2.0)})
    >>> float(marked["loss"])
    2.0
    """
    inplace = check_flag("inplace", inplace)
    return tf.nest.map_structure(
        lambda t: assumed_equal(check_tensor("tensors", t), inplace=inplace), tensors
    )
