"""Names of layers in traced graphs."""

import keras
import tensorflow as tf
from keras.src import backend

import ipu_keras
from ipu_keras.keras.extensions.scope_names import attach_scope_names
from ipu_keras.tracing import layer_scopes


class Twice(keras.layers.Layer):
    """Calls a layer twice, and two that have the same name."""

    def __init__(self):
        super().__init__(name="twice")
        self.shared = keras.layers.Dense(4, name="shared")
        self.same = [keras.layers.Dense(4, name="same") for _ in range(2)]

    def call(self, x):
        x = self.shared(self.shared(x))
        for layer in self.same:
            x = layer(x)
        return x


def names_of_products(function, in_scopes=True):
    traced = tf.function(function)
    spec = tf.TensorSpec((2, 4))
    if not in_scopes:
        graph = traced.get_concrete_function(spec).graph
    else:
        with layer_scopes():
            graph = traced.get_concrete_function(spec).graph
    return [op.name for op in graph.get_operations() if op.type == "MatMul"]


def sequential(name):
    layers = [keras.layers.Dense(4, name=name) for name in ("dense", "dense_1", "dense_2")]
    return keras.Sequential([keras.Input((4,)), *layers], name=name)


def test_layers_have_their_names():
    model = sequential("model")
    expected = [f"model/{name}/MatMul" for name in ("dense", "dense_1", "dense_2")]
    assert names_of_products(model) == expected
    # Without it, names of layers are those of others.
    assert names_of_products(model, in_scopes=False) == [
        "model_1/dense_1/MatMul",
        "model_1/dense_1_2/MatMul",
        "model_1/dense_2_1/MatMul",
    ]


def test_a_layer_that_is_called_again_has_the_same_scope():
    layer = Twice()
    layer(tf.zeros((2, 4)))
    assert names_of_products(layer) == [
        "twice/shared/MatMul",
        "twice/shared/MatMul_1",
        "twice/same/MatMul",
        "twice/same_1/MatMul",  # another layer
    ]


def test_scopes_of_another_graph_are_others():
    model = sequential("model")

    def step(x):
        inside = tf.function(lambda y: model(y)).get_concrete_function(tf.TensorSpec((2, 4)))
        return inside(model(x))

    expected = [f"model/{name}/MatMul" for name in ("dense", "dense_1", "dense_2")]
    assert names_of_products(step) == expected


def test_eager_calls_are_left_alone():
    model = sequential("model")
    with layer_scopes():
        assert model(tf.zeros((2, 4))).shape == (2, 4)


def test_it_is_attached_once():
    attached = backend.name_scope.__enter__
    attach_scope_names()
    assert backend.name_scope.__enter__ is attached


def test_reports_name_the_layers_of_the_model():
    """Of training too, whose gradients belong to the layers."""
    model = sequential("model")
    model.compile("adam", "mse")
    report = ipu_keras.profile(model, tf.TensorSpec((2, 4)), tf.TensorSpec((2, 4)))
    names = [f"model/{name}" for name in ("dense", "dense_1", "dense_2")]
    products = [row for row in report.rows if row.family == "dot"]
    assert [row.layer for row in products if not row.backward] == names
    assert {row.layer for row in products if row.backward} == set(names)
    assert model.optimizer.name in {row.layer for row in report.rows}
    assert {name for name, _ in report.layers_of_worst_tile()} <= set(names)
