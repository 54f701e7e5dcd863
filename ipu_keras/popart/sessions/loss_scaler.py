"""Automatic loss scaling: how the factor of the loss follows from the gradients.

Small gradients in half precision become 0, and large ones infinite. So the loss is multiplied by
twice as much after each batch, until too many elements of gradients are large; then by half as
much. What an optimizer computes stays the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

# PopART's name of the tensor: written models have it, and sessions go on from it.
UPDATE_FACTOR = "lossScaleUpdateFactor"


@dataclass(frozen=True)
class Counted:
    """What a batch contributes to the choice of the next loss scaling.

    Args:
        elements: Numbers of large and of small elements of gradients: `(2,)` float32.
        loss: Type of the loss, which has to represent the scaling.
    """

    elements: tf.Tensor
    loss: np.dtype


@dataclass(frozen=True)
class LossScaler:
    """Counts large elements of gradients, and changes what the loss is multiplied by.

    Args:
        edge: An element is large from this part of its type's largest number on.
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
        """Counts the large and the small elements of scaled gradients: `(2,)` float32."""
        counts = tf.zeros([2])
        for gradient in gradients:
            edge = self.edge * float(gradient.dtype.max)
            # NaN compares false with everything, so it counts as large, as what came of an
            # overflow.
            is_small = tf.abs(tf.cast(gradient, tf.float32)) < np.float32(edge)
            num_small = tf.math.count_nonzero(is_small, dtype=tf.int32)
            both = tf.stack([tf.size(gradient) - num_small, num_small])
            # Floats, as programs add these up over replicas along with the gradients.
            counts += tf.cast(both, tf.float32)
        return counts

    def next_factor(self, factor: tf.Tensor, scaling: tf.Tensor, counted: Counted) -> tf.Tensor:
        """Returns the factor of the loss scaling for the next batch, float32.

        Args:
            factor: The factor of this batch, beside the optimizer's own `scaling`.
            counted: Sums over all micro-batches and replicas.
        """
        large, small = tf.unstack(counted.elements)
        are_too_many = large > np.float32(self.threshold) * (large + small)
        changed = tf.where(are_too_many, 0.5, 2.0) * factor
        # Without the limits, a model whose gradients vanish would double the factor to infinity.
        scale, limits = tf.abs(scaling) * changed, np.finfo(counted.loss)
        fits = (scale >= float(limits.tiny)) & (scale <= float(limits.max))
        return tf.where(fits, changed, factor)
