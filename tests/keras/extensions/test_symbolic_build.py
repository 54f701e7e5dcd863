"""What training needs is built without a call of models whose outputs are known."""

import keras
import pytest
import tensorflow as tf
from keras import layers

from ipu_keras.keras.extensions.symbolic_build import build_from


class Counting(layers.Layer):
    """Counts its calls in Python."""

    calls = 0

    def call(self, inputs):
        Counting.calls += 1
        return inputs * 2.0


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.counting, self.dense = Counting(), layers.Dense(3)

    def call(self, inputs):
        return self.dense(self.counting(inputs))


class OwnCall(keras.Sequential):
    def call(self, inputs, training=None, mask=None):
        return super().call(inputs)[:, :2]


def stack(kind):
    return kind([keras.Input((4,)), Counting(), layers.Dense(3)])


def functional():
    inputs = keras.Input((4,))
    return keras.Model(inputs, layers.Dense(3)(Counting()(inputs)))


def built(make, labels=(8,)):
    """A model after it was built, and how often that called it."""
    model = make()
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    Counting.calls = 0
    build_from(model, (tf.TensorSpec((8, 4)), tf.TensorSpec(labels, tf.int32)))
    return model, Counting.calls


@pytest.mark.parametrize("make", [functional, lambda: stack(keras.Sequential)])
def test_models_whose_outputs_are_known_are_not_called(make):
    model, calls = built(make)
    assert calls == 0
    assert model._compile_metrics.built
    assert model._compile_loss.built
    assert model.optimizer.built
    stock = make()
    stock.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    specs = (keras.KerasTensor((8, 4)), keras.KerasTensor((8,), "int32"))
    stock._symbolic_build(data_batch=specs)
    assert [type(metric) for metric in model.metrics] == [type(metric) for metric in stock.metrics]
    shapes = [variable.shape for variable in model.metrics_variables]
    assert shapes == [variable.shape for variable in stock.metrics_variables]


@pytest.mark.parametrize(
    "make",
    [Subclassed, lambda: stack(OwnCall), lambda: keras.Sequential([Counting(), layers.Dense(3)])],
)
def test_other_models_are_called(make):
    model, calls = built(make)
    assert calls >= 1
    assert model.built
    assert model._compile_metrics.built


def test_several_outputs_by_name():
    inputs = keras.Input((4,), name="x")
    outputs = {"a": layers.Dense(1)(inputs), "b": layers.Dense(3)(inputs)}
    model = keras.Model({"x": inputs}, outputs)
    model.compile("sgd", {"a": "mse", "b": "mse"}, metrics={"b": ["mae"]})
    labels = {"a": tf.TensorSpec((8, 1)), "b": tf.TensorSpec((8, 3))}
    build_from(model, ({"x": tf.TensorSpec((8, 4))}, labels))
    names = [metric.name for metric in model._compile_metrics.metrics]
    assert names == ["mae"]
    assert model._compile_loss.built


def test_inputs_that_do_not_fit_keep_the_words_of_keras():
    model = functional()
    model.compile("sgd", "mse")
    # In Keras 3.12 it is a RuntimeError that has these words.
    with pytest.raises((RuntimeError, ValueError), match="incompatible with"):
        build_from(model, (tf.TensorSpec((8, 5)), tf.TensorSpec((8, 3))))
    assert not model._compile_loss.built
