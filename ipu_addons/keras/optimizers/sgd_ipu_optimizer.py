import keras
from keras import ops

from ipu_addons.keras.optimizers.ipu_optimizer_base import (
    IpuOptimizerBase,
    compute_precisions,
    dense,
    dtype_name,
    stage_precisions,
)
from ipu_keras.ops.argument_checks import check_flag, check_number


@keras.saving.register_keras_serializable(package="ipu_addons")
class SGDIpuOptimizer(IpuOptimizerBase):
    """Gradient descent whose momentum has a data type of its own.

    With g the gradient, and without momentum: `weight -= learning_rate * g`. With momentum:

        velocity = momentum * velocity - learning_rate * g
        weight += velocity

    and with Nesterov momentum, `weight += momentum * velocity - learning_rate * g`. The velocity
    is computed in the first of the compute precisions, and the weight in the second. Where all
    types are float32, it equals `keras.optimizers.SGD`.

    Args:
        learning_rate: A float, a scalar tensor, a
            `keras.optimizers.schedules.LearningRateSchedule`, or a callable without arguments.
            Defaults to `0.01`.
        momentum: A float from 0 to 1. Defaults to `0.0`, for none.
        nesterov: Whether it is Nesterov momentum. Defaults to `False`.
        name: Name of the optimizer. Defaults to `"SGD"`.
        momentum_accum_dtype: Type of the velocities, which exist with momentum; `None` for that
            of each weight. Defaults to `None`.
        optimizer_compute_precisions: Two data types, in which `learning_rate * g` with the
            velocity, and the weight, are computed; one type alone in the tuple is for both.
            Defaults to `None`: float32, or float64 for weights of float64.
        **kwargs: `clipnorm`, `clipvalue`, `lr`, `decay`, `outline_apply_gradients` and the other
            arguments of `keras.optimizers.Optimizer`.

    Raises:
        TypeError: A data type is not a floating point type.
        ValueError: `momentum` is not between 0 and 1, or there are not two compute precisions.

    References:
        - [Sutskever et al., 2013](https://proceedings.mlr.press/v28/sutskever13.pdf) for Nesterov
          momentum

    Example:

    >>> optimizer = SGDIpuOptimizer(0.5, momentum=0.5, momentum_accum_dtype="float16")
    >>> weight = keras.Variable([1.0])
    >>> optimizer.apply([[1.0]], [weight])
    >>> optimizer.apply([[0.0]])
    >>> [float(x) for x in weight.numpy()]  # 1 - 0.5, then - 0.5 * 0.5
    [0.25]
    """

    def __init__(
        self,
        learning_rate=0.01,
        momentum=0.0,
        nesterov=False,
        name="SGD",
        momentum_accum_dtype=None,
        optimizer_compute_precisions=None,
        **kwargs,
    ):
        super().__init__(learning_rate, name=name, **kwargs)
        self.momentum = check_number("momentum", momentum)
        if not 0 <= self.momentum <= 1:
            raise ValueError(f"`momentum` must be between [0, 1]. Received: momentum={momentum}")
        self.nesterov = check_flag("nesterov", nesterov)
        self.momentum_accum_dtype = dtype_name("momentum_accum_dtype", momentum_accum_dtype)
        if isinstance(optimizer_compute_precisions, list | tuple):
            # Without momentum there is one stage, so that one type will do.
            alone = len(optimizer_compute_precisions) == 1
            optimizer_compute_precisions *= 2 if alone else 1
        self.optimizer_compute_precisions = compute_precisions(
            optimizer_compute_precisions, "one type for the velocity and one for the weights"
        )

    def build(self, variables):
        """Makes the velocities of weights, if there is momentum.

        Args:
            variables: The weights to train.
        """
        if self.built:
            return
        super().build(variables)
        if self.momentum:
            (self._momentums,) = self.add_state(variables, {"momentum": self.momentum_accum_dtype})

    def update_step(self, gradient, variable, learning_rate):
        """Updates one weight and its velocity."""
        velocity_dtype, dtype = stage_precisions(self.optimizer_compute_precisions, variable)
        step = dense(gradient, velocity_dtype) * self.current_rate(learning_rate, velocity_dtype)
        change = -step
        if self.momentum:
            kept = self._momentums[self._get_variable_index(variable)]
            velocity = ops.cast(kept, velocity_dtype) * self.momentum - step
            self.assign(kept, velocity)
            change = velocity * self.momentum - step if self.nesterov else velocity
        self.assign(variable, ops.cast(variable, dtype) + ops.cast(change, dtype))

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "momentum": self.momentum,
                "nesterov": self.nesterov,
                "momentum_accum_dtype": self.momentum_accum_dtype,
                "optimizer_compute_precisions": self.optimizer_compute_precisions,
            }
        )
        return config
