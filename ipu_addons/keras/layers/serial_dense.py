"""A dense layer that multiplies in several parts."""

import keras

from ipu_keras.keras.layers.weights import add_weight
from ipu_keras.ops.argument_checks import (
    check_choice,
    check_flag,
    converted,
    positive_integer,
)
from ipu_keras.ops.math_ops import serialized_matmul

# The names that `serialized_matmul` has for the dimensions of `inputs @ kernel`.
_DIMENSIONS = {
    "input_columns": "a_columns",
    "input_rows_kernel_columns": "a_rows_b_columns",
    "kernel_rows": "b_rows",
}


@keras.saving.register_keras_serializable(package="ipu_addons")
class SerialDense(keras.layers.Layer):
    """A densely connected layer whose product is computed in several parts.

    The outputs are `activation(inputs @ kernel + bias)`. One part after the other, forward and
    backward, needs less memory for partial results than the whole product.

    Args:
        units: Size of the outputs' last axis.
        serialization_factor: Number of parts, which divides the dimension that is cut.
        serialization_dimension: Which dimension of `(..., m, k) @ (k, n)` is cut:
            `"input_columns"` is `m`, `"input_rows_kernel_columns"` is `k`, and `"kernel_rows"`
            is `n`.
        activation: Function of the outputs; `None` for none.
        use_bias: Whether to add a weight `bias`.
        kernel_initializer: Initializer of the weight `kernel`, `(k, units)`.
        bias_initializer: Initializer of `bias`, `(units,)`.
        kernel_regularizer: Regularizer of `kernel`; `None` for none.
        bias_regularizer: Regularizer of `bias`; `None` for none.
        activity_regularizer: Regularizer of the outputs; `None` for none.
        kernel_constraint: Constraint of `kernel`; `None` for none.
        bias_constraint: Constraint of `bias`; `None` for none.
        **kwargs: Further arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Tensor of the shape `(batch, ..., k)`.
        **kwargs: Accepted and not used.

    Raises:
        ValueError: `units` or the factor is not a positive integer, or there is no such
            dimension; when it is built or called, the factor does not divide the dimension.

    Example:

    >>> layer = SerialDense(4, 2, "kernel_rows", kernel_initializer="ones")
    >>> print(layer(keras.ops.ones((1, 3))).numpy())
    [[3. 3. 3. 3.]]
    """

    def __init__(
        self,
        units,
        serialization_factor=1,
        serialization_dimension="kernel_rows",
        activation=None,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        activity_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        **kwargs,
    ):
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self.units = positive_integer("units", units)
        self.serialization_factor = positive_integer("serialization_factor", serialization_factor)
        self.serialization_dimension = check_choice(
            "serialization_dimension", serialization_dimension, _DIMENSIONS
        )
        initializer, regularizer = keras.initializers.get, keras.regularizers.get
        constraint = keras.constraints.get
        if isinstance(activation, type):
            raise TypeError(
                "`activation` must be a function or its name, and no class: make an object of it. "
                f"Received: activation={activation!r}"
            )
        self.activation = converted("activation", keras.activations.get, activation)
        self.use_bias = check_flag("use_bias", use_bias)
        self.kernel_initializer = converted("kernel_initializer", initializer, kernel_initializer)
        self.bias_initializer = converted("bias_initializer", initializer, bias_initializer)
        self.kernel_regularizer = converted("kernel_regularizer", regularizer, kernel_regularizer)
        self.bias_regularizer = converted("bias_regularizer", regularizer, bias_regularizer)
        self.kernel_constraint = converted("kernel_constraint", constraint, kernel_constraint)
        self.bias_constraint = converted("bias_constraint", constraint, bias_constraint)
        self.input_spec = keras.layers.InputSpec(min_ndim=2)
        self.supports_masking = True

    def build(self, input_shape):
        features = input_shape[-1]
        self._check_factor(input_shape)
        self.kernel = add_weight(
            self,
            "kernel_initializer",
            self.kernel_initializer,
            shape=(features, self.units),
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
            name="kernel",
        )
        self.bias = None
        if self.use_bias:
            self.bias = add_weight(
                self,
                "bias_initializer",
                self.bias_initializer,
                shape=(self.units,),
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
                name="bias",
            )
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: features})

    def _check_factor(self, input_shape) -> None:
        """Checks the factor for sizes of weights, known first; `call` checks that of inputs."""
        sizes = {"input_rows_kernel_columns": input_shape[-1], "kernel_rows": self.units}
        size = sizes.get(self.serialization_dimension, 0)
        if size % self.serialization_factor:
            raise ValueError(
                "`serialization_factor` must divide the dimension that is cut. "
                f"Received: serialization_factor={self.serialization_factor}, "
                f"serialization_dimension={self.serialization_dimension!r} of size {size}"
            )

    def call(self, inputs, **kwargs):
        # One product of all rows is faster than one for each matrix. To cut `m` would then cut
        # other rows.
        is_flat = self.serialization_dimension != "input_columns" and len(inputs.shape) > 2
        rows = keras.ops.reshape(inputs, (-1, inputs.shape[-1])) if is_flat else inputs
        outputs = serialized_matmul(
            rows,
            self.kernel,
            self.serialization_factor,
            _DIMENSIONS[self.serialization_dimension],
        )
        if is_flat:
            outputs = keras.ops.reshape(outputs, (*keras.ops.shape(inputs)[:-1], self.units))
        if self.bias is not None:
            outputs = keras.ops.add(outputs, self.bias)
        return self.activation(outputs)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.units)

    def get_config(self):
        config = {
            "units": self.units,
            "serialization_factor": self.serialization_factor,
            "serialization_dimension": self.serialization_dimension,
            "activation": keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
            "activity_regularizer": keras.regularizers.serialize(self.activity_regularizer),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
            "bias_constraint": keras.constraints.serialize(self.bias_constraint),
        }
        return {**super().get_config(), **config}
