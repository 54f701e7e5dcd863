"""Collectives that move data between replicas."""

from typing import Any

import tensorflow as tf

from ipu_keras.ops import collectives
from ipu_keras.ops.argument_checks import positive_integer
from ipu_keras.ops.collectives import replica_groups


def all_gather(x: Any, replication_factor: int, name: str | None = None) -> tf.Tensor:
    """Gathers the data of all replicas on all replicas.

    The gradient is a `reduce_scatter` of the gradients.

    Args:
        x: The tensor of this replica, of float16, float32, int32, uint32, bool, int8 or uint8.
        replication_factor: How many neighbouring replicas gather each other's data. It must
            divide the number of replicas.
        name: Name of the operation.

    Returns:
        A tensor of the shape `(replication_factor, *x.shape)`, equal in all replicas of a group.

    Raises:
        TypeError: `x` has another type.
        ValueError: The group does not divide the replicas, or the shape of `x` is not
            fully defined.

    Example:

    >>> all_gather(tf.ones((2, 3)), 1).shape  # without replicas
    TensorShape([1, 2, 3])
    """
    factor = positive_integer("replication_factor", replication_factor)
    groups = replica_groups(factor, "replication_factor")
    return collectives.all_gather(x, groups, name)


def all_to_all(
    x: Any,
    split_dimension: int,
    concat_dimension: int,
    replication_factor: int,
    name: str | None = None,
) -> tf.Tensor:
    """Gives each replica its block of the tensors of all replicas.

    Replica `k` gets the `k`-th block of every replica's tensor. The gradient takes all
    blocks back to where they came from.

    Args:
        x: The tensor of this replica, of float16, float32, int32, uint32, bool, int8 or uint8.
        split_dimension: The axis along which `x` is split into as many blocks as there are
            replicas.
        concat_dimension: The axis along which the blocks that a replica gets are put
            together, in the order of the replicas.
        replication_factor: The number of replicas.
        name: Name of the operation.

    Returns:
        A tensor with as many elements as `x`.

    Raises:
        TypeError: `x` has another type.
        ValueError: There is another number of replicas, it does not divide the axis to
            split, or `x` has no such axes.

    Example:

    >>> all_to_all(tf.ones((2, 3)), 0, 1, 1).shape  # without replicas
    TensorShape([2, 3])
    """
    factor = positive_integer("replication_factor", replication_factor)
    groups = replica_groups(factor, "replication_factor")
    if groups.size != groups.num_replicas:
        raise ValueError(
            "`replication_factor` must be the number of replicas of the program. Received: "
            f"replication_factor={groups.size} in a program of {groups.num_replicas} replica(s)"
        )
    return collectives.all_to_all(x, split_dimension, concat_dimension, groups, name)
