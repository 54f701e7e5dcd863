"""Layer normalisation as a Keras layer."""

import keras
import tensorflow as tf

from ipu_keras.keras.layers.channel_normalization import weight_policy
from ipu_keras.keras.layers.weights import add_weight
from ipu_keras.ops.argument_checks import (
    check_flag,
    check_integer,
    check_not_negative,
    converted,
)
from ipu_keras.ops.normalized_groups import normalize_axes, operation_of


@keras.saving.register_keras_serializable(package="ipu_addons")
class LayerNormalization(keras.layers.Layer):
    """Normalises along some axes, as `keras.layers.LayerNormalization` does.

    J. L. Ba et al., "Layer Normalization", 2016, https://arxiv.org/abs/1607.06450.

    Args:
        dtype: The data type of the weights, as for `GroupNormalization`.
        axis: The axis, or the axes, over which statistics are taken. The weights have the sizes
            of these.
        epsilon: Small number that is added to the variance.
        center: Whether to add a weight `beta`.
        scale: Whether to multiply with a weight `gamma`.
        beta_initializer: Initializer of `beta`; zeros by default.
        gamma_initializer: Initializer of `gamma`; ones by default.
        trainable: Whether the weights are trained.
        name: Name of the layer.
        beta_regularizer: Regularizer of `beta`; `None` for none.
        gamma_regularizer: Regularizer of `gamma`; `None` for none.
        beta_constraint: Constraint of `beta`; `None` for none.
        gamma_constraint: Constraint of `gamma`; `None` for none.
        **kwargs: Further arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: A tensor that has these axes.
        training: Whether the gradient is needed, as for `GroupNormalization`.

    Raises:
        TypeError: `dtype` is a number, or another argument has a wrong type.
        ValueError: When it is built: the inputs do not have such axes, an axis is given twice,
            or its size is not known.

    Example:

    >>> layer = LayerNormalization(epsilon=0.0)
    >>> print(layer(tf.constant([[1.0, 3.0], [4.0, 2.0]])).numpy())
    [[-1.  1.]
     [ 1. -1.]]
    """

    def __init__(
        self,
        dtype=tf.float32,
        axis=-1,
        epsilon=0.001,
        center=True,
        scale=True,
        beta_initializer="zeros",
        gamma_initializer="ones",
        trainable=True,
        name=None,
        *,
        beta_regularizer=None,
        gamma_regularizer=None,
        beta_constraint=None,
        gamma_constraint=None,
        **kwargs,
    ):
        super().__init__(dtype=weight_policy(dtype), trainable=trainable, name=name, **kwargs)
        if isinstance(axis, list | tuple):
            self.axis: list[int] | int = [check_integer("axis", each) for each in axis]
        else:
            self.axis = check_integer("axis", axis)
        self.epsilon = check_not_negative("epsilon", epsilon)
        self.center = check_flag("center", center)
        self.scale = check_flag("scale", scale)
        initializer, regularizer = keras.initializers.get, keras.regularizers.get
        constraint = keras.constraints.get
        self.beta_initializer = converted("beta_initializer", initializer, beta_initializer)
        self.gamma_initializer = converted("gamma_initializer", initializer, gamma_initializer)
        self.beta_regularizer = converted("beta_regularizer", regularizer, beta_regularizer)
        self.gamma_regularizer = converted("gamma_regularizer", regularizer, gamma_regularizer)
        self.beta_constraint = converted("beta_constraint", constraint, beta_constraint)
        self.gamma_constraint = converted("gamma_constraint", constraint, gamma_constraint)
        self.supports_masking = True

    def _axes(self, rank: int) -> list[int]:
        """Returns the axes counted from 0 and sorted, the order in which the weights have them."""
        axes = self.axis if isinstance(self.axis, list) else [self.axis]
        counted = sorted({axis % rank for axis in axes if -rank <= axis < rank})
        if len(counted) != len(axes) or not axes:
            raise ValueError(
                "`axis` must be one or more axes of the inputs, each of them once. "
                f"Received: axis={self.axis} for inputs of rank {rank}"
            )
        return counted

    def build(self, input_shape):
        shape = tuple(input_shape[axis] for axis in self._axes(len(input_shape)))
        if None in shape:
            raise ValueError(
                "The sizes of the axes must be known. "
                f"Received: axis={self.axis} for inputs of shape {input_shape}"
            )
        self.gamma = self.beta = None
        if self.scale:
            self.gamma = add_weight(
                self,
                "gamma_initializer",
                self.gamma_initializer,
                shape=shape,
                regularizer=self.gamma_regularizer,
                constraint=self.gamma_constraint,
                name="gamma",
                autocast=False,
            )
        if self.center:
            self.beta = add_weight(
                self,
                "beta_initializer",
                self.beta_initializer,
                shape=shape,
                regularizer=self.beta_regularizer,
                constraint=self.beta_constraint,
                name="beta",
                autocast=False,
            )

    def call(self, inputs, training=None):
        return normalize_axes(
            inputs,
            None if self.gamma is None else self.gamma.value,
            None if self.beta is None else self.beta.value,
            axes=self._axes(len(inputs.shape)),
            epsilon=self.epsilon,
            kind=operation_of("LayerNorm", training=bool(training)),
        )

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        config = {
            "axis": self.axis,
            "epsilon": self.epsilon,
            "center": self.center,
            "scale": self.scale,
            "beta_initializer": keras.initializers.serialize(self.beta_initializer),
            "gamma_initializer": keras.initializers.serialize(self.gamma_initializer),
            "beta_regularizer": keras.regularizers.serialize(self.beta_regularizer),
            "gamma_regularizer": keras.regularizers.serialize(self.gamma_regularizer),
            "beta_constraint": keras.constraints.serialize(self.beta_constraint),
            "gamma_constraint": keras.constraints.serialize(self.gamma_constraint),
        }
        return {**super().get_config(), **config}


# The addons document the layer under both names.
LayerNorm = LayerNormalization
