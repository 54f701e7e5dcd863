"""Layers of one's own, and a policy for them."""

import numpy as np
import tensorflow as tf
from tensorflow import keras

# now: from tensorflow.keras.mixed_precision import Policy
from tensorflow.keras.mixed_precision.experimental import Policy
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()


class Scale(keras.layers.Layer):
    def __init__(self, name):
        # now: super().__init__(name=name)
        super().__init__(name)

    def build(self, shape):
        # now: self.scale = self.add_weight(shape=[shape[-1]], name="scale")
        self.scale = self.add_weight("scale", shape=[shape[-1]])
        # now: self.shift = self.add_weight(shape=[shape[-1]], name="shift")
        self.shift = self.add_variable("shift", shape=[shape[-1]])

    def call(self, inputs):
        width = inputs.get_shape()[-1]
        return tf.reshape(inputs * self.scale + self.shift, [-1, width])


class Twice(Scale):
    def __init__(self):
        super().__init__("twice")


with strategy.scope():
    model = keras.Sequential([keras.Input((6,)), Scale("scale"), Twice()])
    # now: model.predict(np.zeros((8, 6), np.float32), batch_size=4, verbose=0)
    model.predict_classes(np.zeros((8, 6), np.float32), batch_size=4, verbose=0)
print(Policy("float32").compute_dtype)
