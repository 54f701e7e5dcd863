"""A small model, and how to tell whether two models did the same."""

import keras
import numpy as np
from keras import tree

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def classifier(**compile_options):
    """6 features to 3 classes. Not compiled by XLA, which takes most of a small test's time."""
    model = keras.Sequential(
        [keras.Input([6]), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)]
    )
    compile_options = {"optimizer": "sgd", "jit_compile": False, **compile_options}
    model.compile(loss=LOSS, metrics=["accuracy"], **compile_options)
    return model


def assert_same(actual, expected, tolerance=1e-5):
    """Compares nested structures of numbers."""
    tree.assert_same_structure(actual, expected)
    for one, other in zip(tree.flatten(actual), tree.flatten(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def fit_same(stock, model, *args, tolerance=1e-5, **kwargs):
    """Fits both, compares everything that comes of it, and returns the IPU's `History`."""
    kwargs = {"verbose": 0, "shuffle": False, **kwargs}
    expected, actual = stock.fit(*args, **kwargs), model.fit(*args, **kwargs)
    assert list(actual.history) == list(expected.history)
    assert actual.epoch == expected.epoch
    assert actual.params == expected.params
    assert_same(actual.history, expected.history, tolerance)
    assert_same(model.get_weights(), stock.get_weights(), tolerance)
    return actual


def devices_of(variables):
    """The devices of Keras variables, such as "IPU:0"."""
    return {variable.value.device.rpartition("device:")[2] for variable in variables}
