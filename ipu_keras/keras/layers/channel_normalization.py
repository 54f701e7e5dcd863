"""The base class of group and instance normalisation, which have parameters for each channel."""

import keras
import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.keras.layers.weights import add_weight
from ipu_keras.ops.argument_checks import (
    check_flag,
    check_integer,
    check_not_negative,
    converted,
)
from ipu_keras.ops.normalized_groups import (
    checked_channels_axis,
    checked_groups,
    normalize_groups,
    operation_of,
)


def weight_policy(dtype):
    """Returns the policy, in a form that Keras takes, of a layer with weights of this type.

    The documented layers are told the type of their weights alone, and are float32 by default.
    If Keras's global policy has weights of that type, it holds, so that such a layer computes in
    float16 as all others do in mixed precision. What is not a `tf.DType` is returned as it is,
    but a number, which was meant for another argument, is refused.
    """
    if isinstance(dtype, int):
        raise TypeError(
            "The first argument is the data type of the weights; give others by name. "
            f"Received: dtype={dtype!r}"
        )
    if not isinstance(dtype, tf.DType):
        return dtype
    if not dtype.is_floating:
        raise TypeError(
            "`dtype` is the data type of the weights, which must be a floating point type. "
            f"Received: dtype={dtype!r}"
        )
    policy = keras.config.dtype_policy()
    return policy if policy.variable_dtype == dtype.name else dtype.name


class ChannelNormalization(keras.layers.Layer):
    """Normalises groups of channels; derived classes say which.

    The arguments are those that `GroupNormalization` documents.
    """

    # Name of the operation in reports.
    operation = ""
    # True if the channels of a group are spread evenly, False if they are neighbours.
    strided_channel_grouping = False

    def __init__(
        self,
        dtype,
        channels_axis,
        center,
        scale,
        epsilon,
        beta_initializer,
        gamma_initializer,
        **kwargs,
    ):
        policy = converted("dtype", keras.dtype_policies.get, weight_policy(dtype))
        super().__init__(dtype=policy, **kwargs)
        self.channels_axis = check_integer("channels_axis", channels_axis)
        self.center = check_flag("center", center)
        self.scale = check_flag("scale", scale)
        self.epsilon = check_not_negative("epsilon", epsilon)
        self.beta_initializer = converted(
            "beta_initializer",
            keras.initializers.get,
            "zeros" if beta_initializer is None else beta_initializer,
        )
        self.gamma_initializer = converted(
            "gamma_initializer",
            keras.initializers.get,
            "ones" if gamma_initializer is None else gamma_initializer,
        )
        self.supports_masking = True

    def groups_of(self, channels: int) -> int:
        """Returns how many groups these channels make."""
        raise NotImplementedError

    def build(self, input_shape):
        axis = checked_channels_axis(self.channels_axis, input_shape)
        channels = input_shape[axis]
        checked_groups(self.groups_of(channels), channels)
        self.input_spec = keras.layers.InputSpec(ndim=len(input_shape), axes={axis: channels})
        self.gamma = self.beta = None
        if self.scale:
            self.gamma = add_weight(
                self,
                "gamma_initializer",
                self.gamma_initializer,
                shape=(channels,),
                name="gamma",
                autocast=False,
            )
        if self.center:
            self.beta = add_weight(
                self,
                "beta_initializer",
                self.beta_initializer,
                shape=(channels,),
                name="beta",
                autocast=False,
            )

    def call(self, inputs, training=None):
        normalized, _, _ = normalize_groups(
            inputs,
            None if self.gamma is None else self.gamma.value,
            None if self.beta is None else self.beta.value,
            groups=self.groups_of(static_sizes(inputs)[self.channels_axis]),
            channels_axis=self.channels_axis,
            epsilon=self.epsilon,
            strided=self.strided_channel_grouping,
            kind=operation_of(self.operation, training=bool(training)),
        )
        return normalized

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        config = {
            "channels_axis": self.channels_axis,
            "center": self.center,
            "scale": self.scale,
            "epsilon": self.epsilon,
            "beta_initializer": keras.initializers.serialize(self.beta_initializer),
            "gamma_initializer": keras.initializers.serialize(self.gamma_initializer),
        }
        return {**super().get_config(), **config}
