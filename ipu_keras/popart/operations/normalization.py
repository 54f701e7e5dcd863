"""Normalizations by mean and variance and by norms; images have channels last here."""

import math

import numpy as np
import tensorflow as tf

from ipu_keras.ops.normalized_groups import normalize_groups, operation_of
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.element_types import type_of
from ipu_keras.popart.operations.operation import operation
from ipu_keras.popart.operations.pooling import root
from ipu_keras.popart.operations.sizes import axis_within, sizes_of

# The types that TensorFlow's fused operation takes.
_FUSED = (tf.float32, tf.float16, tf.bfloat16)


@operation("BatchNormalization", since=9, images=["x"], num_images=1)
def batch_normalization(x, scale, b, mean, var, *, epsilon, momentum, context):
    return _batch_normalization(x, scale, b, mean, var, epsilon, momentum, context)


@operation("BatchNormalization", since=14, images=["x"], num_images=1)
def batch_normalization_14(x, scale, b, mean, var, *, epsilon, momentum, training_mode, context):
    if not training_mode:
        if any(context.is_needed(output) for output in (1, 2)):
            raise popart_exception(
                "Running statistics are results in training only. Received: training_mode=0, and "
                f"{context.num_outputs} outputs. Set it to 1, or leave them out."
            )
        return _normalized(x, scale, b, mean, var, epsilon)
    return _by_batch(x, scale, b, mean, var, epsilon, momentum)[:3]


@operation("BatchNormalization", since=7, images=["x"], num_images=1)
def batch_normalization_7(x, scale, b, mean, var, *, epsilon, momentum, spatial, context):
    return batch_normalization_6(
        x,
        scale,
        b,
        mean,
        var,
        epsilon=epsilon,
        is_test=0,
        momentum=momentum,
        spatial=spatial,
        context=context,
    )


@operation("BatchNormalization", since=6, images=["x"], num_images=1)
def batch_normalization_6(x, scale, b, mean, var, *, epsilon, is_test, momentum, spatial, context):
    if spatial:
        return _batch_normalization(x, scale, b, mean, var, epsilon, momentum, context, is_test)
    # With spatial=0, which version 9 dropped, each element of an image has a scale, an offset and
    # statistics of its own. They are in the order of the model: (channels, ...).
    rank = len(x.shape)
    as_images = [tf.transpose(one, [*range(1, rank - 1), 0]) for one in (scale, b, mean, var)]
    scale, b, mean, var = (tf.reshape(one, [-1]) for one in as_images)
    flat = tf.reshape(x, [-1, math.prod(x.shape[1:])])
    results = _batch_normalization(flat, scale, b, mean, var, epsilon, momentum, context, is_test)
    if not isinstance(results, tuple):
        return tf.reshape(results, tf.shape(x))
    normalized, *statistics = results
    shaped = (tf.reshape(one, x.shape[1:]) for one in statistics)
    moved = (tf.transpose(one, [rank - 2, *range(rank - 2)]) for one in shaped)
    return tf.reshape(normalized, tf.shape(x)), *moved


@operation("InstanceNormalization", since=6, images=["x"], num_images=1)
def instance_normalization(x, scale, b, *, epsilon, context):
    # For Popnn too, it is a normalisation of groups, each of one channel.
    return normalize_groups(
        x,
        scale,
        b,
        groups=x.shape[-1],
        channels_axis=-1,
        epsilon=epsilon,
        strided=False,
        kind=operation_of("GroupNorm", training=context.is_training),
    )[0]


@operation("LayerNormalization", since=17)
def layer_normalization(x, scale, b=None, *, axis, epsilon, stash_type):
    axes = _axes_from(x, axis)
    # ONNX computes the statistics in `stash_type`, float32 by default, even of float16.
    wide = tf.cast(x, type_of(stash_type))
    mean, variance = tf.nn.moments(wide, axes, keepdims=True)
    inverse = tf.math.rsqrt(variance + epsilon)
    normalized = tf.cast((wide - mean) * inverse, x.dtype) * scale
    return normalized if b is None else normalized + b, mean, inverse


@operation("RMSNormalization", since=23)
def rms_normalization(x, scale, *, axis, epsilon, stash_type):
    wide = tf.cast(x, type_of(stash_type))
    square = tf.reduce_mean(tf.square(wide), _axes_from(x, axis), keepdims=True)
    return tf.cast(wide * tf.math.rsqrt(square + epsilon), scale.dtype) * scale


@operation("GroupNormalization", since=18, images=["x"], num_images=1)
def group_normalization_18(x, scale, bias, *, epsilon, num_groups):
    # Version 18 has one scale and offset for each group, which version 21 corrected to one for each
    # channel, as all frameworks have it.
    size = x.shape[-1] // num_groups
    scale, bias = tf.repeat(scale, size), tf.repeat(bias, size)
    return _by_group(x, scale, bias, epsilon, num_groups, x.dtype)


@operation("GroupNormalization", since=21, images=["x"], num_images=1)
def group_normalization(x, scale, bias, *, epsilon, num_groups, stash_type):
    return _by_group(x, scale, bias, epsilon, num_groups, type_of(stash_type))


def _by_group(x, scale, bias, epsilon, num_groups, dtype):
    channels = x.shape[-1]
    if num_groups < 1 or channels % num_groups:
        raise popart_exception(
            f"`num_groups` must divide the channels. Received: num_groups={num_groups}, "
            f"{channels} channels"
        )
    sizes = sizes_of(x)
    grouped = tf.cast(tf.reshape(x, [*sizes[:-1], num_groups, channels // num_groups]), dtype)
    axes = [*range(1, len(sizes) - 1), len(sizes)]
    mean, variance = tf.nn.moments(grouped, axes, keepdims=True)
    normalized = (grouped - mean) * tf.math.rsqrt(variance + epsilon)
    return tf.cast(tf.reshape(normalized, sizes), x.dtype) * scale + bias


def _axes_from(x, axis):
    return list(range(axis_within(axis, len(x.shape)), len(x.shape)))


@operation("LRN", images=["x"], num_images=1)
def lrn(x, *, alpha, beta, bias, size):
    # If the size is even, ONNX has one channel more behind; TensorFlow has the same on both sides.
    before, behind = (size - 1) // 2, size // 2
    if before == behind and len(x.shape) == 4 and x.dtype in _FUSED:
        return tf.nn.local_response_normalization(x, before, bias, alpha / size, beta)
    channel = np.arange(x.shape[-1])
    offset = channel[:, None] - channel[None, :]
    near = tf.constant((-before <= offset) & (offset <= behind), tf.bool)
    sums = tf.tensordot(tf.square(x), tf.cast(near, x.dtype), 1)
    return x / tf.pow(bias + alpha / size * sums, beta)


@operation("LpNormalization", axis="axis")
def lp_normalization(x, *, axis, p):
    if p not in (1, 2):
        raise popart_exception(f"`p` must be 1 or 2. Received: {p}")
    powers = tf.square(x) if p == 2 else tf.abs(x)
    return tf.math.divide_no_nan(x, root(tf.reduce_sum(powers, axis, keepdims=True), p))


@operation("MeanVarianceNormalization", since=9, any_order=True)
def mean_variance_normalization(x, *, axes, context):
    places = context.order.permutation(len(x.shape))
    axes = [places.index(axis % len(x.shape)) for axis in axes]
    mean, variance = tf.nn.moments(x, axes, keepdims=True)
    # ONNX defines it so: a small number is added to the deviation, not to the variance.
    return (x - mean) / (root(variance, 2) + 1e-9)


def _batch_normalization(x, scale, b, mean, var, epsilon, momentum, context, is_test=False):
    """Returns normalized images, and in training the running and the batch's statistics."""
    # Before version 14, a node says by its outputs whether it trains: with one it normalizes by the
    # running statistics, with more by the batch's.
    wants_statistics = any(context.is_needed(output) for output in range(1, 5))
    if is_test or not wants_statistics:
        normalized = _normalized(x, scale, b, mean, var, epsilon)
        return (normalized, mean, var, mean, var) if wants_statistics else normalized
    return _by_batch(x, scale, b, mean, var, epsilon, momentum)


def _by_batch(x, scale, b, mean, var, epsilon, momentum):
    """Normalizes by the batch's statistics; returns the running ones, then those of the batch."""
    normalized, batch_mean, batch_var = _normalized_by_batch(x, scale, b, epsilon)
    batch_mean, batch_var = tf.cast(batch_mean, mean.dtype), tf.cast(batch_var, var.dtype)
    running_mean = momentum * mean + (1 - momentum) * batch_mean
    running_var = momentum * var + (1 - momentum) * batch_var
    return normalized, running_mean, running_var, batch_mean, batch_var


def _normalized(x, scale, b, mean, var, epsilon):
    if x.dtype not in _FUSED:
        # Running statistics are not trained, and the fused operation below has no gradients for
        # them either.
        mean, var = tf.stop_gradient(mean), tf.stop_gradient(var)
        return tf.nn.batch_normalization(x, mean, var, b, scale, epsilon)
    # TensorFlow fuses this with a convolution before it and an activation behind it.
    return _as_before(_fused(_as_planes(x), scale, b, mean, var, epsilon, False).y, x)


def _normalized_by_batch(x, scale, b, epsilon):
    axes = list(range(len(x.shape) - 1))
    if x.dtype not in _FUSED:
        mean, var = tf.nn.moments(x, axes)
        return tf.nn.batch_normalization(x, mean, var, b, scale, epsilon), mean, var
    fused = _fused(_as_planes(x), scale, b, [], [], epsilon, True)
    # TensorFlow divides by the count less one, and ONNX by the count.
    count = tf.cast(tf.size(x) // x.shape[-1], tf.float32)
    var = fused.batch_variance * ((count - 1) / count)
    return _as_before(fused.y, x), fused.batch_mean, var


def _fused(x, scale, b, mean, var, epsilon, is_training):
    # Not `fused_batch_norm`, which raises an epsilon below 1.001e-5 to that.
    wide = [tf.cast(one, tf.float32) for one in (scale, b, mean, var)]
    return tf.raw_ops.FusedBatchNormV3(
        x=x,
        scale=wide[0],
        offset=wide[1],
        mean=wide[2],
        variance=wide[3],
        epsilon=epsilon,
        is_training=is_training,
    )


def _as_planes(x):
    """Reshapes images so that they have two axes between batch and channels."""
    rank = len(x.shape)
    if rank == 4:
        return x
    sizes = [1] * (4 - rank) + x.shape.as_list()[1:-1]
    return tf.reshape(x, [-1, sizes[0], math.prod(sizes[1:]), x.shape[-1]])


def _as_before(planes, x):
    return planes if len(x.shape) == 4 else tf.reshape(planes, tf.shape(x))
