"""Keras's batch normalization across replicas, and as one operation where that is faster."""

from typing import Any

import tensorflow as tf

from ipu_keras.hooks.keras.layer_calls import extend_batch_norm
from ipu_keras.host.rewrites.fused_batch_norms import use_fused_batch_norm
from ipu_keras.ops.collectives import replica_groups
from ipu_keras.ops.distributed_batch_norm import batch_norm_groups, moments_of_group
from ipu_keras.tracing.replication import ReplicaGroups


def attach_batch_norm() -> None:
    """Lets Keras's layer share statistics between replicas and run as one operation.

    It does the first where the layer or the configuration asks for it, the second where the
    host's rewrites do. Outside of IPU programs the layer stays as it was.
    """
    extend_batch_norm(_fused, _across_replicas)


def _fused(layer: Any, inputs: tf.Tensor) -> tf.Tensor | None:
    """Returns the layer's outputs in training if one operation computes them, else None."""
    fused = _can_be_fused(layer, inputs) and use_fused_batch_norm()
    return _normalized(layer, inputs) if fused else None


def _across_replicas(layer: Any, mean: tf.Tensor, variance: tf.Tensor, mask: Any) -> tuple:
    """Returns the moments of this replica's batch, or those of its group of replicas."""
    groups = _groups_of(layer)
    if groups.size == 1:
        return mean, variance
    # With a mask, replicas may have counted different numbers of rows.
    weight = None if mask is None else tf.reduce_sum(tf.cast(mask, mean.dtype))
    return moments_of_group(mean, variance, groups, weight)


def _can_be_fused(layer: Any, inputs: tf.Tensor) -> bool:
    """Whether `FusedBatchNormV3` does in training what the layer does."""
    # The operation takes channels last, knows one replica only, and needs the number of samples
    # here, for the variance below. A frozen layer normalizes with its moving averages.
    return (
        isinstance(inputs, tf.Tensor)
        and layer.trainable
        and not getattr(layer, "renorm", False)
        and layer.axis in (-1, inputs.shape.rank - 1)
        and inputs.dtype in (tf.float16, tf.bfloat16, tf.float32)
        and inputs.shape.is_fully_defined()
        and 0 not in inputs.shape
        and _groups_of(layer).size == 1
    )


def _normalized(layer: Any, inputs: tf.Tensor) -> tf.Tensor:
    """Returns the layer's outputs in training, after an update of its moving averages."""
    channels = inputs.shape[-1]
    # The operation takes images only. Keras, too, computes moments of float16 in float32, where
    # the squares do not overflow.
    images = tf.reshape(tf.cast(inputs, tf.float32), (inputs.shape[0], 1, -1, channels))
    outputs, mean, unbiased, *_ = tf.raw_ops.FusedBatchNormV3(
        x=images,
        scale=tf.cast(layer.gamma, tf.float32) if layer.scale else tf.ones(channels),
        offset=tf.cast(layer.beta, tf.float32) if layer.center else tf.zeros(channels),
        mean=[],
        variance=[],
        epsilon=layer.epsilon,
        is_training=True,
    )
    # The operation returns the unbiased variance (Bessel's correction), where Keras averages the
    # biased one.
    count = inputs.shape.num_elements() // channels
    variance = unbiased * ((count - 1) / count)
    for average, now in ((layer.moving_mean, mean), (layer.moving_variance, variance)):
        before = tf.cast(average, tf.float32)
        average.assign(before * layer.momentum + now * (1.0 - layer.momentum))
    return tf.cast(tf.reshape(outputs, inputs.shape), layer.compute_dtype)


def _groups_of(layer: Any) -> ReplicaGroups:
    """Returns the configuration's groups, or all replicas in one if the layer asks for that."""
    if layer.synchronized:
        return replica_groups(None, "synchronized")
    return batch_norm_groups()
