import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.keras.extensions.accumulation_options import (
    AccumulationOptions,
    accumulation_options,
    check_minimize,
)
from ipu_keras.settings.gradient_accumulation import (
    GradientAccumulationReductionMethod as Reduction,
)


def raises(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}")


@pytest.fixture(scope="module")
def model(strategy):
    with strategy.scope():
        return keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])


@pytest.fixture
def unchanged(model):
    """What is refused changes nothing."""
    before = model._ipu.options
    yield
    assert model._ipu.options is before


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("steps", [0, -1, 1.0, "2", True])
@pytest.mark.parametrize("method", ["set_gradient_accumulation_options", "set_pipelining_options"])
def test_steps_that_are_no_count(model, method, steps):
    message = (
        "Expected `gradient_accumulation_steps_per_replica` to be a positive integer, but got "
        f"{steps} instead."
    )
    with raises(ValueError, message):
        getattr(model, method)(gradient_accumulation_steps_per_replica=steps)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("method", ["set_gradient_accumulation_options", "set_pipelining_options"])
def test_a_reduction_method_that_does_not_exist(model, method):
    message = (
        "Cannot parse max as one of GradientAccumulationReductionMethod. Valid values are: SUM, "
        "MEAN, RUNNING_MEAN."
    )
    with raises(ValueError, message):
        getattr(model, method)(gradient_accumulation_reduction_method="max")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("opt", "Found `opt` key in `gradient_accumulation_optimizer_kwargs`. This is not supp"),
        (
            "num_mini_batches",
            "Found `num_mini_batches` key in `gradient_accumulation_optimizer_kwargs`. Set the "
            "`gradient_accumulation_steps_per_replica` argument",
        ),
    ],
)
def test_keys_of_other_arguments(model, key, message):
    with raises(ValueError, message):
        model.set_gradient_accumulation_options(1, **{key: 1})


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (
            {"clip": 1},
            "GradientAccumulationOptimizerV2 has no argument 'clip'. Its arguments are: dtype, "
            "name, offload_weight_update_variables, replicated_optimizer_state_sharding",
        ),
        (
            {"offload_weight_update_variables": 1},
            "`offload_weight_update_variables` must be True, False or None. Received: off",
        ),
        (
            {"replicated_optimizer_state_sharding": "yes"},
            "`replicated_optimizer_state_sharding` must be True, False or None. Received: repl",
        ),
        ({"name": 3}, "`name` must be a string. Received: name=3"),
        ({"dtype": "int32"}, "`dtype` must be None, a floating point type such as tf.float32, or"),
        ({"dtype": 3.5}, "`dtype` must be None, a floating point type such as tf.float32, or"),
    ],
)
def test_arguments_of_a_wrong_type(model, kwargs, message):
    with raises(TypeError, message):
        model.set_gradient_accumulation_options(2, **kwargs)


def test_what_is_set(strategy):
    with strategy.scope():
        model, other = (keras.Sequential([keras.layers.Dense(1)]) for _ in range(2))
    message = (
        "^offload_weight_update_variables, name of `set_gradient_accumulation_options` has no ef"
    )
    with pytest.warns(UserWarning, match=message):
        model.set_gradient_accumulation_options(
            4, "mean", dtype="float16", offload_weight_update_variables=True, name="update"
        )
    assert model._ipu.options.accumulation == AccumulationOptions(
        steps_per_replica=4,
        reduction=Reduction.MEAN,
        dtype=tf.float16,
        offload_weight_update_variables=True,
        name="update",
    )
    model.set_gradient_accumulation_options()
    assert model._ipu.options == other._ipu.options


def test_what_was_compiled_before_is_compiled_again(model):
    model.train_function = model.test_function = model.predict_function = print
    model.set_gradient_accumulation_options(2)
    assert model.train_function is model.test_function is model.predict_function is None
    model.train_function = print
    model.set_pipelining_options(2)
    assert model.train_function is None


def dtype_of(variable):
    return variable.dtype


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, None),
        ("float16", tf.float16),
        (np.float32, tf.float32),
        (tf.bfloat16, tf.bfloat16),
        (dtype_of, dtype_of),
    ],
)
def test_data_types(given, kept):
    assert accumulation_options(2, Reduction.SUM, {"dtype": given}).dtype is kept


class OwnMinimize(keras.optimizers.SGD):
    def minimize(self, *args):
        """Does not minimise."""


class Wrapper(keras.optimizers.SGD):
    """Of users, which holds the optimizer that it wraps under a name of its own."""

    def __init__(self, wrapped, **kwargs):
        super().__init__(**kwargs)
        self.inside = wrapped


@pytest.mark.parametrize(
    ("wrap", "received"),
    [
        (lambda optimizer: optimizer, "OwnMinimize"),
        (keras.optimizers.LossScaleOptimizer, "OwnMinimize within LossScaleOptimizer"),
        (Wrapper, "OwnMinimize within Wrapper"),
        (
            lambda optimizer: keras.optimizers.LossScaleOptimizer(Wrapper(optimizer)),
            "OwnMinimize within LossScaleOptimizer",
        ),
    ],
)
def test_an_optimizer_with_its_own_minimize(strategy, data, wrap, received):
    with strategy.scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
        model.compile(wrap(OwnMinimize()), "mse")
    before = model._ipu.options
    message = (
        "When using Gradient Accumulation or Pipelining, the provided optimizer must not override "
        f"OptimizerV2.minimize.\nIt is not called then. Received: {received}"
    )
    with raises(ValueError, message):
        model.set_gradient_accumulation_options(2)
    with raises(ValueError, message):
        model.set_pipelining_options(2)
    assert model._ipu.options is before
    model.set_gradient_accumulation_options(1)
    with strategy.scope():
        late = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
    late.set_gradient_accumulation_options(2)
    late.compile(wrap(OwnMinimize()), "mse", steps_per_execution=2)
    with raises(ValueError, message):
        late.fit(*data, batch_size=8, verbose=0)


def test_optimizers_that_inherit_minimize():
    check_minimize(None, keras.optimizers.Optimizer)
    check_minimize(keras.optimizers.Adam(), keras.optimizers.Optimizer)
    wrapped = keras.optimizers.LossScaleOptimizer(Wrapper(keras.optimizers.Adam()))
    check_minimize(wrapped, keras.optimizers.Optimizer)
    circular = Wrapper(keras.optimizers.Adam())
    circular.inside.inside = circular
    check_minimize(circular, keras.optimizers.Optimizer)
