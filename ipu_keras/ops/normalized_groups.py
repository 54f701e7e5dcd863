"""Normalisation over groups of channels, or over axes, with given parameters."""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ops.argument_checks import check_integer
from ipu_keras.settings.arguments import noted
from ipu_keras.tracing.poplar_operation import poplar_operation


def operation_of(kind: str, *, training: bool) -> str:
    """Returns the name of a normalisation in reports.

    In training an IPU keeps the statistics for the gradient, which is another operation.
    """
    return kind if training else f"{kind}Inference"


def checked_groups(groups: Any, channels: int) -> int:
    """Returns a number of groups that divides the channels."""
    groups = check_integer("groups", groups)
    if not 1 <= groups <= channels:
        raise noted(
            ValueError(f"Invalid groups {groups} for {channels} channels."),
            f"Set `groups` to a divisor of the number of channels. Received: groups={groups} "
            f"for `inputs` of {channels} channels",
        )
    if channels % groups:
        raise noted(
            ValueError(f"{channels} channels is not commensurate with {groups} groups."),
            f"Set `groups` to a divisor of them. Received: groups={groups} for `inputs` of "
            f"{channels} channels",
        )
    return groups


def checked_channels_axis(channels_axis: Any, shape: Sequence[int | None]) -> int:
    """Returns the axis of the channels, negative if it was given so; its size must be known."""
    axis, rank = check_integer("channels_axis", channels_axis), len(shape)
    received = f"Received: channels_axis={axis} for inputs of shape {tuple(shape)}"
    if not -rank <= axis < rank:
        raise noted(ValueError("Axis is out of bounds."), received)
    if axis % rank == 0:
        raise ValueError(
            "`channels_axis` must be an axis of the inputs after the first, which is the batch. "
            f"{received}"
        )
    if shape[axis] is None:
        raise ValueError(
            "The number of channels must be known, an axis of `inputs`: programs are static. "
            f"{received}"
        )
    return axis


def normalize_groups(
    inputs: tf.Tensor,
    gamma: tf.Tensor | None,
    beta: tf.Tensor | None,
    *,
    groups: int,
    channels_axis: int,
    epsilon: float,
    strided: bool,
    kind: str,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Gives each group of channels of each sample a mean of 0 and a variance of 1.

    Statistics, over the group's channels and all other axes but the first, are in float32 or
    more, as Popnn has them. `gamma`, the factors, and `beta`, which is added in the end, are
    `(channels,)`; None stands for 1 and for 0. A group is every `groups`-th channel if they are
    strided, else neighbours. `kind` names the operation in reports.

    Returns:
        A tensor of the shape and type of `inputs`; and for each group the mean and the variance,
        `(batch, groups)`, in the type of statistics.

    Example:

    >>> x = tf.constant([[0.0, 1.0, 4.0, 3.0]])
    >>> arguments = {"groups": 2, "channels_axis": -1, "epsilon": 0.0, "kind": "GroupNorm"}
    >>> print(normalize_groups(x, None, None, strided=False, **arguments)[0].numpy())
    [[-1.  1.  1. -1.]]
    >>> print(normalize_groups(x, None, None, strided=True, **arguments)[0].numpy())
    [[-1. -1.  1.  1.]]
    """
    axis = channels_axis % inputs.shape.rank
    channels = static_sizes(inputs)[axis]
    # The axis of channels becomes two, in an order that brings channels of a group together
    # without moving data.
    split = [channels // groups, groups] if strided else [groups, channels // groups]
    sizes = _sizes(inputs)
    group_axis = axis + 1 if strided else axis
    reduced = [i for i in range(1, len(sizes) + 1) if i != group_axis]
    of_parameters = [1] * axis + split + [1] * (len(sizes) - axis - 1)
    with poplar_operation(kind):
        normalized, *statistics = _normalized(
            inputs,
            [*sizes[:axis], *split, *sizes[axis + 1 :]],
            reduced,
            [None if each is None else tf.reshape(each, of_parameters) for each in (gamma, beta)],
            epsilon,
        )
        mean, variance = (tf.reshape(each, [-1, groups]) for each in statistics)
        return normalized, mean, variance


def normalize_axes(
    inputs: tf.Tensor,
    gamma: tf.Tensor | None,
    beta: tf.Tensor | None,
    *,
    axes: Sequence[int],
    epsilon: float,
    kind: str,
) -> tf.Tensor:
    """Gives each slice along some axes a mean of 0 and a variance of 1.

    `gamma`, the factors, and `beta`, which is added in the end, have the sizes of these axes, in
    their order in `inputs`; None stands for 1 and for 0. `kind` names the operation in reports.

    Example:

    >>> x = tf.constant([[1.0, 3.0], [4.0, 2.0]])
    >>> print(normalize_axes(x, None, None, axes=[1], epsilon=0.0, kind="LayerNorm").numpy())
    [[-1.  1.]
     [ 1. -1.]]
    """
    rank = inputs.shape.rank
    axes = sorted(axis % rank for axis in axes)
    of_parameters = [static_sizes(inputs)[axis] if axis in axes else 1 for axis in range(rank)]
    with poplar_operation(kind):
        return _normalized(
            inputs,
            None,
            axes,
            [None if each is None else tf.reshape(each, of_parameters) for each in (gamma, beta)],
            epsilon,
        )[0]


def _normalized(
    inputs: tf.Tensor,
    shape: list | None,
    axes: list[int],
    parameters: Sequence[tf.Tensor | None],
    epsilon: float,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Normalises the reshaped tensor; returns it in its old shape, and the statistics."""
    wide = tf.cast(inputs, tf.float64 if inputs.dtype == tf.float64 else tf.float32)
    shaped = wide if shape is None else tf.reshape(wide, shape)
    gamma, beta = (None if each is None else tf.cast(each, wide.dtype) for each in parameters)
    mean, variance = tf.nn.moments(shaped, axes, keepdims=True)
    # The mean is subtracted first, as Popnn does. TensorFlow's function subtracts it when both have
    # been scaled: XLA, which rounds one of them only, makes 0.002 of equal numbers of 300.
    scale = tf.math.rsqrt(variance + epsilon)
    normalized = (shaped - mean) * (scale if gamma is None else scale * gamma)
    if beta is not None:
        normalized += beta
    if shape is not None:
        normalized = tf.reshape(normalized, _sizes(inputs))
    return tf.cast(normalized, inputs.dtype), mean, variance


def _sizes(tensor: tf.Tensor) -> list:
    """Returns the sizes of all axes; tensors where Keras does not know them yet."""
    known = tensor.shape.as_list()
    if known.count(None) <= 1 and math.prod(size for size in known if size is not None):
        return [-1 if size is None else size for size in known]
    dynamic = tf.shape(tensor)
    return [dynamic[axis] if size is None else size for axis, size in enumerate(known)]
