import re
from collections.abc import Iterable

import keras
import tensorflow as tf
from keras import ops

from ipu_addons.keras.optimizers.ipu_optimizer_base import (
    IpuOptimizerBase,
    compute_precisions,
    dense,
    dtype_name,
    path_of,
    stage_precisions,
)
from ipu_keras.ops.argument_checks import (
    check_flag,
    check_number,
    check_share,
    converted,
    received,
)


@keras.saving.register_keras_serializable(package="ipu_addons")
class LAMBIpuOptimizer(IpuOptimizerBase):
    """LAMB, which adapts the learning rate to each weight, with a choice of data types.

    The optimizer is for large batches. With g the gradient in weight update t, from 1 on:

        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g**2
        update = m / (1 - beta_1**t) / (sqrt(v / (1 - beta_2**t)) + epsilon)

    in the first of the compute precisions, and in the second

        update += weight_decay_rate * weight
        weight -= learning_rate * norm(weight) / norm(update) * update

    The ratio of norms is 1 if one of them is 0. Where all types are float32, and without the
    decay of weights, it equals `keras.optimizers.Lamb`.

    Args:
        learning_rate: A float, a scalar tensor, a
            `keras.optimizers.schedules.LearningRateSchedule`, or a callable without arguments.
            Defaults to `0.001`.
        beta_1: A float, how much of the first moment stays in each update. Defaults to `0.9`.
        beta_2: A float, how much of the second moment stays. Defaults to `0.999`.
        epsilon: A float, for numerical stability. Defaults to `1e-6`.
        weight_decay_rate: A float, what of the weight is added to its update. Defaults to `0.0`.
        exclude_from_weight_decay: A list of regular expressions; weights whose path (such as
            `"sequential/dense/bias"`) has a match do not decay. Defaults to `None`, for none.
        exclude_from_layer_adaptation: A list of regular expressions; the ratio of such weights
            is 1. Defaults to `None`, for those that do not decay.
        name: Name of the optimizer. Defaults to `"LAMB"`.
        debiasing: Whether to correct the moments for their start at zero, by the divisions by
            `1 - beta**t`. Defaults to `True`.
        m_dtype: Type of the first moments; `None` for that of each weight. Defaults to `None`.
        v_dtype: Type of the second moments. Defaults to `None`.
        weight_norm_clip: A float, the largest norm of a weight that the ratio takes into
            account. Defaults to `None`, for no limit.
        optimizer_compute_precisions: Two data types, in which the two parts are computed.
            `None` is float32, or float64 for weights of float64. Defaults to `(tf.float32,
            tf.float32)`.
        **kwargs: `clipnorm`, `clipvalue`, `lr`, `decay`, `outline_apply_gradients` and the other
            arguments of `keras.optimizers.Optimizer`.

    Raises:
        TypeError: A data type is not a floating point type, or the expressions are not a list.
        ValueError: There are not two compute precisions, or a number is out of its range.

    References:
        - [You et al., 2019](https://arxiv.org/abs/1904.00962)

    Example:

    >>> optimizer = LAMBIpuOptimizer(0.1, v_dtype="float32", m_dtype="float16")
    >>> weight = keras.Variable([3.0, 4.0])
    >>> optimizer.apply([[1.0, 1.0]], [weight])
    >>> [round(float(x), 3) for x in weight.numpy()]  # less 0.1 * 5 / sqrt(2)
    [2.646, 3.646]
    """

    def __init__(
        self,
        learning_rate=0.001,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-6,
        weight_decay_rate=0.0,
        exclude_from_weight_decay=None,
        exclude_from_layer_adaptation=None,
        name="LAMB",
        debiasing=True,
        m_dtype=None,
        v_dtype=None,
        weight_norm_clip=None,
        optimizer_compute_precisions=(tf.float32, tf.float32),
        **kwargs,
    ):
        super().__init__(learning_rate, name=name, **kwargs)
        self.beta_1 = check_share("beta_1", beta_1)
        self.beta_2 = check_share("beta_2", beta_2)
        self.epsilon = check_number("epsilon", epsilon)
        self.weight_decay_rate = check_number("weight_decay_rate", weight_decay_rate)
        # Not under the argument's name: Keras has a method `exclude_from_weight_decay`.
        self.weight_decay_exclusions = _patterns(
            "exclude_from_weight_decay", exclude_from_weight_decay
        )
        self.layer_adaptation_exclusions = _patterns(
            "exclude_from_layer_adaptation", exclude_from_layer_adaptation
        )
        self.debiasing = check_flag("debiasing", debiasing)
        self.m_dtype = dtype_name("m_dtype", m_dtype)
        self.v_dtype = dtype_name("v_dtype", v_dtype)
        self.weight_norm_clip = (
            None if weight_norm_clip is None else check_number("weight_norm_clip", weight_norm_clip)
        )
        self.optimizer_compute_precisions = compute_precisions(
            optimizer_compute_precisions, "one type for the moments and one for the weights"
        )

    def build(self, variables):
        """Makes the moments of weights, and finds out which weights are excluded.

        Args:
            variables: The weights to train.
        """
        if self.built:
            return
        super().build(variables)
        self._momentums, self._velocities = self.add_state(
            variables, {"momentum": self.m_dtype, "velocity": self.v_dtype}
        )
        # Matched here, as `update_step` gets TensorFlow's variables, which have no path.
        paths = [path_of(variable) for variable in variables]
        self._decays = [not _matches(self.weight_decay_exclusions, path) for path in paths]
        unadapted = self.layer_adaptation_exclusions
        if unadapted is None:
            unadapted = self.weight_decay_exclusions
        self._adapts = [not _matches(unadapted, path) for path in paths]

    def update_step(self, gradient, variable, learning_rate):
        """Updates one weight and its moments."""
        moments_dtype, dtype = stage_precisions(self.optimizer_compute_precisions, variable)
        index = self._get_variable_index(variable)
        update = ops.cast(self._adam_update(dense(gradient, moments_dtype), index), dtype)
        weight = ops.cast(variable, dtype)
        if self.weight_decay_rate and self._decays[index]:
            update = update + weight * self.weight_decay_rate
        rate = self.current_rate(learning_rate, dtype)
        if self._adapts[index]:
            rate = rate * self._trust_ratio(weight, update)
        self.assign(variable, weight - rate * update)

    def _adam_update(self, gradient, index):
        """Returns Adam's step for a weight, in the gradient's type, and keeps the moments."""
        dtype = gradient.dtype
        m = ops.cast(self._momentums[index], dtype)
        m = m + (gradient - m) * (1 - self.beta_1)
        self.assign(self._momentums[index], m)

        v = ops.cast(self._velocities[index], dtype)
        v = v + (ops.square(gradient) - v) * (1 - self.beta_2)
        self.assign(self._velocities[index], v)

        if self.debiasing:
            # In float32, as float16 cannot tell steps apart above 2048.
            step = ops.cast(self.iterations + 1, "float32")
            m = m / ops.cast(1 - ops.power(self.beta_1, step), dtype)
            v = v / ops.cast(1 - ops.power(self.beta_2, step), dtype)
        return m / (ops.sqrt(v) + self.epsilon)

    def _trust_ratio(self, weight, update):
        """Returns the ratio of norms, by which the learning rate is multiplied."""
        # TensorFlow's norm, as `keras.ops.norm` refuses scalars.
        weight_norm, update_norm = tf.norm(weight), tf.norm(update)
        if self.weight_norm_clip is not None:
            weight_norm = ops.minimum(weight_norm, self.weight_norm_clip)
        has_ratio = ops.logical_and(weight_norm > 0, update_norm > 0)
        one = ops.ones_like(update_norm)
        # A weight of zeros, as biases are at first, would otherwise never move.
        return ops.where(has_ratio, weight_norm / ops.where(has_ratio, update_norm, one), one)

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "beta_1": self.beta_1,
                "beta_2": self.beta_2,
                "epsilon": self.epsilon,
                "weight_decay_rate": self.weight_decay_rate,
                "exclude_from_weight_decay": self.weight_decay_exclusions,
                "exclude_from_layer_adaptation": self.layer_adaptation_exclusions,
                "debiasing": self.debiasing,
                "m_dtype": self.m_dtype,
                "v_dtype": self.v_dtype,
                "weight_norm_clip": self.weight_norm_clip,
                "optimizer_compute_precisions": self.optimizer_compute_precisions,
            }
        )
        return config


def _patterns(argument, value):
    if value is None:
        return None
    is_listed = isinstance(value, Iterable) and not isinstance(value, str | bytes)
    patterns = tuple(value) if is_listed else (None,)
    if not all(isinstance(pattern, str) for pattern in patterns):
        raise TypeError(
            f"`{argument}` must be a list of regular expressions. "
            f"Received: {received(argument, value)}"
        )
    for pattern in patterns:
        converted(argument, re.compile, pattern)
    return patterns


def _matches(patterns, path):
    return any(re.search(pattern, path) for pattern in patterns or ())
