"""A subclassed model with a training step of its own."""

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()


class Regression(keras.Model):
    def __init__(self):
        # now: super().__init__()
        super().__init__(self)
        self.dense = keras.layers.Dense(1)

    def call(self, inputs):
        outputs = tf.nn.relu(self.dense(inputs))
        # now: pass
        self.add_metric(outputs, name="outputs", aggregation="mean")
        return outputs

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:  # noqa: F841
            loss = tf.reduce_mean((self(x) - y) ** 2)
        # now: grads = tape.gradient(loss, self.trainable_variables)
        grads = self.optimizer.get_gradients(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables, strict=True))
        return {"loss": loss}


with strategy.scope():
    model = Regression()
    model.compile("sgd", "mse", steps_per_execution=2)
    model.fit(np.zeros((8, 6), np.float32), np.zeros((8, 1), np.float32), 4, verbose=0)
