"""What all operations of connectionist temporal classification (CTC) take."""

from typing import Any, NamedTuple

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ops.argument_checks import check_integer, check_integers, check_tensor

# Logarithm of a probability of zero. Unlike -inf, it can be added and subtracted; sums
# of many are still far above the smallest float32.
LOG_ZERO = -1e30


class Given(NamedTuple):
    """An argument that operations call differently.

    Args:
        value: Whatever the user gave.
        name: What users call it.
    """

    value: Any
    name: str


def time_major(data: Given) -> tf.Tensor:
    """The tensor `(max_time, batch, num_classes)` of float16 or float32 that was given.

    Args:
        data: What the user gave.

    Raises:
        TypeError: It has another type.
        ValueError: It has another rank, or unknown sizes.
    """
    name = data.name
    tensor = check_tensor(name, data.value, (tf.float16, tf.float32))
    # Keras calls layers with an open batch size while a model is made.
    if tensor.shape.rank != 3 or not static_sizes(tensor)[0] or not static_sizes(tensor)[2]:
        raise ValueError(
            f"`{name}` must have the shape (max_time, batch_size, num_classes), with known "
            f"numbers of steps and classes. Received: {name}.shape={tensor.shape}"
        )
    return tensor


def integers(given: Given, shape: tuple[int | None, ...], beside: Given) -> tf.Tensor:
    """The int32 tensor of lengths or labels that was given.

    Args:
        given: What the user gave.
        shape: What its shape must be compatible with.
        beside: What that shape is of.

    Raises:
        TypeError: It has no integers.
        ValueError: It has another shape.
    """
    name = given.name
    values = check_integers(name, given.value)
    if not values.shape.is_compatible_with(shape):
        expected = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(
            f"`{name}` must have a shape of rank {len(shape)} with the sizes ({expected}), "
            f"as `{beside.name}` has them. "
            f"Received: {name}.shape={values.shape}"
        )
    return tf.cast(values, tf.int32)


def blank_class(blank_index: int, num_classes: int) -> int:
    """The class that is the blank, counted from 0.

    Args:
        blank_index: Counted from 0, or from the end if it is negative.
        num_classes: With the blank.

    Raises:
        TypeError: `blank_index` is no integer.
        ValueError: There is no such class.
    """
    index = check_integer("blank_index", blank_index)
    if not -num_classes <= index < num_classes:
        raise ValueError(
            f"`blank_index` must be one of the {num_classes} classes of the data, or negative to "
            f"count from the last. Received: blank_index={blank_index}"
        )
    return index % num_classes


def log_probabilities(data: tf.Tensor, *, from_logits: bool) -> tf.Tensor:
    """The logarithms of probabilities as float32, none below `LOG_ZERO`.

    Args:
        data: Logits of any size, or log probabilities.
        from_logits: Which of these it is.
    """
    data = tf.cast(data, tf.float32)
    return tf.maximum(tf.nn.log_softmax(data) if from_logits else data, LOG_ZERO)


def is_before_end(lengths: tf.Tensor, max_time: int) -> tf.Tensor:
    """Which steps belong to a sequence, as bool of the shape `(max_time, batch)`.

    Args:
        lengths: Of the sequences, int32 of the shape `(batch,)`.
        max_time: Their common size.
    """
    return tf.range(max_time)[:, tf.newaxis] < lengths


def log_add(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """The logarithm of the sum of what two tensors are the logarithms of."""
    return tf.maximum(a, b) + tf.math.log1p(tf.exp(-tf.abs(a - b)))
