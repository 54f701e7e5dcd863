"""What layers are called changes no cost, though it may read like a part of a loop or a branch."""

import keras
import pytest
import tensorflow as tf
from keras import layers

from ipu_keras import profile

PLAIN = ("trunk", "gate", "arm", "cell")
TELLING = ("body", "condition", "branch0", "branch1")

# Large enough that recomputation needs less memory.
BATCH, WIDTH = 512, 256


@keras.saving.register_keras_serializable("test_layer_names")
class Block(layers.Layer):
    """Three layers, each of its own."""

    def __init__(self, names, **options):
        super().__init__(**options)
        self.parts = [layers.Dense(WIDTH, activation="tanh", name=name) for name in names]

    def call(self, x):
        for part in self.parts:
            x = part(x)
        return x


def feed_forward(names):
    """Layers of these names, and again within layers of these names."""
    first, second, third, fourth = names
    x = inputs = keras.Input((WIDTH,))
    x = Block(names[:3], name=fourth)(x)
    for name in (first, second, third, *map("dense_{}".format, range(5))):
        x = layers.Dense(WIDTH, activation="tanh", name=name)(x)
    x = Block((fourth, first, second), name=f"{first}_1")(x)
    return keras.Model(inputs, layers.Dense(4, name="last")(x), name="model")


def recurrent(names):
    """A loop that is traced within such a layer, and others around it."""
    first, second, third, fourth = names
    x = inputs = keras.Input((12, 16))
    x = layers.Dense(WIDTH, name=second)(x)
    x = layers.LSTM(32, name=first)(x)
    x = Block((third, first, second), name=fourth)(x)
    return keras.Model(inputs, layers.Dense(4, name="last")(x), name="model")


def modelled(build, names, **options):
    model = build(names)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    inputs = tf.TensorSpec((BATCH, *model.input_shape[1:]))
    return profile(model, inputs, tf.TensorSpec((BATCH,), tf.int32), **options).model


def figures(model):
    """All that does not depend on names, of each compute set and of all."""
    pairs = zip(model.program.compute_sets, model.costs, strict=True)
    sets = [(one.family, one.repeat, one.backward, one.ipu, cost) for one, cost in pairs]
    return sets, model.cycles_per_step, model.memory.peak_by_tile.tolist()


@pytest.mark.parametrize("build", [feed_forward, recurrent])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"recomputation": True},
        {"num_ipus": 2, "recomputation": True},
        {"gradient_accumulation_count": 4, "num_replicas": 2},
    ],
)
def test_names_change_nothing(build, options):
    plain = modelled(build, PLAIN, **options)
    assert figures(modelled(build, TELLING, **options)) == figures(plain)


def test_recomputation_repeats_what_is_called_body():
    """It was kept, as what is in a loop is."""
    sets = modelled(feed_forward, TELLING, recomputation=True).program.compute_sets
    repeated = {one.layer for one in sets if one.name.endswith("/recomputed")}
    assert {"model/body", "model/branch1/body", "model/branch1/branch0"} <= repeated


@tf.function(autograph=False)
def branches(decides, x):
    """A conditional in a loop, traced in the scopes that the test enters."""

    def once(x):
        return tf.sort(tf.tanh(x))

    def twice(x):
        return tf.sort(tf.sort(x) * 2.0) + x

    def body(count, x):
        return count + 1, tf.cond(decides, lambda: once(x), lambda: twice(x))

    return tf.while_loop(lambda count, _: count < 5, body, (0, x))[1]


@pytest.mark.parametrize("scope", ["body", "condition", "branch0", "body/branch1/condition"])
def test_names_around_loops_and_branches_change_nothing(scope):
    def totals(name):
        def function(decides, x):
            with tf.name_scope(name):
                y = tf.sort(x, direction="DESCENDING")
                return branches.python_function(decides, y) + y

        specs = tf.TensorSpec((), tf.bool), tf.TensorSpec((64, 32))
        model = profile(tf.function(function), *specs).model
        sets, cycles, peak = figures(model)
        # XLA puts what depends on nothing in an order that follows from names.
        return sorted(map(repr, sets)), cycles, max(peak), sum(peak)

    assert totals(scope) == totals("/".join("plain" for _ in scope.split("/")))
