"""Batches of padded sequences without their padding.

IPU programs are static, so the tensor that holds the tokens of a batch has a fixed size too: the
most tokens that it can take. A batch with more of them is processed in several chunks.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.tracing.poplar_operation import differentiable, poplar_operation

_KIND = "SequenceSlice"


def pack(sequences: tf.Tensor, lengths: tf.Tensor, num_tokens: int) -> tf.Tensor:
    """Puts the tokens of padded sequences one after the other, as `(num_tokens, ...)`.

    Args:
        sequences: `(batch, length, ...)`, each sequence at the start of its row.
        lengths: `(batch,)`, how many tokens of each row belong to its sequence, of type int32.
        num_tokens: Rows of the result. If there are fewer tokens, zeros follow; if there are
            more, the last ones are left out.

    Example:

    >>> pack(tf.constant([[1, 0, 0], [2, 3, 0]]), tf.constant([1, 2]), 4).numpy()
    array([1, 2, 3, 0], dtype=int32)
    """
    length = static_sizes(sequences)[1]

    def run(sequences):
        flat = tf.reshape(sequences, (-1, *static_sizes(sequences)[2:]))
        ends = tf.cumsum(lengths)
        tokens = tf.range(num_tokens)
        before = tf.cast(tokens[:, tf.newaxis] >= ends, tf.int32)
        row = tf.reduce_sum(before, axis=1)
        exist = tokens < ends[-1]
        # A token moves forward by the difference between where its row starts with and without
        # padding.
        starts = ends - lengths
        row = tf.where(exist, row, 0)
        source = row * length + tokens - tf.gather(starts, row)
        return _taken(flat, source, exist), lambda upstream: unpack(upstream, lengths, length)

    with poplar_operation(_KIND):
        return differentiable(run, sequences)


def unpack(tokens: tf.Tensor, lengths: tf.Tensor, sequence_length: int) -> tf.Tensor:
    """Takes back what `pack` did: gives each sequence a row of its own, padded with zeros.

    Example:

    >>> unpack(tf.constant([1, 2, 3, 0]), tf.constant([1, 2]), 3).numpy()
    array([[1, 0, 0],
           [2, 3, 0]], dtype=int32)
    """
    num_tokens = static_sizes(tokens)[0]

    def run(tokens):
        positions = tf.range(sequence_length)
        source = tf.cumsum(lengths, exclusive=True)[:, tf.newaxis] + positions
        exist = (positions < lengths[:, tf.newaxis]) & (source < num_tokens)
        return _taken(tokens, source, exist), lambda upstream: pack(upstream, lengths, num_tokens)

    with poplar_operation(_KIND):
        return differentiable(run, tokens)


def _taken(values: tf.Tensor, source: tf.Tensor, exist: tf.Tensor) -> tf.Tensor:
    found = tf.gather(values, tf.where(exist, source, 0))
    for _ in static_sizes(values)[1:]:
        exist = exist[..., tf.newaxis]
    return tf.where(exist, found, tf.zeros([], values.dtype))


@dataclass(frozen=True)
class Chunk:
    """Some rows of a batch that are processed together.

    Args:
        rows: Tensors whose first axis is the row, those of other chunks among them.
        lengths: For the first ones of `rows`, the tokens of each row; 0 for rows of other
            chunks.
        parameters: Tensors that all chunks share.
        first_row: Number of the chunk's first row in the batch, a scalar that is unique to it.
    """

    rows: tuple[tf.Tensor, ...]
    lengths: tuple[tf.Tensor, ...]
    parameters: tuple[tf.Tensor, ...]
    first_row: tf.Tensor


@dataclass(frozen=True, kw_only=True)
class ChunkSizes:
    """How large a chunk may be, in rows and in tokens of the first tensors of rows.

    A batch of more rows is worked on in groups of `max_rows`. A row alone never has more tokens.
    """

    max_rows: int
    max_tokens: tuple[int, ...]


def map_chunks(
    function: Callable[[Chunk], tf.Tensor],
    rows: Sequence[tf.Tensor],
    lengths: Sequence[tf.Tensor],
    parameters: Sequence[tf.Tensor],
    sizes: ChunkSizes,
    result: tf.TensorSpec,
) -> tf.Tensor:
    """Computes the results of the rows of a batch, `(batch, *result.shape)`, chunk by chunk.

    A group of rows makes one chunk if all of its tokens fit, and more if not. The number is
    known only when it runs, which takes a loop. The loop's gradient computes each chunk again,
    so that what it keeps does not depend on their number. A group whose rows always fit has no
    loop.

    Args:
        function: Computes the result of each row of a chunk. It is traced again for the
            gradient, and must then compute the same.
        rows: Tensors `(batch, ...)` of floating point numbers.
        lengths: For the first ones of `rows`, which are sequences, the tokens of each row,
            `(batch,)` of int32.
        parameters: Other tensors of floating point numbers that get a gradient.
        result: Shape and type of one row's result.
    """
    batch = static_sizes(lengths[0])[0]
    size = sizes.max_rows if batch is None else min(batch, sizes.max_rows)

    def run(first_row, rows, lengths):
        chunk = Chunk(tuple(rows), tuple(lengths), tuple(parameters), first_row)
        always_fits = (
            size * static_sizes(r)[1] <= n for r, n in zip(rows, sizes.max_tokens, strict=False)
        )
        if all(always_fits):
            return function(chunk)
        return _in_turn(function, chunk, sizes.max_tokens, result)

    if batch == size:
        return run(tf.constant(0), rows, lengths)
    given = tf.shape(lengths[0])[0]
    groups = (given + size - 1) // size if batch is None else math.ceil(batch / size)
    grouped = [_grouped(tensor, groups, size) for tensor in (*rows, *lengths)]

    def step(group, found):
        own = [tensor[group] for tensor in grouped]
        part = run(group * size, own[: len(rows)], own[len(rows) :])
        return group + 1, found.write(group, part)

    results = tf.TensorArray(result.dtype, groups, element_shape=(size, *static_sizes(result)))
    _, results = tf.while_loop(
        lambda group, _: group < groups,
        step,
        (tf.constant(0), results),
        maximum_iterations=groups,
    )
    flat = tf.reshape(results.stack(), (-1, *static_sizes(result)))
    return flat[:given] if batch is None else flat[:batch]


def _grouped(tensor: tf.Tensor, groups: int | tf.Tensor, size: int) -> tf.Tensor:
    """Returns the rows in groups, with rows of zeros after the last."""
    missing = groups * size - tf.shape(tensor)[0]
    padded = tf.pad(tensor, [[0, missing], *[[0, 0]] * (tensor.shape.rank - 1)])
    return tf.reshape(padded, (groups, size, *static_sizes(tensor)[1:]))


def _in_turn(
    function: Callable[[Chunk], tf.Tensor],
    group: Chunk,
    max_tokens: Sequence[int],
    result: tf.TensorSpec,
) -> tf.Tensor:
    """Returns the results of a group of rows, in as many chunks as their tokens need."""
    size = static_sizes(group.lengths[0])[0]
    num_rows = len(group.rows)

    def chunk_from(start, tensors):
        """Returns the next chunk, a mask of the rows that are its own, and where the chunk after
        it starts."""
        active = tf.range(size) >= start
        for lengths, most in zip(group.lengths, max_tokens, strict=True):
            active &= tf.cumsum(tf.where(tf.range(size) >= start, lengths, 0)) <= most
        chunk = Chunk(
            tuple(tensors[:num_rows]),
            tuple(tf.where(active, lengths, 0) for lengths in group.lengths),
            tuple(tensors[num_rows:]),
            group.first_row + start,
        )
        mask = tf.reshape(active, (size, *[1] * result.shape.rank))
        return chunk, mask, start + tf.reduce_sum(tf.cast(active, tf.int32))

    def run(*tensors):
        def forward(start, results):
            chunk, mask, end = chunk_from(start, tensors)
            return end, tf.where(mask, function(chunk), results)

        def gradient(upstream):
            def backward(start, *gradients):
                own = [tf.identity(tensor) for tensor in tensors]
                chunk, mask, end = chunk_from(start, own)
                with tf.GradientTape() as tape:
                    tape.watch(own)
                    found = function(chunk)
                masked = tf.where(mask, upstream, tf.zeros([], upstream.dtype))
                more = tape.gradient(found, own, masked, tf.UnconnectedGradients.ZERO)
                return end, *(g + m for g, m in zip(gradients, more, strict=True))

            _, *gradients = _loop(backward, size, *(tf.zeros_like(tensor) for tensor in tensors))
            return gradients

        _, results = _loop(forward, size, tf.zeros((size, *static_sizes(result)), result.dtype))
        return results, gradient

    return differentiable(run, *group.rows, *group.parameters)


def _loop(step: Callable, size: int, *carried: tf.Tensor) -> Any:
    # No `maximum_iterations`: the cost model would count that many chunks, though most data
    # have enough padding to need one.
    return tf.while_loop(lambda start, *_: start < size, step, (tf.constant(0), *carried))
