import keras
from keras import ops

from ipu_addons.keras.optimizers.ipu_optimizer_base import (
    IpuOptimizerBase,
    compute_precisions,
    dense,
    dtype_name,
    stage_precisions,
    wide,
)
from ipu_keras.ops.argument_checks import check_flag, check_number, check_share


@keras.saving.register_keras_serializable(package="ipu_addons")
class AdamIpuOptimizer(IpuOptimizerBase):
    """Adam whose moments have data types of their own, such as float16 to halve their memory.

    With g the gradient in weight update t, from 1 on:

        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g**2
        rate = learning_rate * sqrt(1 - beta_2**t) / (1 - beta_1**t)
        weight -= rate * m / (sqrt(v) + epsilon)

    The moments are computed in the first of the compute precisions, and all else in the second.
    Where all types are float32, it equals `keras.optimizers.Adam`.

    Args:
        learning_rate: A float, a scalar tensor, a
            `keras.optimizers.schedules.LearningRateSchedule`, or a callable without arguments.
            Defaults to `0.001`.
        beta_1: A float, how much of the first moment stays in each update. Defaults to `0.9`.
        beta_2: A float, how much of the second moment stays. Defaults to `0.999`.
        epsilon: A float, for numerical stability; the "epsilon hat" of the paper. Defaults to
            `1e-7`.
        amsgrad: Whether to divide by the largest second moment so far. Defaults to `False`.
        name: Name of the optimizer. Defaults to `"Adam"`.
        m_dtype: Type of the first moments; `None` for that of each weight. Defaults to `None`.
        v_dtype: Type of the second moments. Defaults to `None`.
        vhat_dtype: Type of the largest second moments, which exist with `amsgrad`. Defaults to
            `None`.
        debiasing: Whether to correct the moments for their start at zero; if not, `rate` is
            `learning_rate`. Defaults to `True`.
        optimizer_compute_precisions: Two data types, in which the moments and the weights are
            computed. Defaults to `None`: float32, or float64 for weights of float64.
        **kwargs: `clipnorm`, `clipvalue`, `lr`, `decay`, `outline_apply_gradients` and the other
            arguments of `keras.optimizers.Optimizer`.

    Raises:
        TypeError: A data type is not a floating point type.
        ValueError: There are not two compute precisions, or a number is out of its range.

    References:
        - [Kingma and Ba, 2014](https://arxiv.org/abs/1412.6980)
        - [Reddi et al., 2018](https://openreview.net/pdf?id=ryQu7f-RZ) for `amsgrad`

    Example:

    >>> optimizer = AdamIpuOptimizer(0.1, m_dtype="float16")
    >>> weight = keras.Variable([1.0])
    >>> optimizer.apply([[3.0]], [weight])
    >>> [round(float(x), 4) for x in weight.numpy()]  # the first step is the rate
    [0.9]
    """

    def __init__(
        self,
        learning_rate=0.001,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-7,
        amsgrad=False,
        name="Adam",
        m_dtype=None,
        v_dtype=None,
        vhat_dtype=None,
        debiasing=True,
        optimizer_compute_precisions=None,
        **kwargs,
    ):
        super().__init__(learning_rate, name=name, **kwargs)
        self.beta_1 = check_share("beta_1", beta_1)
        self.beta_2 = check_share("beta_2", beta_2)
        self.epsilon = check_number("epsilon", epsilon)
        self.amsgrad = check_flag("amsgrad", amsgrad)
        self.m_dtype = dtype_name("m_dtype", m_dtype)
        self.v_dtype = dtype_name("v_dtype", v_dtype)
        self.vhat_dtype = dtype_name("vhat_dtype", vhat_dtype)
        self.debiasing = check_flag("debiasing", debiasing)
        self.optimizer_compute_precisions = compute_precisions(
            optimizer_compute_precisions, "one type for the moments and one for the weights"
        )

    def build(self, variables):
        """Makes the moments of weights.

        Args:
            variables: The weights to train.
        """
        if self.built:
            return
        super().build(variables)
        self._momentums, self._velocities = self.add_state(
            variables, {"momentum": self.m_dtype, "velocity": self.v_dtype}
        )
        if self.amsgrad:
            (self._velocity_hats,) = self.add_state(variables, {"velocity_hat": self.vhat_dtype})

    def update_step(self, gradient, variable, learning_rate):
        """Updates one weight and its moments."""
        moments_dtype, dtype = stage_precisions(self.optimizer_compute_precisions, variable)
        gradient = dense(gradient, moments_dtype)
        index = self._get_variable_index(variable)

        m = ops.cast(self._momentums[index], moments_dtype)
        m = m + (gradient - m) * (1 - self.beta_1)
        self.assign(self._momentums[index], m)

        v = ops.cast(self._velocities[index], moments_dtype)
        v = v + (ops.square(gradient) - v) * (1 - self.beta_2)
        self.assign(self._velocities[index], v)

        if self.amsgrad:
            v = ops.maximum(ops.cast(self._velocity_hats[index], moments_dtype), v)
            self.assign(self._velocity_hats[index], v)

        # Not read back from the state, which has them rounded to its own types.
        m, v = ops.cast(m, dtype), ops.cast(v, dtype)
        rate = self._debiased(self.current_rate(learning_rate, wide(dtype)), dtype)
        change = m * rate / (ops.sqrt(v) + self.epsilon)
        self.assign(variable, ops.cast(variable, dtype) - change)

    def _debiased(self, rate, dtype):
        """Returns the rate after its correction, as another type.

        Its own type has to count the steps exactly, which float16 does only up to 2048.
        """
        if self.debiasing:
            step = ops.cast(self.iterations + 1, rate.dtype)
            beta_1_power = ops.power(ops.cast(self.beta_1, rate.dtype), step)
            beta_2_power = ops.power(ops.cast(self.beta_2, rate.dtype), step)
            rate = rate * ops.sqrt(1 - beta_2_power) / (1 - beta_1_power)
        return ops.cast(rate, dtype)

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "beta_1": self.beta_1,
                "beta_2": self.beta_2,
                "epsilon": self.epsilon,
                "amsgrad": self.amsgrad,
                "m_dtype": self.m_dtype,
                "v_dtype": self.v_dtype,
                "vhat_dtype": self.vhat_dtype,
                "debiasing": self.debiasing,
                "optimizer_compute_precisions": self.optimizer_compute_precisions,
            }
        )
        return config
