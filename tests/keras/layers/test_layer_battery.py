"""The battery of layers itself: it accepts a good layer, and finds what is wrong with others."""

import keras
import pytest
from layer_battery import run_layer_battery


@keras.saving.register_keras_serializable(package="ipu_addons")
class Scale(keras.layers.Layer):
    """Multiplies by a number, and by a weight per feature."""

    def __init__(self, first=1.0, **kwargs):
        super().__init__(**kwargs)
        self.first = first

    def build(self, input_shape):
        self.factor = self.add_weight(shape=(input_shape[-1],), initializer="ones")

    def call(self, inputs):
        return inputs * self.factor * self.first

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "first": self.first}


@keras.saving.register_keras_serializable(package="ipu_addons")
class Difference(keras.layers.Layer):
    """Of two tensors."""

    def build(self, left_shape, right_shape):
        pass

    def call(self, left, right):
        return left - right

    def compute_output_shape(self, left_shape, right_shape):
        return left_shape


@keras.saving.register_keras_serializable(package="ipu_addons")
class Forgetful(Scale):
    """Does not save its argument."""

    def get_config(self):
        config = super().get_config()
        del config["first"]
        return config


@keras.saving.register_keras_serializable(package="ipu_addons")
class Constant(Scale):
    """Lets no gradient through."""

    def call(self, inputs):
        return keras.ops.stop_gradient(inputs) * self.factor


@keras.saving.register_keras_serializable(package="ipu_addons")
class Wrong(Scale):
    """Says that it adds an axis."""

    def compute_output_shape(self, input_shape):
        return (*input_shape, 1)


class Unregistered(Scale):
    """Cannot be loaded without custom objects."""


SHAPES = {"input_shape": (4, 3), "expected_output_shape": (4, 3)}


def test_a_layer_passes(strategy):
    run_layer_battery(strategy, Scale, {"first": 2.0}, **SHAPES, expected_num_trainable_weights=1)


def test_several_tensors(strategy):
    shapes = {"left": (4, 3), "right": (4, 3)}
    run_layer_battery(strategy, Difference, {}, input_shape=shapes, expected_output_shape=(4, 3))


@pytest.mark.parametrize(
    ("layer", "error", "text"),
    [
        (Constant, UserWarning, "Gradients do not exist for variables"),
        (Wrong, AssertionError, r"\(4, 3, 1\)"),
        (Unregistered, TypeError, "Could not locate class 'Unregistered'"),
    ],
)
def test_faults(strategy, layer, error, text):
    with pytest.raises(error, match=text):
        run_layer_battery(strategy, layer, {}, **SHAPES)


def test_an_argument_that_is_not_saved(strategy):
    with pytest.raises(AssertionError, match="Mismatched elements"):
        run_layer_battery(strategy, Forgetful, {"first": 2.0}, **SHAPES)
