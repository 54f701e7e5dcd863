"""What errors of a model's methods say of the arguments."""

import doctest

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.keras.extensions import argument_notes
from ipu_keras.keras.extensions.argument_notes import notes_arguments


def test_examples():
    assert doctest.testmod(argument_notes).failed == 0


@pytest.fixture
def model(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    return model


X, Y = np.zeros((4, 3), np.float32), np.zeros((4, 1), np.float32)


@pytest.mark.parametrize(
    ("method", "arguments", "kind", "note"),
    [
        (
            "train_on_batch",
            {"x": X[np.newaxis], "y": Y},
            ValueError,
            "x of shape (1, 4, 3) and type float32, y of shape (4, 1) and type float32",
        ),
        (
            "train_on_batch",
            {"x": "text", "y": Y},
            tf.errors.FailedPreconditionError,
            "x='text', y of shape (4, 1) and type float32",
        ),
        (
            "predict_on_batch",
            {"x": tf.sparse.from_dense([[1.0, 0.0]])},
            TypeError,
            "x of shape (1, 2) and type float32",
        ),
        ("test_on_batch", {"x": object(), "y": Y}, Exception, "x=<object object at "),
        ("compile", {"optimizer": {1: 2}}, ValueError, "optimizer={1: 2}"),
        ("evaluate", {"x": X, "y": Y, "verbose": [1, 2]}, Exception, "verbose=[1, 2]"),
    ],
)
def test_arguments_are_a_note_of_the_error(model, method, arguments, kind, note):
    with pytest.raises(kind) as raised:
        getattr(model, method)(**arguments)
    title = f"Arguments of `{method}`: "
    (found,) = (one for one in raised.value.__notes__ if one.startswith(title))
    assert note in found
    # A correct call afterwards works.
    assert model.predict_on_batch(X).shape == (4, 1)


def test_an_unknown_argument_is_left_to_the_error(model):
    with pytest.raises(TypeError, match="colour") as raised:
        model.fit(X, Y, colour="red")
    assert not hasattr(raised.value, "__notes__")


def test_the_innermost_method_says_what_was_wrong():
    @notes_arguments()
    def inner(self, x):
        raise ValueError(x)

    @notes_arguments()
    def outer(self, y):
        inner(self, y + 1)

    with pytest.raises(ValueError) as raised:
        outer(None, 1)
    assert raised.value.__notes__ == ["Arguments of `inner`: x=2"]
