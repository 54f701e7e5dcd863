"""Instance normalisation as a Keras layer."""

import keras
import tensorflow as tf

from ipu_keras.keras.layers.channel_normalization import ChannelNormalization


@keras.saving.register_keras_serializable(package="ipu_addons")
class InstanceNormalization(ChannelNormalization):
    """Normalises each channel of each sample.

    D. Ulyanov et al., "Instance Normalization: The Missing Ingredient for Fast Stylization",
    2016, https://arxiv.org/abs/1607.08022.

    Args:
        dtype: The data type of the weights, as for `GroupNormalization`.
        channels_axis: Axis of the channels, which is not the first one.
        center: Whether to add a weight `beta`.
        scale: Whether to multiply with a weight `gamma`.
        epsilon: Small number that is added to the variance.
        beta_initializer: Initializer of `beta`; zeros by default.
        gamma_initializer: Initializer of `gamma`; ones by default.
        trainable: Whether the weights are trained.
        name: Name of the layer.
        **kwargs: Further arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Tensor of the shape `(batch, ...)`.
        training: Whether the gradient is needed, as for `GroupNormalization`.

    Raises:
        TypeError: `dtype` is a number, or another argument has a wrong type.
        ValueError: When it is built: the number of channels is not known.

    Example:

    >>> layer = InstanceNormalization(epsilon=0.0)
    >>> print(layer(tf.constant([[[0.0, 5.0], [2.0, 1.0]]])).numpy())
    [[[-1.  1.]
      [ 1. -1.]]]
    """

    operation = "InstanceNorm"

    def __init__(
        self,
        dtype=tf.float32,
        channels_axis=-1,
        center=True,
        scale=True,
        epsilon=0.001,
        beta_initializer=None,
        gamma_initializer=None,
        trainable=True,
        name=None,
        **kwargs,
    ):
        super().__init__(
            dtype,
            channels_axis,
            center,
            scale,
            epsilon,
            beta_initializer,
            gamma_initializer,
            trainable=trainable,
            name=name,
            **kwargs,
        )

    def groups_of(self, channels):
        return channels


# The addons document the layer under both names.
InstanceNorm = InstanceNormalization
