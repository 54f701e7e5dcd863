"""Lookup of rows in tables that are in the memory of the IPU."""

from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ops.argument_checks import check_integer, check_integers, check_tensor
from ipu_keras.ops.row_gather import rows_or_zeros, sum_of_rows
from ipu_keras.settings.arguments import noted
from ipu_keras.tracing.poplar_operation import differentiable, poplar_operation

_KIND = "EmbeddingLookup"


def embedding_lookup(
    params: Any, ids: Any, name: str | None = None, serialization_factor: int = 1
) -> tf.Tensor:
    """Looks up rows of a table.

    The row of an id that is not in the table is zeros, and nothing is added to the table's
    gradient for it, with and without serialization and however the program is run. The gradient
    is dense: a row that several ids ask for gets the sum of what they bring.

    Args:
        params: The table, a tensor of the shape `(rows, ...)`.
        ids: A tensor of integers, of any shape.
        name: Name of the operation.
        serialization_factor: Number of lookups, in as many parts of the table, into which this
            one is broken up. That takes less memory at a time and more computation, and makes
            sense for tables that another operation uses too, such as a matrix multiplication. It
            must divide the number of rows.

    Returns:
        A tensor of the table's type, of the shape `(*ids.shape, *params.shape[1:])`.

    Raises:
        TypeError: `ids` is not a tensor of integers.
        ValueError: The factor is less than 1, or does not divide the number of rows; or the
            table has no rows.

    Example:

    >>> table = tf.constant([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]])
    >>> print(embedding_lookup(table, [3, 0, 4], serialization_factor=2).numpy())
    [[6. 7.]
     [0. 1.]
     [0. 0.]]
    """
    params = check_tensor("params", params)
    if params.shape.rank == 0:
        raise ValueError(
            "`params` must be a table, whose first axis counts its rows. "
            "Received: params of shape ()"
        )
    ids = integers(ids, "ids")
    num_rows = static_sizes(params)[0] if params.shape.rank else None
    serialization_factor = checked_serialization_factor(serialization_factor, num_rows)
    with tf.name_scope(name or "embedding_lookup"):
        if serialization_factor == 1:
            with poplar_operation(_KIND):
                return rows_or_zeros(params, ids, _in_table(ids, params))
        return _serialized(params, ids, serialization_factor)


def checked_serialization_factor(value: Any, num_rows: int | None, table: str = "params") -> int:
    """Returns a factor that divides a table's rows; `table` is the users' name of table or
    size."""
    factor = check_integer("serialization_factor", value)
    if factor < 1:
        raise noted(
            ValueError(f"serialization_factor has to be at least 1, but was {factor}."),
            "Use 1 for a lookup in the whole table at once. Received: "
            f"serialization_factor={factor}",
        )
    if factor > 1 and (num_rows is None or num_rows % factor):
        raise noted(
            ValueError(
                f"The serialization_factor ({factor}) must divide the size of the first "
                f"dimension of params ({num_rows})."
            ),
            "Its parts have to be alike: use a divisor, or a table with more rows. Received: "
            f"serialization_factor={factor} for {num_rows} rows of `{table}`",
        )
    return factor


def integers(values: Any, argument: str) -> tf.Tensor:
    """Returns a tensor of int32, or of int64 if its type has numbers that int32 lacks."""
    tensor = check_integers(argument, values)
    if tensor.dtype in (tf.uint32, tf.uint64):
        return tf.cast(tensor, tf.int64)
    return tensor if tensor.dtype == tf.int64 else tf.cast(tensor, tf.int32)


def _serialized(params: tf.Tensor, ids: tf.Tensor, factor: int) -> tf.Tensor:
    """Returns the lookup as one in each part of the table, each of which has some of the ids."""
    size = static_sizes(params)[0] // factor
    starts = range(0, static_sizes(params)[0], size)

    def run(params):
        found = None
        for start in starts:
            with poplar_operation(_KIND):
                part, own = params[start : start + size], ids - start
                rows = rows_or_zeros(part, own, _in_table(own, part))
                # An id is in exactly one part, and has zeros from all others, so that the sum is
                # its row.
                found = rows if found is None else found + rows

        def gradient(upstream):
            sums = []
            for start in starts:
                with poplar_operation(_KIND):
                    own = ids - start
                    exist = (own >= 0) & (own < size)
                    sums.append(sum_of_rows(upstream, own, exist, size))
            return tf.concat(sums, axis=0)

        return found, gradient

    return differentiable(run, params)


def _in_table(ids: tf.Tensor, params: tf.Tensor) -> tf.Tensor:
    """Whether each id is that of a row that exists."""
    size = static_sizes(params)[0]
    return (ids >= 0) & (ids < (tf.shape(params, ids.dtype)[0] if size is None else size))
