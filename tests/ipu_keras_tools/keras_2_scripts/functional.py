"""A functional model with operations of TensorFlow between its layers."""

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()


def dense_block(units, x):
    x = tf.keras.layers.Dense(units)(x)
    # now: return tf.keras.layers.ReLU()(x)
    return tf.nn.relu(x)


with strategy.scope():
    # now: inputs = tf.keras.Input(shape=(6,))
    inputs = tf.keras.Input(shape=(6))
    x = dense_block(8, inputs)
    # now: width = x.shape[-1]
    width = x.get_shape()[-1]
    # now: x = tf.keras.layers.Concatenate(axis=1)([x, inputs])
    x = tf.concat([x, inputs], axis=1)
    outputs = tf.keras.layers.Dense(1)(x * 2.0)
    model = tf.keras.Model(inputs=inputs, outputs=outputs)
    model.compile("sgd", "mse", steps_per_execution=2)
    model.predict(np.zeros((8, 6), np.float32), batch_size=4, verbose=0)
print(width)
