"""Inputs that all operations of connectionist temporal classification (CTC) share."""

from typing import Any, NamedTuple

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ops.argument_checks import check_integer, check_integers, check_tensor

# Logarithm of a probability of zero. Unlike -inf it can be subtracted from itself without NaN,
# and sums of many are still far above the smallest float32, -3.4e38.
LOG_ZERO = -1e30


class Given(NamedTuple):
    """The value of an argument, with the name that the operation in question gives it."""

    value: Any
    name: str


def time_major(data: Given) -> tf.Tensor:
    """Returns the tensor `(max_time, batch, num_classes)` that was given, of float16 or
    float32."""
    name = data.name
    tensor = check_tensor(name, data.value, (tf.float16, tf.float32))
    # The batch size may be open: Keras calls layers so while a model is made.
    if tensor.shape.rank != 3 or not static_sizes(tensor)[0] or not static_sizes(tensor)[2]:
        raise ValueError(
            f"`{name}` must have the shape (max_time, batch_size, num_classes), with known "
            f"numbers of steps and classes. Received: {name}.shape={tensor.shape}"
        )
    return tensor


def integers(given: Given, shape: tuple[int | None, ...], beside: Given) -> tf.Tensor:
    """Returns the int32 tensor of lengths or labels that was given.

    `shape` must be compatible with the tensor's; `beside` is the argument that it comes from.
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
    """Returns the class that is the blank, counted from 0; a negative index counts from the
    last."""
    index = check_integer("blank_index", blank_index)
    if not -num_classes <= index < num_classes:
        raise ValueError(
            f"`blank_index` must be one of the {num_classes} classes of the data, or negative to "
            f"count from the last. Received: blank_index={blank_index}"
        )
    return index % num_classes


def log_probabilities(data: tf.Tensor, *, from_logits: bool) -> tf.Tensor:
    """Returns logits, or log probabilities, as log probabilities of float32, at least
    `LOG_ZERO`."""
    # float16 would round sums over many steps, beyond 2048 even to even numbers.
    data = tf.cast(data, tf.float32)
    return tf.maximum(tf.nn.log_softmax(data) if from_logits else data, LOG_ZERO)


def is_before_end(lengths: tf.Tensor, max_time: int) -> tf.Tensor:
    """Returns which steps belong to a sequence, as bool of the shape `(max_time, batch)`."""
    return tf.range(max_time)[:, tf.newaxis] < lengths


def log_add(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Returns the logarithm of the sum of two numbers whose logarithms are given.

    The larger one is taken out first, so that the exponential cannot overflow.
    """
    return tf.maximum(a, b) + tf.math.log1p(tf.exp(-tf.abs(a - b)))
