import re

import keras
import pytest

from ipu_keras.keras.extensions.options import (
    ExtensionOptions,
    check_infeed_options,
    check_minimize,
)


def raises(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}")


@pytest.fixture(scope="module")
def model(strategy):
    with strategy.scope():
        return keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])


@pytest.fixture(autouse=True)
def options_stay(model):
    """What is refused changes nothing."""
    before = model._ipu_options
    yield
    assert model._ipu_options == before


# Infeeds


@pytest.mark.parametrize("key", ["dataset", "infeed_spec", "element_spec"])
def test_infeed_keys_that_keras_sets(model, key):
    message = f"Found `{key}` key in `kwargs`. This argument is automatically set by Keras."
    with raises(ValueError, message):
        model.set_infeed_queue_options(**{key: None, "prefetch_depth": 2})


@pytest.mark.parametrize("depth", [0, -1, 1.5, "2"])
def test_a_prefetch_depth_that_is_too_small(model, depth):
    with raises(ValueError, f"prefetch_depth must be greater than zero, but it is {depth}"):
        model.set_infeed_queue_options(prefetch_depth=depth)


def test_a_prefetch_depth_that_is_too_large(model):
    with raises(ValueError, "prefetch_depth must be less than 256, but it is 256"):
        model.set_infeed_queue_options(prefetch_depth=256)


def test_an_infeed_option_that_does_not_exist(model):
    with raises(TypeError, "An infeed queue has no argument 'depth'. Its arguments are: "):
        model.set_infeed_queue_options(depth=2)


def test_infeed_options_that_keep_their_default():
    assert check_infeed_options({}) == (3, None)
    assert check_infeed_options({"prefetch_depth": None}) == (3, None)
    assert check_infeed_options({"prefetch_depth": 255, "feed_name": "in"}) == (255, "in")
    assert check_infeed_options({"device_ordinal": 0, "replication_factor": 1}) == (3, None)
    with raises(ValueError, "The infeed queue of a Keras model cannot have device_ordinal=1: "):
        check_infeed_options({"device_ordinal": 1})


# Outfeeds


@pytest.mark.parametrize("key", ["outfeed_mode", "device_ordinal"])
def test_outfeed_keys_that_are_not_compatible(model, key):
    message = f"Found `{key}` key in `kwargs`. This argument is not compatible with Keras."
    with raises(ValueError, message):
        model.set_outfeed_queue_options(**{key: None})


def test_outfeed_options_have_no_effect_and_say_so(model):
    with pytest.warns(UserWarning, match=r"^buffer_depth, feed_name of the outfeed queue has no"):
        model.set_outfeed_queue_options(buffer_depth=2, feed_name="out")
    model.set_outfeed_queue_options()


@pytest.mark.parametrize("depth", [0, 1.0])
def test_a_buffer_depth_that_is_not_positive(model, depth):
    with raises(ValueError, f"`buffer_depth` must be a positive integer. Received: {depth}"):
        model.set_outfeed_queue_options(buffer_depth=depth)


def test_an_outfeed_option_that_does_not_exist(model):
    with raises(TypeError, "An outfeed queue has no argument 'depth'. Its arguments are: "):
        model.set_outfeed_queue_options(depth=2)


# Gradient accumulation and pipelining


@pytest.mark.parametrize("steps", [0, -1, 1.0, "2", True])
@pytest.mark.parametrize("method", ["set_gradient_accumulation_options", "set_pipelining_options"])
def test_accumulation_steps_that_are_no_count(model, method, steps):
    message = (
        "Expected `gradient_accumulation_steps_per_replica` to be a positive integer, but got "
        f"{steps} instead."
    )
    with raises(ValueError, message):
        getattr(model, method)(gradient_accumulation_steps_per_replica=steps)


@pytest.mark.parametrize("method", ["set_gradient_accumulation_options", "set_pipelining_options"])
def test_a_reduction_method_that_does_not_exist(model, method):
    message = (
        "Cannot parse max as one of GradientAccumulationReductionMethod. Valid values are: SUM, "
        "MEAN, RUNNING_MEAN."
    )
    with raises(ValueError, message):
        getattr(model, method)(gradient_accumulation_reduction_method="max")


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
def test_accumulation_keys(model, key, message):
    with raises(ValueError, message):
        model.set_gradient_accumulation_options(1, **{key: 1})


@pytest.mark.parametrize("device_mapping", [0, (0, 1), ["0"], [0, 1.0], [True]])
def test_a_device_mapping_that_is_no_list_of_integers(model, device_mapping):
    with raises(ValueError, "Expected `device_mapping` to be a list of integers. Received: "):
        model.set_pipelining_options(device_mapping=device_mapping)


@pytest.mark.parametrize(
    ("key", "rest"),
    [
        ("gradient_accumulation_count", "Set the `gradient_accumulation_steps_per_replica` arg"),
        *[
            (key, "This argument is automatically set by Keras.")
            for key in (
                "computational_stages",
                "repeat_count",
                "inputs",
                "infeed_queue",
                "outfeed_queue",
                "optimizer_function",
            )
        ],
        *[
            (key, "This argument is not compatible with Keras.")
            for key in ("outfeed_loss", "outfeed_mask", "batch_serialization_iterations")
        ],
    ],
)
def test_pipelining_keys(model, key, rest):
    with raises(ValueError, f"Found `{key}` key in `pipelining_kwargs`. {rest}"):
        model.set_pipelining_options(2, **{key: None})


def test_accumulation_of_one_step_is_none(model):
    model.set_gradient_accumulation_options()
    model.set_gradient_accumulation_options(1, "mean", dtype="float32")


def test_features_of_a_later_release(model):
    with raises(NotImplementedError, "Gradient accumulation is not available in this release. R"):
        model.set_gradient_accumulation_options(2)
    with raises(NotImplementedError, "Pipelined models are not available in this release. Recei"):
        model.set_pipelining_options(2, device_mapping=[0, 0], recomputation_mode=None)


class OwnMinimize(keras.optimizers.SGD):
    def minimize(self, *args):
        """Does not minimise."""


def test_an_optimizer_with_its_own_minimize(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        model.compile(OwnMinimize(), "mse")
    message = (
        "When using Gradient Accumulation or Pipelining, the provided optimizer must not override "
        "OptimizerV2.minimize, which is not called then. Received: OwnMinimize"
    )
    with raises(ValueError, message):
        model.set_gradient_accumulation_options(2)
    with raises(ValueError, message):
        model.set_pipelining_options(2)
    model.set_gradient_accumulation_options(1)


def test_optimizers_that_inherit_minimize():
    check_minimize(None, keras.optimizers.Optimizer)
    check_minimize(keras.optimizers.Adam(), keras.optimizers.Optimizer)


# What is set


def test_options_that_are_set(strategy):
    with strategy.scope():
        model, other = (keras.Sequential([keras.layers.Dense(1)]) for _ in range(2))
    model.set_infeed_queue_options(prefetch_depth=5, feed_name="mine")
    model.set_asynchronous_callbacks(True)
    assert model._ipu_options == ExtensionOptions(
        asynchronous_callbacks=True, prefetch_depth=5, infeed_name="mine"
    )
    model.set_asynchronous_callbacks()
    model.set_infeed_queue_options()
    assert model._ipu_options == other._ipu_options == ExtensionOptions()
