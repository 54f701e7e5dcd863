"""Normalisation that makes its own parameters, as `ipu.normalization_ops`.

The parameters are variables of `tf.compat.v1.get_variable`. The layers of `ipu.keras.layers`
have variables as Keras knows them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ops.argument_checks import (
    check_flag,
    check_floating,
    check_not_negative,
    received,
)
from ipu_keras.ops.normalized_groups import (
    checked_channels_axis,
    checked_groups,
    normalize_groups,
    operation_of,
)
from ipu_keras.settings.arguments import noted


def group_norm(
    inputs: Any,
    groups: int = 2,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: bool | None = None,
    variables_collections: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    training: bool = True,
    trainable: bool = True,
    scope: Any = None,
    strided_channel_grouping: bool = True,
) -> tf.Tensor:
    """Normalises each group of channels of each sample, over all other axes too.

    Y. Wu and K. He, "Group Normalization", 2018, https://arxiv.org/abs/1803.08494.

    Args:
        inputs: Tensor of the shape `(batch, ...)`, of float16 or float32.
        groups: Number of groups, which divides that of the channels.
        channels_axis: Axis of the channels, which is not the first one.
        center: Whether to add a variable `beta`.
        scale: Whether to multiply with a variable `gamma`.
        epsilon: Small number that is added to the variance.
        param_initializers: Initializers by the names `"beta"` and `"gamma"`. Zeros and ones by
            default.
        reuse: Whether to take the variables that are there already; needs `scope`.
        variables_collections: Collections in which to put the variables, for both of them or by
            name.
        training: Whether the gradient is needed, for which an IPU keeps the statistics; reports
            have another operation if not. Values are the same.
        trainable: Whether to put the variables among those to train.
        scope: Name of the variables' scope, or the scope; a new `"GroupNorm"` by default.
        strided_channel_grouping: Whether a group is every `groups`-th channel, which is faster
            on an IPU, or has neighbours. Weights trained with one are not for the other.

    Returns:
        A tensor of the shape and type of `inputs`.

    Raises:
        TypeError: `inputs` are not floating point numbers, or another argument has a wrong type.
        ValueError: The channels, or the rank of the inputs, are not known; the groups do not
            divide the channels; `epsilon` is negative; or `reuse` is set without `scope`.

    Example:

    >>> x = tf.constant([[0.0, 1.0, 4.0, 3.0]])
    >>> print(group_norm(x, groups=2, epsilon=0.0, strided_channel_grouping=False).numpy())
    [[-1.  1.  1. -1.]]
    """
    inputs, channels_axis = _checked(inputs, channels_axis)
    groups = checked_groups(groups, static_sizes(inputs)[channels_axis])
    return _normalized(
        "GroupNorm",
        inputs,
        groups=groups,
        channels_axis=channels_axis,
        epsilon=epsilon,
        training=training,
        strided=strided_channel_grouping,
        variables=_Variables(
            scope, reuse, center, scale, param_initializers, variables_collections, trainable
        ),
    )


def instance_norm(
    inputs: Any,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: bool | None = None,
    variables_collections: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    training: bool = True,
    trainable: bool = True,
    scope: Any = None,
) -> tf.Tensor:
    """Normalises each channel of each sample.

    D. Ulyanov et al., "Instance Normalization: The Missing Ingredient for Fast Stylization",
    2016, https://arxiv.org/abs/1607.08022. It is a group normalisation with a channel per group.

    Args:
        inputs: Tensor of the shape `(batch, ...)`, of float16 or float32.
        channels_axis: Axis of the channels, which is not the first one.
        center: Whether to add a variable `beta`.
        scale: Whether to multiply with a variable `gamma`.
        epsilon: Small number that is added to the variance.
        param_initializers: Initializers by the names `"beta"` and `"gamma"`. Zeros and ones by
            default.
        reuse: Whether to take the variables that are there already; needs `scope`.
        variables_collections: Collections in which to put the variables, for both of them or by
            name.
        training: Whether the gradient is needed, as for `group_norm`.
        trainable: Whether to put the variables among those to train.
        scope: Name of the variables' scope, or the scope; a new `"InstanceNorm"` by default.

    Returns:
        A tensor of the shape and type of `inputs`.

    Raises:
        TypeError: `inputs` are not floating point numbers, or another argument has a wrong type.
        ValueError: The channels, or the rank of the inputs, are not known; `epsilon` is
            negative; or `reuse` is set without `scope`.

    Example:

    >>> x = tf.constant([[[0.0, 5.0], [2.0, 1.0]]])
    >>> print(instance_norm(x, epsilon=0.0).numpy())
    [[[-1.  1.]
      [ 1. -1.]]]
    """
    inputs, channels_axis = _checked(inputs, channels_axis)
    return _normalized(
        "InstanceNorm",
        inputs,
        groups=static_sizes(inputs)[channels_axis],
        channels_axis=channels_axis,
        epsilon=epsilon,
        training=training,
        strided=False,
        variables=_Variables(
            scope, reuse, center, scale, param_initializers, variables_collections, trainable
        ),
    )


def layer_norm(
    inputs: Any,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: bool | None = None,
    variables_collections: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    training: bool = True,
    trainable: bool = True,
    scope: Any = None,
) -> tf.Tensor:
    """Normalises each sample as a whole.

    J. L. Ba et al., "Layer Normalization", 2016, https://arxiv.org/abs/1607.06450. It is a group
    normalisation with all channels in one group; `beta` and `gamma` have an element per channel.

    Args:
        inputs: Tensor of the shape `(batch, ...)`, of float16 or float32.
        channels_axis: Axis of the channels, which is not the first one.
        center: Whether to add a variable `beta`.
        scale: Whether to multiply with a variable `gamma`.
        epsilon: Small number that is added to the variance.
        param_initializers: Initializers by the names `"beta"` and `"gamma"`. Zeros and ones by
            default.
        reuse: Whether to take the variables that are there already; needs `scope`.
        variables_collections: Collections in which to put the variables, for both of them or by
            name.
        training: Whether the gradient is needed, as for `group_norm`.
        trainable: Whether to put the variables among those to train.
        scope: Name of the variables' scope, or the scope; a new `"LayerNorm"` by default.

    Returns:
        A tensor of the shape and type of `inputs`.

    Raises:
        TypeError: `inputs` are not floating point numbers, or another argument has a wrong type.
        ValueError: The channels, or the rank of the inputs, are not known; `epsilon` is
            negative; or `reuse` is set without `scope`.

    Example:

    >>> print(layer_norm(tf.constant([[1.0, 3.0], [4.0, 2.0]]), epsilon=0.0).numpy())
    [[-1.  1.]
     [ 1. -1.]]
    """
    inputs, channels_axis = _checked(inputs, channels_axis)
    return _normalized(
        "LayerNorm",
        inputs,
        groups=1,
        channels_axis=channels_axis,
        epsilon=epsilon,
        training=training,
        strided=False,
        variables=_Variables(
            scope, reuse, center, scale, param_initializers, variables_collections, trainable
        ),
    )


@dataclass(frozen=True)
class _Variables:
    """The arguments of `group_norm` that are about its variables."""

    scope: Any
    reuse: bool | None
    center: bool
    scale: bool
    param_initializers: Mapping[str, Any] | None
    variables_collections: Sequence[str] | Mapping[str, Sequence[str]] | None
    trainable: bool

    def __post_init__(self) -> None:
        for argument in ("center", "scale", "trainable"):
            check_flag(argument, getattr(self, argument))
        if self.reuse is not None:
            check_flag("reuse", self.reuse)
        if self.reuse and self.scope is None:
            raise ValueError(
                "To `reuse` variables, give the `scope` that they are in. "
                f"Received: reuse={self.reuse}, scope=None"
            )
        initializers = self.param_initializers
        if initializers is not None and not isinstance(initializers, Mapping):
            raise TypeError(
                "`param_initializers` must be a dictionary. "
                f"Received: {received('param_initializers', initializers)}"
            )
        unknown = set(initializers or {}) - {"beta", "gamma"}
        if unknown:
            raise ValueError(
                "`param_initializers` has initializers by the names 'beta' and 'gamma'. "
                f"Received: {received('param_initializers', initializers)}"
            )

    def make(self, name: str, channels: int, dtype: tf.DType) -> tf.Tensor | None:
        """Returns one of the variables in the current scope; None if it is not asked for."""
        if not (self.center if name == "beta" else self.scale):
            return None
        collections = self.variables_collections
        if isinstance(collections, Mapping):
            collections = collections.get(name)
        default = tf.zeros_initializer() if name == "beta" else tf.ones_initializer()
        return tf.compat.v1.get_variable(
            name,
            shape=[channels],
            dtype=dtype,
            initializer=(self.param_initializers or {}).get(name, default),
            # Collections that are named replace TensorFlow's own, without which it would not
            # initialise the variable.
            collections=None
            if collections is None
            else [*collections, tf.compat.v1.GraphKeys.GLOBAL_VARIABLES],
            trainable=self.trainable,
        )


def _normalized(
    kind: str,
    inputs: tf.Tensor,
    *,
    groups: int,
    channels_axis: int,
    epsilon: float,
    training: bool,
    strided: bool,
    variables: _Variables,
) -> tf.Tensor:
    channels = static_sizes(inputs)[channels_axis]
    epsilon = check_not_negative("epsilon", epsilon)
    training = check_flag("training", training)
    strided = check_flag("strided_channel_grouping", strided)
    with tf.compat.v1.variable_scope(variables.scope, kind, [inputs], reuse=variables.reuse):
        normalized, _, _ = normalize_groups(
            inputs,
            variables.make("gamma", channels, inputs.dtype),
            variables.make("beta", channels, inputs.dtype),
            groups=groups,
            channels_axis=channels_axis,
            epsilon=epsilon,
            strided=strided,
            kind=operation_of(kind, training=training),
        )
        return normalized


def _checked(inputs: Any, channels_axis: Any) -> tuple[tf.Tensor, int]:
    inputs = check_floating("inputs", inputs)
    rank = inputs.shape.rank
    if rank is None:
        raise noted(
            ValueError(f"Inputs {inputs.name} has undefined rank."),
            "Programs are static: give the tensor a shape, for instance with `tf.ensure_shape`.",
        )
    if rank < 2:
        raise ValueError(
            "`inputs` must have at least 2 dimensions, one of which is channels. "
            f"Received: inputs of shape {inputs.shape}"
        )
    return inputs, checked_channels_axis(channels_axis, inputs.shape.as_list())
