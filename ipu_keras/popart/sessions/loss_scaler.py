"""Automatic loss scaling: how what the loss is multiplied by follows from its gradients.

Small gradients in half precision become 0, and large ones infinite. So the loss is multiplied by
twice as much after each batch, until too many elements of gradients are large; then by half as
much. What an optimizer computes stays the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

# The tensor that sessions keep it in, and models that are written have it.
UPDATE_FACTOR = "lossScaleUpdateFactor"


@dataclass(frozen=True)
class Counted:
    """What of a batch decides about the loss scaling of the next one.

    Args:
        elements: How many elements of gradients are large, and how many are not: `(2,)` float32.
        loss: Type of the loss, which has to hold what it is multiplied by.
    """

    elements: tf.Tensor
    loss: np.dtype


@dataclass(frozen=True)
class LossScaler:
    """Counts large elements of gradients, and changes what the loss is multiplied by.

    Args:
        edge: From where on an element is large, as a part of the largest number of its type.
        threshold: The part of all elements that may be large.
        tracked: Names of the tensors whose gradients are counted.

    Example:

    >>> scaler = LossScaler(edge=0.5, threshold=0.25, tracked=("x",))
    >>> counts = scaler.counts([tf.constant([1.0, -60000.0, np.inf], tf.float16)])
    >>> counts.numpy().tolist()
    [2.0, 1.0]
    >>> counted = Counted(counts, np.dtype("float16"))
    >>> float(scaler.next_factor(tf.constant(4.0), tf.constant(16.0), counted))
    2.0
    """

    edge: float
    threshold: float
    tracked: tuple[str, ...]

    def counts(self, gradients: Iterable[tf.Tensor]) -> tf.Tensor:
        """How many elements are large, and how many are not: `(2,)` float32, to be added up.

        Args:
            gradients: Of the scaled loss. What is no number is large.
        """
        counts = tf.zeros([2])
        for gradient in gradients:
            edge = self.edge * float(gradient.dtype.max)
            is_small = tf.abs(tf.cast(gradient, tf.float32)) < np.float32(edge)
            num_small = tf.math.count_nonzero(is_small, dtype=tf.int32)
            both = tf.stack([tf.size(gradient) - num_small, num_small])
            counts += tf.cast(both, tf.float32)
        return counts

    def next_factor(self, factor: tf.Tensor, scaling: tf.Tensor, counted: Counted) -> tf.Tensor:
        """The factor of the loss scaling for the next batch, float32.

        Args:
            factor: That of this batch.
            scaling: Of the optimizer, by which the factor is multiplied.
            counted: Of all micro-batches and replicas.
        """
        large, small = tf.unstack(counted.elements)
        are_too_many = large > np.float32(self.threshold) * (large + small)
        changed = tf.where(are_too_many, 0.5, 2.0) * factor
        scale, limits = tf.abs(scaling) * changed, np.finfo(counted.loss)
        fits = (scale >= float(limits.tiny)) & (scale <= float(limits.max))
        return tf.where(fits, changed, factor)
