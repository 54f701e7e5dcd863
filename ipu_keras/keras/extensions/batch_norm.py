"""Keras's batch normalization with the statistics of several replicas' batches."""

import functools
from typing import Any

import keras
import tensorflow as tf

from ipu_keras.ops.collectives import replica_groups
from ipu_keras.ops.distributed_batch_norm import batch_norm_groups, moments_of_group
from ipu_keras.tracing.replication import ReplicaGroups


def attach_batch_norm() -> None:
    """Has Keras's layer combine its statistics with those of other replicas, where it should.

    Outside of replicated programs it does what it did.
    """
    original = keras.layers.BatchNormalization._moments
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def _moments(self, inputs, mask):
        mean, variance = original(self, inputs, mask)
        groups = _groups_of(self)
        if groups.size == 1:
            return mean, variance
        weight = None if mask is None else tf.reduce_sum(tf.cast(mask, mean.dtype))
        return moments_of_group(mean, variance, groups, weight)

    keras.layers.BatchNormalization._moments = _moments


def _groups_of(layer: Any) -> ReplicaGroups:
    """Those of the configuration, or all replicas if the layer itself asks for that."""
    if layer.synchronized:
        return replica_groups(None, "synchronized")
    return batch_norm_groups()
