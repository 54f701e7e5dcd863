"""The example of `CTCLoss`: a loss that is a layer."""

import keras
import numpy as np
import tensorflow as tf
from ipu_tensorflow_addons.keras.layers import CTCLoss
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()


class TimeFirst(keras.layers.Layer):
    def call(self, x):
        # now: return keras.ops.transpose(x, (1, 0, 2))
        return keras.backend.permute_dimensions(x, (1, 0, 2))


batch_size, max_time, num_classes, max_label_length = 2, 6, 4, 3
labels = np.ones((2, 3), np.int32)
lengths = np.array([3, 3], np.int32)
times = np.array([6, 6], np.int32)
with strategy.scope():
    # now: labels_in = tf.keras.layers.Input((max_label_length,), 2, dtype=np.int32)
    labels_in = tf.keras.layers.Input((max_label_length), 2, dtype=np.int32)
    data = tf.keras.layers.Input((max_time, num_classes), batch_size, dtype=np.float32)
    label_length = tf.keras.layers.Input((), batch_size=batch_size, dtype=np.int32)
    logit_length = tf.keras.layers.Input((), batch_size=batch_size, dtype=np.int32)
    x = TimeFirst()(tf.keras.layers.Dense(num_classes)(data))
    loss = CTCLoss(from_logits=True)(labels_in, x, label_length, logit_length)
    model = tf.keras.Model((labels_in, data, label_length, logit_length), loss)
    inputs = (labels, np.zeros((2, 6, 4), np.float32), lengths, times)
    model.predict(inputs, batch_size=2, verbose=0)
