"""Models that are made again with layers of another dtype."""

import random

import keras
import pytest

from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.keras.extensions.remade_model import remade


class Scaled(keras.layers.Layer):
    """A layer of a user's own."""

    def __init__(self, factor: float = 2.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, x):
        return self.factor * x

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


def sequential(**options):
    layers = [keras.layers.Dense(4), Scaled(3.0), keras.layers.Dense(2, **options)]
    model = keras.Sequential([keras.Input((3,)), *layers], name="small")
    model.compile(keras.optimizers.SGD(0.5, momentum=0.9), "mse", steps_per_execution=4)
    return model


def test_layers_have_the_dtype_and_all_else_stays():
    model = sequential()
    made = remade(model, "float16")
    assert {weight.dtype for weight in made.weights} == {"float16"}
    assert [one.name for one in made.layers] == [one.name for one in model.layers]
    assert made.layers[1].factor == 3.0
    assert made.optimizer.momentum == 0.9
    assert made.steps_per_execution == 4
    assert {weight.dtype for weight in model.weights} == {"float32"}
    assert keras.config.dtype_policy().name == "float32"


def test_a_policy_of_a_layer_goes_before():
    made = remade(sequential(dtype="float64"), "float16")
    assert [layer.dtype_policy.name for layer in made.layers] == ["float16", "float16", "float64"]


def test_names_and_seeds_are_as_if_no_model_had_been_made():
    model, last = sequential(), keras.layers.Dense(1).name
    number, state = int(last.rpartition("_")[2]), random.getstate()
    remade(model, "float16")
    assert random.getstate() == state
    assert keras.layers.Dense(1).name == f"dense_{number + 1}"


def test_stages_stay(strategy):
    with strategy.scope():
        model = sequential()
        model.set_pipeline_stage_assignment([0, 0, 1])
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=8)
    made = remade(model, "float16")
    assert [one.pipeline_stage for one in made.get_pipeline_stage_assignment()] == [0, 0, 1]
    assert made._ipu.options.pipelining.steps_per_replica == 8
    assert isinstance(made.distribute_strategy, IPUStrategy)


def test_a_model_without_a_configuration():
    class Closed(keras.Model):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def call(self, x):
            return self.layer(x)

        def get_config(self):
            raise NotImplementedError

    assert remade(Closed(keras.layers.Dense(1)), "float16") is None


@pytest.mark.parametrize("dtype", ["float16", "mixed_float16"])
def test_variables_are_of_the_policy(dtype):
    made = remade(sequential(), dtype)
    expected = keras.DTypePolicy(dtype).variable_dtype
    assert {weight.dtype for weight in made.weights} == {expected}
