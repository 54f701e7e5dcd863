"""Reductions over replicas whose result is spread over them."""

from typing import Any

import tensorflow as tf

from ipu_keras.ops import collectives
from ipu_keras.ops.argument_checks import check_choice, check_tensor, positive_integer
from ipu_keras.ops.collectives import replica_groups

# XLA's names of the reductions that need no operation before or after the collective.
_OPERATIONS = {
    "COLLECTIVE_OP_ADD": "add",
    "COLLECTIVE_OP_MUL": "multiply",
    "COLLECTIVE_OP_MIN": "minimum",
    "COLLECTIVE_OP_MAX": "maximum",
    "COLLECTIVE_OP_LOGICAL_AND": "and",
    "COLLECTIVE_OP_LOGICAL_OR": "or",
}
_COMPOSED = ("COLLECTIVE_OP_SQUARE_ADD", "COLLECTIVE_OP_LOCAL", "COLLECTIVE_OP_MEAN")


def reduce_scatter(
    x: Any, replication_factor: int, op: str = "COLLECTIVE_OP_ADD", name: str | None = None
) -> tf.Tensor:
    """Reduces a vector over replicas, and leaves each replica with its part of the result.

    Args:
        x: The vector of this replica, of float16, float32, int32 or uint32; of bool for the
            logical operations.
        replication_factor: How many neighbouring replicas reduce their vectors. It must
            divide the number of replicas.
        op: How: `"COLLECTIVE_OP_ADD"`, `"COLLECTIVE_OP_MUL"`, `"COLLECTIVE_OP_MIN"`,
            `"COLLECTIVE_OP_MAX"`, `"COLLECTIVE_OP_LOGICAL_AND"`, `"COLLECTIVE_OP_LOGICAL_OR"`,
            `"COLLECTIVE_OP_SQUARE_ADD"` (the sum of squares), `"COLLECTIVE_OP_MEAN"` of
            floating point numbers, or `"COLLECTIVE_OP_LOCAL"`: each replica keeps its part
            of its own vector.
        name: Name of the operation.

    Returns:
        A vector of the size `ceil(x.shape[0] / replication_factor)`: the first one for the
        first replica of the group. Zeros fill up the last ones.

    Raises:
        TypeError: `x` has another type.
        ValueError: `x` is not a vector of known size, the group does not divide the replicas,
            or there is no such operation.

    Example:

    >>> reduce_scatter([1.0, 2.0, 3.0], 1).numpy()  # without replicas
    array([1., 2., 3.], dtype=float32)
    """
    factor = positive_integer("replication_factor", replication_factor)
    groups = replica_groups(factor, "replication_factor")
    x = check_tensor("x", x)
    if x.shape.rank != 1:
        raise ValueError(
            "`x` of `reduce_scatter` must be a tensor of rank 1: reshape it first. "
            f"Received: `x` of shape {x.shape}"
        )
    check_choice("op", op, (*_OPERATIONS, *_COMPOSED))
    if op == "COLLECTIVE_OP_LOCAL":
        return collectives.own_part(x, groups, name)
    if op == "COLLECTIVE_OP_SQUARE_ADD":
        return collectives.reduce_scatter(x * x, "add", groups, name)
    if op == "COLLECTIVE_OP_MEAN":
        return collectives.reduce_scatter(_share(x, groups.size), "add", groups, name)
    return collectives.reduce_scatter(x, _OPERATIONS[op], groups, name)


def _share(x: tf.Tensor, size: int) -> tf.Tensor:
    if not x.dtype.is_floating:
        raise TypeError(
            "The mean is one of floating point numbers; cast them first. "
            f"Received: `x`, a tensor of {x.dtype.name}"
        )
    # Divided before the sum, which could exceed the range of float16.
    return x / size
