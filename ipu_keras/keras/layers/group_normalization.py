"""Group normalisation as a Keras layer."""

import keras
import tensorflow as tf

from ipu_keras.keras.layers.channel_normalization import ChannelNormalization
from ipu_keras.ops.argument_checks import check_flag, check_integer


@keras.saving.register_keras_serializable(package="ipu_addons")
class GroupNormalization(ChannelNormalization):
    """Normalises each group of channels of each sample, over all other axes too.

    Y. Wu and K. He, "Group Normalization", 2018, https://arxiv.org/abs/1803.08494.

    Args:
        dtype: The data type of the weights. If Keras's global policy has such weights, that
            policy says what the layer computes in.
        groups: Number of groups, which divides that of the channels.
        channels_axis: Axis of the channels, which is not the first one.
        center: Whether to add a weight `beta`.
        scale: Whether to multiply with a weight `gamma`.
        epsilon: Small number that is added to the variance.
        beta_initializer: Initializer of `beta`; zeros by default.
        gamma_initializer: Initializer of `gamma`; ones by default.
        strided_channel_grouping: Whether a group is every `groups`-th channel, which is faster
            on an IPU, or has neighbours, as in `keras.layers.GroupNormalization`. Weights
            trained with one are not for the other.
        trainable: Whether the weights are trained.
        name: Name of the layer.
        **kwargs: Further arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Tensor of the shape `(batch, ...)`.
        training: Whether the gradient is needed, for which an IPU keeps the statistics. Values
            are the same.

    Raises:
        TypeError: `dtype` is a number, or another argument has a wrong type.
        ValueError: When it is built: the groups do not divide the channels, or these are not
            known.

    Example:

    >>> layer = GroupNormalization(groups=2, strided_channel_grouping=False, epsilon=0.0)
    >>> print(layer(tf.constant([[0.0, 1.0, 4.0, 3.0]])).numpy())
    [[-1.  1.  1. -1.]]
    """

    operation = "GroupNorm"

    def __init__(
        self,
        dtype=tf.float32,
        groups=2,
        channels_axis=-1,
        center=True,
        scale=True,
        epsilon=0.001,
        beta_initializer=None,
        gamma_initializer=None,
        strided_channel_grouping=True,
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
        self.groups = check_integer("groups", groups)
        self.strided_channel_grouping = check_flag(
            "strided_channel_grouping", strided_channel_grouping
        )

    def groups_of(self, channels):
        return self.groups

    def get_config(self):
        config = {
            "groups": self.groups,
            "strided_channel_grouping": self.strided_channel_grouping,
        }
        return {**super().get_config(), **config}


# The addons document the layer under both names.
GroupNorm = GroupNormalization
