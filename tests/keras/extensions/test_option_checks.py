import re

import keras
import pytest

from ipu_keras.keras.extensions.option_checks import (
    ExtensionOptions,
    check_infeed_options,
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
    before = model._ipu.options
    yield
    assert model._ipu.options == before


# Infeeds


@pytest.mark.parametrize("key", ["dataset", "infeed_spec", "element_spec"])
def test_infeed_keys_that_keras_sets(model, key):
    message = f"Found `{key}` key in `kwargs`. This argument is automatically set by Keras."
    with raises(ValueError, message):
        model.set_infeed_queue_options(**{key: None, "prefetch_depth": 2})


@pytest.mark.parametrize("depth", [0, -1, 1.5, "2", True, float("nan"), (2,)])
def test_a_prefetch_depth_that_is_too_small(model, depth):
    with raises(
        ValueError,
        f"prefetch_depth must be greater than zero, but it is {depth}\nGive it an integer from 1 "
        f"to 255. Received: prefetch_depth={depth!r}",
    ):
        model.set_infeed_queue_options(prefetch_depth=depth)


@pytest.mark.parametrize("queue", ["infeed", "outfeed"])
@pytest.mark.parametrize(
    ("name", "error"), [("", ValueError), (" ", ValueError), (3, TypeError), (b"in", TypeError)]
)
def test_names_of_feeds_are_texts(model, queue, name, error):
    with pytest.raises(error, match=f"^`feed_name` must be a .*Received: feed_name={name!r}$"):
        getattr(model, f"set_{queue}_queue_options")(feed_name=name)


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
    with raises(
        ValueError, f"`buffer_depth` must be a positive integer. Received: buffer_depth={depth}"
    ):
        model.set_outfeed_queue_options(buffer_depth=depth)


def test_an_outfeed_option_that_does_not_exist(model):
    with raises(TypeError, "An outfeed queue has no argument 'depth'. Its arguments are: "):
        model.set_outfeed_queue_options(depth=2)


# What is set


def test_options_that_are_set(strategy):
    with strategy.scope():
        model, other = (keras.Sequential([keras.layers.Dense(1)]) for _ in range(2))
    model.set_infeed_queue_options(prefetch_depth=5, feed_name="mine")
    model.set_asynchronous_callbacks(True)
    assert model._ipu.options == ExtensionOptions(
        asynchronous_callbacks=True, prefetch_depth=5, infeed_name="mine"
    )
    model.set_asynchronous_callbacks()
    model.set_infeed_queue_options()
    assert model._ipu.options == other._ipu.options == ExtensionOptions()
