"""Batch normalization with the statistics of several replicas' batches."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import tensorflow as tf

from ipu_keras.hooks.tensorflow.nn_operations import replace_training_batch_norm
from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops.collectives import all_gather, replica_groups
from ipu_keras.tracing.replication import ReplicaGroups, all_replicas, note_norm

_OPTION = "norms.experimental.distributed_batch_norm_replica_group_size"

_group_size: ContextVar[int] = ContextVar("distributed_batch_norm_group_size", default=1)


@contextlib.contextmanager
def distributed_batch_norm(group_size: int) -> Iterator[None]:
    """Combines batch statistics over groups of replicas, while a replicated program is traced.

    This holds for Keras's `BatchNormalization` and for `tf.compat.v1.nn.fused_batch_norm`, both
    in training. Outputs, moving averages and gradients are those of one batch of all that the
    replicas of a group have. Whether the group size divides the number of replicas is checked
    only when there is something to normalize.

    Example:

    >>> with distributed_batch_norm(1):  # each replica has its own
    ...     tf.compat.v1.nn.fused_batch_norm(tf.ones((1, 1, 1, 1)), [1.0], [0.0])[1].numpy()
    array([1.], dtype=float32)
    """
    # The hook goes in with the first use, not with the import: many programs never need it.
    replace_training_batch_norm(_combines, _fused_batch_norm)
    token = _group_size.set(group_size)
    try:
        yield
    finally:
        _group_size.reset(token)


def as_configured() -> contextlib.AbstractContextManager[None]:
    """Combines batch statistics over the groups of the configuration, while a program is traced."""
    return distributed_batch_norm(SYSTEM.norm_group_size)


def batch_norm_groups() -> ReplicaGroups:
    """Returns the groups of replicas that combine their statistics in the program being traced."""
    note_norm()
    size = _group_size.get()
    # Who is alone has nobody to combine them with, whatever the machine is configured for.
    return replica_groups(size if size != 1 and all_replicas() > 1 else 1, _OPTION)


def moments_of_group(
    mean: tf.Tensor, variance: tf.Tensor, groups: ReplicaGroups, weight: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the mean and variance of the batches of all replicas of a group, as of one batch.

    One exchange moves both. Nothing is lost if the mean is large, since no mean of squares is
    taken: float32 would cancel in its difference to the square of the mean. `weight` is the
    number of elements of this replica's batch, a scalar; None if it is the same for all.
    """
    weight = tf.ones((), mean.dtype) if weight is None else weight
    parts = [mean, variance, tf.broadcast_to(weight, mean.shape)]
    gathered = all_gather(tf.stack(parts), groups, "batch_norm_statistics")
    means, variances, weights = tf.unstack(gathered, axis=1)
    shares = tf.math.divide_no_nan(weights, tf.reduce_sum(weights, axis=0))
    mean = tf.reduce_sum(shares * means, axis=0)
    spread = tf.math.squared_difference(means, mean)
    return mean, tf.reduce_sum(shares * (variances + spread), axis=0)


def _combines() -> bool:
    """Whether a batch has to be normalized with those of other replicas."""
    return batch_norm_groups().size != 1


def _fused_batch_norm(
    x,
    scale,
    offset,
    mean,
    variance,
    epsilon=0.0001,
    exponential_avg_factor=1.0,
    data_format="NHWC",
    name=None,
):
    """Returns what TensorFlow's operation does: output, two running averages, and what is kept."""
    groups = batch_norm_groups()
    x = tf.convert_to_tensor(x)
    channels = data_format.index("C")
    axes = [axis for axis in range(x.shape.rank) if axis != channels]
    with tf.name_scope(name or "fused_batch_norm"):
        whole = tf.cast(x, tf.float32)
        own_mean, own_variance = tf.nn.moments(whole, axes)
        batch_mean, batch_variance = moments_of_group(own_mean, own_variance, groups)
        shape = [-1 if axis == channels else 1 for axis in range(x.shape.rank)]
        y = tf.nn.batch_normalization(
            whole,
            *(tf.reshape(t, shape) for t in (batch_mean, batch_variance, offset, scale)),
            epsilon,
        )
        count = tf.cast(tf.size(x) // static_sizes(x)[channels] * groups.size, tf.float32)
        # As in TensorFlow's operation, the batch is normalized with the biased variance, but the
        # running average takes the unbiased one.
        unbiased = batch_variance * count / tf.maximum(count - 1.0, 1.0)
        averages = [batch_mean, unbiased]
        if exponential_avg_factor != 1.0:
            averages = [
                before + exponential_avg_factor * (now - before)
                for before, now in zip((mean, variance), averages, strict=True)
            ]
        kept = (batch_mean, batch_variance, batch_mean)
        return tf.cast(y, x.dtype), *map(tf.stop_gradient, averages), *kept
