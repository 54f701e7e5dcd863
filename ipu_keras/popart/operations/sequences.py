"""Sequences of tensors, which are Python lists while tracing and never part of a program."""

from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.operation import operation
from ipu_keras.popart.operations.sizes import axis_within, sizes_of


@operation("SequenceConstruct", since=11)
def sequence_construct(*inputs):
    return list(inputs)


@operation("SequenceEmpty", since=11)
def sequence_empty(*, dtype=None):
    # ONNX gives an empty sequence a type; a list has that of what is put into it.
    return []


@operation("SequenceLength", since=11)
def sequence_length(sequence):
    return np.array(len(sequence), np.int64)


@operation("SequenceAt", since=11, static=["position"])
def sequence_at(sequence, position):
    return sequence[_checked(position, -len(sequence), len(sequence) - 1)]


@operation("SequenceInsert", since=11, static=["position"])
def sequence_insert(sequence, tensor, position=None):
    number = len(sequence)
    at = number if position is None else _checked(position, -number, number)
    return [*sequence[:at], tensor, *sequence[at:]]


@operation("SequenceErase", since=11, static=["position"])
def sequence_erase(sequence, position=None):
    number = len(sequence)
    last = np.array(-1)
    at = _checked(last if position is None else position, -number, number - 1) % number
    return [*sequence[:at], *sequence[at + 1 :]]


def _checked(position: np.ndarray, lowest: int, highest: int) -> int:
    number = int(position.item())
    if not lowest <= number <= highest:
        raise popart_exception(
            f"The position must be from {lowest} to {highest}, by the length of the sequence. "
            f"Received: {number}"
        )
    return number


@operation("SplitToSequence", since=11, static=["split"])
def split_to_sequence(x, split=None, *, axis, keepdims):
    axis = axis_within(axis, x.shape.rank)
    if split is None:
        parts = tf.split(x, sizes_of(x)[axis], axis)
        return parts if keepdims else [tf.squeeze(part, axis) for part in parts]
    return tf.split(x, _lengths(split, sizes_of(x)[axis]), axis)


def _lengths(split: np.ndarray, size: int) -> Any:
    """Returns the length of each part; a single number is that of all parts but the last."""
    if split.ndim:
        return split
    length = int(split)
    return [min(length, size - begin) for begin in range(0, size, length)]


@operation("ConcatFromSequence", since=11)
def concat_from_sequence(sequence, *, axis, new_axis):
    return tf.stack(sequence, axis) if new_axis else tf.concat(sequence, axis)
