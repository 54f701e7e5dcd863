"""Losses of classifiers over many classes, only a sample of which each batch computes."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ops.argument_checks import (
    check_floating,
    check_tensor,
    converted,
    positive_integer,
)

# Added to the logit of a sampled class that is also a true one, so that its softmax is zero. A
# larger magnitude would leave the range of float16.
_NEVER = -30000.0


def nce_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Sequence[Any] | None = None,
    name: str = "nce_loss",
) -> tf.Tensor:
    """The noise-contrastive estimation loss: true classes are told from sampled ones.

    M. Gutmann and A. Hyvärinen, "Noise-contrastive estimation: a new estimation principle for
    unnormalized statistical models", AISTATS 2010. Use the whole sigmoid loss to evaluate.

    Args:
        weights: `(num_classes, dim)`, or a list of tensors of which this is the concatenation
            along the first axis.
        biases: Tensor of the shape `(num_classes,)`.
        labels: The true classes, integers `(batch, num_true)`. Without `sampled_values` they
            should be numbered by falling frequency.
        inputs: Tensor of the shape `(batch, dim)`.
        num_sampled: Number of classes that are sampled for the whole batch.
        num_classes: How many classes there are.
        num_true: Number of true classes of each example, each a target of `1 / num_true`.
        sampled_values: What one of TensorFlow's candidate samplers returns: the classes, how
            often each true class was to be expected, and how often each sampled one. `None`
            samples from a log-uniform distribution, without duplicates, in TensorFlow's
            kernel, which XLA lacks: a function with `jit_compile=True` needs these values.
        name: Name scope of the operations.

    Returns:
        The loss of each example, `(batch,)`.

    Raises:
        TypeError: Weights, biases or inputs are not floating point numbers.
        ValueError: `labels` does not have `num_true` classes per example, a count is not a
            positive integer, or the shapes do not fit.

    Example:

    >>> sampled = (tf.constant([1]), tf.constant([[0.5]]), tf.constant([0.5]))
    >>> loss = nce_loss(
    ...     tf.zeros((2, 3)), tf.zeros(2), [[0]], tf.ones((1, 3)), 1, 2, sampled_values=sampled
    ... )
    >>> print(loss.numpy().round(3))  # -log(2 / 3) - log(1 / 3), as all logits are log(2)
    [1.504]
    """
    with tf.name_scope(name):
        weights, biases, inputs = _tensors(weights, biases, inputs, num_classes)
        num_true = positive_integer("num_true", num_true)
        labels = _true_classes(labels, num_true, inputs)
        sample = _sample(labels, num_sampled, num_classes, sampled_values, None)
        true, sampled = _logits(weights, biases, labels, inputs, sample)
        targets = [tf.ones_like(true) / num_true, tf.zeros_like(sampled)]
        losses = tf.nn.sigmoid_cross_entropy_with_logits(
            labels=tf.concat(targets, axis=1), logits=tf.concat([true, sampled], axis=1)
        )
        return tf.reduce_sum(losses, axis=1)


def sampled_softmax_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Sequence[Any] | None = None,
    name: str = "sampled_softmax_loss",
    seed: int | None = None,
) -> tf.Tensor:
    """The loss of a softmax over the true classes and a sample of the others.

    S. Jean et al., "On using very large target vocabulary for neural machine translation", 2015,
    section 3. It is less than the loss of the whole softmax, which is the one to evaluate with.
    Where a sampled class is a true one of an example, it does not count for that example.

    Args:
        weights: `(num_classes, dim)`, or a list of tensors as for `nce_loss`.
        biases: Tensor of the shape `(num_classes,)`.
        labels: The true classes, integers `(batch, num_true)`, numbered as for `nce_loss`.
        inputs: Tensor of the shape `(batch, dim)`.
        num_sampled: Number of classes that are sampled for the whole batch.
        num_classes: How many classes there are.
        num_true: Number of true classes of each example, each a target of `1 / num_true`.
        sampled_values: What one of TensorFlow's candidate samplers returns, as for `nce_loss`.
        name: Name scope of the operations.
        seed: Seed of the sampler, if there are no `sampled_values`; `None` for TensorFlow's.

    Returns:
        The loss of each example, `(batch,)`.

    Raises:
        TypeError: Weights, biases or inputs are not floating point numbers.
        ValueError: `labels` does not have `num_true` classes per example, a count is not a
            positive integer, or the shapes do not fit.

    Example:

    >>> sampled = (tf.constant([1]), tf.constant([[0.5]]), tf.constant([0.5]))
    >>> loss = sampled_softmax_loss(
    ...     tf.zeros((2, 3)), tf.zeros(2), [[0]], tf.ones((1, 3)), 1, 2, sampled_values=sampled
    ... )
    >>> print(loss.numpy().round(3))  # log(2), as the two logits are equal
    [0.693]
    """
    with tf.name_scope(name):
        weights, biases, inputs = _tensors(weights, biases, inputs, num_classes)
        num_true = positive_integer("num_true", num_true)
        labels = _true_classes(labels, num_true, inputs)
        sample = _sample(labels, num_sampled, num_classes, sampled_values, seed)
        true, sampled = _logits(weights, biases, labels, inputs, sample)
        hits = tf.reduce_any(tf.equal(labels[:, :, tf.newaxis], sample[0]), axis=1)
        sampled += tf.cast(hits, sampled.dtype) * _NEVER
        targets = [tf.ones_like(true) / num_true, tf.zeros_like(sampled)]
        return tf.nn.softmax_cross_entropy_with_logits(
            labels=tf.stop_gradient(tf.concat(targets, axis=1)),
            logits=tf.concat([true, sampled], axis=1),
        )


def _logits(
    weights: tf.Tensor,
    biases: tf.Tensor,
    labels: tf.Tensor,
    inputs: tf.Tensor,
    sample: Sequence[tf.Tensor],
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the logits of true classes `(batch, num_true)` and sampled ones `(batch,
    num_sampled)`.

    The logarithm of how often the sampler was to give the class is subtracted: what is common
    among the samples would otherwise seem unlikely.
    """
    sampled, true_count, sampled_count = sample
    # One lookup of all rows, so that the gradient is one update of the weights.
    classes = tf.concat([tf.reshape(labels, [-1]), sampled], axis=0)
    sizes = [tf.size(labels), tf.size(sampled)]
    true_rows, other_rows = tf.split(tf.cast(tf.gather(weights, classes), inputs.dtype), sizes)
    true_biases, other_biases = tf.split(tf.cast(tf.gather(biases, classes), inputs.dtype), sizes)
    true_rows = tf.reshape(true_rows, [-1, static_sizes(labels)[1], static_sizes(inputs)[-1]])
    true = tf.reduce_sum(inputs[:, tf.newaxis] * true_rows, axis=-1)
    true += tf.reshape(true_biases, tf.shape(labels))
    others = tf.matmul(inputs, other_rows, transpose_b=True) + other_biases
    return true - _log(true_count, true.dtype), others - _log(sampled_count, others.dtype)


def _tensors(
    weights: Any, biases: Any, inputs: Any, num_classes: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns weights as one tensor, biases and inputs, whose shapes fit."""
    if isinstance(weights, list | tuple) and weights and tf.is_tensor(weights[0]):
        weights = converted("weights", tf.concat, weights, 0)
    weights, biases = check_floating("weights", weights), check_floating("biases", biases)
    inputs = check_floating("inputs", inputs)
    num_classes = positive_integer("num_classes", num_classes)
    size = static_sizes(inputs)[1] if inputs.shape.rank == 2 else None
    fits = {
        "inputs": inputs.shape.is_compatible_with([None, None]),
        "weights": weights.shape.is_compatible_with([num_classes, size]),
        "biases": biases.shape.is_compatible_with([num_classes]),
    }
    for argument, is_fit in fits.items():
        if not is_fit:
            raise ValueError(
                "`weights` must have the shape (num_classes, dim), `biases` (num_classes,), and "
                f"`inputs` (batch, dim): `{argument}` does not fit. Received: weights of shape "
                f"{weights.shape}, biases of shape {biases.shape}, inputs of shape {inputs.shape}, "
                f"num_classes={num_classes}"
            )
    return weights, biases, inputs


def _log(count: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    # Counts of rare classes are below the smallest float16; their logarithms are not.
    return tf.cast(tf.math.log(tf.cast(count, tf.float32)), dtype)


def _true_classes(labels: Any, num_true: int, inputs: tf.Tensor) -> tf.Tensor:
    labels = check_tensor("labels", labels)
    if not (labels.dtype.is_integer or labels.dtype.is_floating):
        raise TypeError(f"`labels` must be integers. Received: labels of {labels.dtype.name}")
    labels = tf.cast(labels, tf.int64)
    if labels.shape.rank != 2 or not labels.shape.is_compatible_with(
        [static_sizes(inputs)[0], num_true]
    ):
        raise ValueError(
            "`labels` must have the shape (batch, num_true), beside `inputs`. Received: labels of "
            f"shape {labels.shape}, num_true={num_true}, inputs of shape {inputs.shape}"
        )
    return labels


def _sample(
    labels: tf.Tensor,
    num_sampled: int,
    num_classes: int,
    sampled_values: Sequence[Any] | None,
    seed: int | None,
) -> Sequence[tf.Tensor]:
    """Returns the sampled classes, and how often the true ones and these were to be expected."""
    if sampled_values is None:
        num_classes = positive_integer("num_classes", num_classes)
        num_sampled = positive_integer("num_sampled", num_sampled)
        if num_sampled > num_classes:
            raise ValueError(
                "`num_sampled` must be at most `num_classes`: no class is sampled twice. "
                f"Received: num_sampled={num_sampled}, num_classes={num_classes}"
            )
        known = tf.get_static_value(labels)
        if known is not None and known.size and not 0 <= known.min() <= known.max() < num_classes:
            raise ValueError(
                "`labels` must be classes from 0 up to but not including `num_classes`. "
                f"Received: labels from {known.min()} to {known.max()}, num_classes={num_classes}"
            )
        sampled_values = tf.random.log_uniform_candidate_sampler(
            labels,
            static_sizes(labels)[1],
            num_sampled,
            unique=True,
            range_max=num_classes,
            seed=seed,
        )
    sampled, *counts = map(tf.stop_gradient, sampled_values)
    return tf.cast(sampled, tf.int64), *counts
