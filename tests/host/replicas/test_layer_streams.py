"""Random numbers of models, which `reset_ipu_seed` starts anew."""

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.config import IPUConfig, reset_ipu_configuration
from ipu_keras.host.replicas.layer_streams import serve_layers
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.ops import rand_ops
from ipu_keras.runtime.engine import Engine
from ipu_keras.utils import reset_ipu_seed


@pytest.fixture(autouse=True)
def devices():
    """Two, the second of them with two replicas."""
    reset_ipu_configuration()
    config = IPUConfig()
    config.auto_select_ipus = [1, 2]
    config.configure_ipu_system()
    yield
    reset_ipu_configuration()


class Dropping(keras.layers.Layer):
    """Drops also where nothing is trained."""

    def __init__(self):
        super().__init__()
        self.inner = [keras.layers.Dropout(0.5), keras.layers.Dropout(0.5, seed=3)]

    def call(self, x):
        return tf.concat([one(x, training=True) for one in self.inner], axis=1)


class Drawing(keras.layers.Layer):
    """Draws by operations, in place of layers."""

    def call(self, x):
        drawn = tf.where(tf.random.uniform(tf.shape(x)) < 0.5, 0.0, 2.0)
        return tf.concat([drawn, rand_ops.dropout(x)], axis=1)


class Masks:
    """What a model on a device draws, by `predict` or by a function."""

    def __init__(self, ordinal, way, kind):
        self.device, self.way = f"/device:IPU:{ordinal}", way
        self.strategy = IPUStrategy(self.device)
        with self.strategy.scope():
            inputs = keras.Input((16,))
            self.model = keras.Model(inputs, kind()(inputs))
            self.model.compile(steps_per_execution=2)
        ones = tf.ones((2, 16))
        self.function = tf.function(lambda: self.model(ones), autograph=False)

    def reset(self, seed):
        reset_ipu_seed(seed, self.device)

    def drawn(self):
        """The masks of four examples for each replica, each of two layers."""
        with self.strategy.scope():
            if self.way == "predict":
                ones = np.ones((8, 16), np.float32)
                return self.model.predict(ones, batch_size=2, verbose=0)
            return self.strategy.run(self.function).numpy()


@pytest.mark.parametrize("way", ["predict", "run"])
@pytest.mark.parametrize(("ordinal", "kind"), [(0, Dropping), (1, Dropping), (1, Drawing)])
def test_masks_start_anew_with_the_seed_of_their_device(ordinal, way, kind):
    masks = Masks(ordinal, way, kind)
    masks.reset(1)
    first = [masks.drawn(), masks.drawn()]
    # Neither example nor layer nor replica nor execution draws what another one does.
    drawn = np.concatenate(first).reshape(-1, 16)
    assert len(np.unique(drawn, axis=0)) == len(drawn)
    assert set(np.unique(drawn)) == {0, 2}
    masks.reset(2)
    assert (masks.drawn() != first[0]).any()
    masks.reset(1)
    np.testing.assert_array_equal(masks.drawn(), first[0])
    reset_ipu_seed(1, f"/device:IPU:{1 - ordinal}")
    np.testing.assert_array_equal(masks.drawn(), first[1])


def state(count=0):
    return tf.Variable([5, count], name="seed_generator_state", dtype=tf.uint32)


def test_layers_begin_with_the_seed_of_a_device_unless_they_have_begun():
    engine = Engine()
    unseeded = state()
    serve_layers([unseeded], engine)
    assert unseeded.numpy().tolist() == [5, 0]
    engine.seed = 1
    first, second, begun, other = state(), state(), state(4), tf.Variable([5, 0], name="state")
    serve_layers((first, second, first, begun, other), engine)
    # NumPy's numbers for these seeds do not change.
    assert first.numpy().tolist() == [1454127163, 0]
    assert second.numpy().tolist() == [2749604155, 0]
    assert begun.numpy().tolist() == [5, 4]
    assert other.numpy().tolist() == [5, 0]
    assert len(engine.streams) == 4
    # Another program draws what the first one does, whatever was made in between.
    of_another = state()
    serve_layers([of_another], engine)
    assert of_another.numpy().tolist() == [1454127163, 0]


def test_a_layer_that_is_gone_has_no_stream():
    engine = Engine()
    variable = state()
    serve_layers([variable], engine)
    assert len(engine.streams) == 1
    del variable
    gc.collect()
    assert len(engine.streams) == 0
