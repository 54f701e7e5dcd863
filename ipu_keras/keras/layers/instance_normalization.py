"""Instance normalisation."""

import keras
import tensorflow as tf

from ipu_keras.keras.layers.channel_normalization import ChannelNormalization


@keras.saving.register_keras_serializable(package="ipu_addons")
class InstanceNormalization(ChannelNormalization):
    """Normalises each channel of each sample.

    D. Ulyanov et al., "Instance Normalization: The Missing Ingredient for Fast Stylization",
    2016, https://arxiv.org/abs/1607.08022.

    Args:
        dtype: As for `GroupNormalization`.
        channels_axis: As for `GroupNormalization`.
        center: As for `GroupNormalization`.
        scale: As for `GroupNormalization`.
        epsilon: As for `GroupNormalization`.
        beta_initializer: As for `GroupNormalization`.
        gamma_initializer: As for `GroupNormalization`.
        trainable: Whether the weights are trained.
        name: Of the layer.
        **kwargs: As for `keras.layers.Layer`.

    Call arguments:
        inputs: As for `GroupNormalization`.
        training: As for `GroupNormalization`.

    Raises:
        TypeError: As for `GroupNormalization`.
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


# Another documented name of it.
InstanceNorm = InstanceNormalization
