"""The base class of this folder's optimizers: state of any type, and older arguments."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from ipu_keras.ops.argument_checks import check_not_negative, converted


class IpuOptimizerBase(keras.optimizers.Optimizer):
    """A Keras optimizer whose state variables have data types of their own.

    What is computed is rounded to these types only where it is kept: steps are computed in
    float32, or in float64 for weights of float64, unless a subclass is told otherwise. Gradients
    of lookups are made dense, as on an IPU, so that several for one row add up.

    Args:
        learning_rate: A float, a scalar tensor, a
            `keras.optimizers.schedules.LearningRateSchedule`, or a callable without arguments.
        name: Name of the optimizer.
        lr: The older name of `learning_rate`, which it replaces.
        decay: The rate in weight update t, from 0 on, is `learning_rate / (1 + decay * t)`.
            `learning_rate` of the optimizer stays as it is set.
        outline_apply_gradients: Whether an IPU has the code of the update once and calls it for
            each weight. `True` has no effect: results are the same, and reports do not model it,
            as a warning says.
        outline_apply_gradients_kwargs: Arguments of `outlined_function` for that code.
        **kwargs: Further arguments of `keras.optimizers.Optimizer`, such as `clipnorm` and
            `clipvalue`.

    Raises:
        TypeError: `outline_apply_gradients` is not a boolean, or its `kwargs` are not a
            dictionary.
        ValueError: `decay` is negative, or given together with `weight_decay`.
    """

    def __init__(
        self,
        learning_rate,
        *,
        name,
        lr=None,
        decay=0.0,
        outline_apply_gradients=None,
        outline_apply_gradients_kwargs=None,
        **kwargs,
    ):
        super().__init__(
            learning_rate=_rate(learning_rate if lr is None else lr), name=name, **kwargs
        )
        decay = check_not_negative("decay", decay)
        if decay and self.weight_decay is not None:
            # Keras applies `weight_decay` before `update_step`, with a rate that has not decayed.
            raise ValueError(
                "`decay` and `weight_decay` cannot be combined. Pass "
                "`keras.optimizers.schedules.InverseTimeDecay` as `learning_rate` instead of "
                f"`decay`. Received: decay={decay}, weight_decay={self.weight_decay}"
            )
        _check_outlining(outline_apply_gradients, outline_apply_gradients_kwargs)
        self.decay = decay
        self.outline_apply_gradients = outline_apply_gradients
        self.outline_apply_gradients_kwargs = outline_apply_gradients_kwargs

    @property
    def lr(self):
        """The older name of `learning_rate`."""
        return self.learning_rate

    @lr.setter
    def lr(self, value):
        self.learning_rate = value

    def add_state(self, variables: Sequence[Any], dtypes: Mapping[str, str | None]) -> tuple:
        """Makes the state of weights, zeros at first.

        Returns a list of variables for each name in `dtypes`, in the order of the weights; a
        type of None is that of the weight.
        """
        state: tuple[list, ...] = tuple([] for _ in dtypes)
        for variable in variables:
            for made, (name, dtype) in zip(state, dtypes.items(), strict=True):
                made.append(self._make_state(variable, name, dtype))
        return state

    def _make_state(self, variable, name, dtype):
        if self._overwrite_variable_with_gradient(variable):
            return None
        # A copy of what Keras does, which has no argument for another type than the weight's.
        weight = variable.value if isinstance(variable, keras.Variable) else variable
        with self._distribution_strategy.extended.colocate_vars_with(weight):
            return self.add_variable(
                shape=variable.shape,
                dtype=dtype or variable.dtype,
                name=f"{path_of(variable).replace('/', '_')}_{name}",
            )

    def current_rate(self, learning_rate: Any, dtype: str) -> Any:
        """Returns the learning rate of this update, after its decay, in `dtype`."""
        # Not computed in float16, which has only even numbers from 2048 on: it could not count.
        rate = converted("learning_rate", ops.cast, learning_rate, wide(dtype))
        if self.decay:
            rate = rate / (1.0 + self.decay * ops.cast(self.iterations, rate.dtype))
        return ops.cast(rate, dtype)

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "decay": self.decay,
                "outline_apply_gradients": self.outline_apply_gradients,
                "outline_apply_gradients_kwargs": self.outline_apply_gradients_kwargs,
            }
        )
        return config


def path_of(variable: Any) -> str:
    """Returns the name of a weight with its layers, such as `dense/kernel`."""
    return getattr(variable, "path", variable.name).partition(":")[0]


def wide(dtype: Any) -> str:
    """Returns the type itself, or float32 if that has more bits."""
    return keras.backend.result_type(dtype, "float32")


def stage_precisions(precisions: Sequence[str] | None, variable: Any) -> Sequence[str]:
    """Returns the types in which the two stages of a weight's update are computed."""
    return (wide(variable.dtype),) * 2 if precisions is None else precisions


def dense(gradient: Any, dtype: str) -> Any:
    """Returns a gradient as a tensor of a type, also if it has only some rows."""
    return ops.cast(tf.convert_to_tensor(gradient), dtype)


def dtype_name(argument: str, value: Any) -> str | None:
    """Returns the name of a floating point type, which a configuration can hold; None stays
    None."""
    if value is None:
        return None
    try:
        dtype = tf.as_dtype(value)
    except TypeError:
        dtype = None
    if dtype is None or not dtype.is_floating:
        raise TypeError(
            f"`{argument}` must be None or a floating point type such as tf.float16. "
            f"Received: {argument}={value!r}"
        )
    return dtype.name


def compute_precisions(value: Any, stages: str) -> tuple[str, str] | None:
    """Returns the names of the two types in which the stages of an update are computed.

    None, for the widest, stays None; `stages` says in errors what the two types are for.
    """
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError(
            f"`optimizer_compute_precisions` must be a tuple of size 2: {stages}. "
            f"Received: optimizer_compute_precisions={value!r}"
        )
    first, second = (dtype_name("optimizer_compute_precisions", dtype) for dtype in value)
    if first is None or second is None:
        raise TypeError(
            "`optimizer_compute_precisions` must be floating point types. "
            f"Received: optimizer_compute_precisions={value!r}"
        )
    return first, second


def _rate(value: Any) -> Any:
    """Returns numbers and constant tensors as floats: Keras takes floats and schedules only."""
    if isinstance(value, int | np.number | np.ndarray | tf.Tensor):
        return converted("learning_rate", float, value)
    return value


def _check_outlining(outline: Any, kwargs: Any) -> None:
    if outline is not None and not isinstance(outline, bool):
        raise TypeError(
            "`outline_apply_gradients` must be True, False or None. "
            f"Received: outline_apply_gradients={outline!r}"
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TypeError(
            "`outline_apply_gradients_kwargs` must be a dictionary. "
            f"Received: outline_apply_gradients_kwargs={kwargs!r}"
        )
    if outline or kwargs:
        warnings.warn(
            "`outline_apply_gradients` has no effect here: it would save code memory on an IPU, "
            "where reports count the code of an update for each weight. Results are the same.",
            stacklevel=4,
        )
