"""The example of `multi_conv`: three convolutions at once; nothing of it has changed."""

import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()

with strategy.scope():
    first = keras.layers.DepthwiseConv2D(2, depth_multiplier=2)
    second = keras.layers.DepthwiseConv2D(4, depth_multiplier=2)
    third = keras.layers.Conv2D(8, 3)

    @ipu.nn_ops.multi_conv(options={"perConvReservedTiles": "50"})
    def convs(x, y, z):
        return first(x), second(y), third(z)

    @tf.function
    def run(images):
        x, y, z = convs(images, images, images)
        return tf.reduce_sum(x) + tf.reduce_sum(y) + tf.reduce_sum(z)

    images = tf.zeros((2, 8, 8, 3))
    for layer in (first, second, third):
        layer.build(images.shape)
    result = strategy.experimental_run_v2(run, [images])
