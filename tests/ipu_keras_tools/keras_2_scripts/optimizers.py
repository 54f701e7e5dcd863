"""Optimizers of TensorFlow 1 and of Keras 2."""

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()


class Halved(keras.optimizers.SGD):
    def __init__(self, name="halved"):
        # now: super().__init__(learning_rate=0.1, name=name)
        super().__init__("halved")


with strategy.scope():
    # now: model = keras.Sequential([keras.layers.Dense(1)], name="net")
    model = keras.Sequential([keras.layers.Dense(1)], "net")
    old = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    # now: model.compile(optimizer="sgd", loss="mse", steps_per_execution=2)
    model.compile(optimizer=old, loss="mse", steps_per_execution=2)
    # now: model.compile(keras.optimizers.SGD(0.1), "mse", steps_per_execution=2)
    model.compile(keras.optimizers.legacy.SGD(0.1), "mse", steps_per_execution=2)
    model.compile(Halved(), "mse", steps_per_execution=2)
    x, y = np.zeros((8, 6), np.float32), np.zeros((8, 1), np.float32)
    # now: model.fit(x, y, batch_size=4, verbose=0)
    model.fit_generator(x, y, batch_size=4, verbose=0)
