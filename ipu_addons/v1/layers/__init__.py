"""Layers for TensorFlow 1, as `ipu_tensorflow_addons.v1.layers` documents them.

They are those of `tensorflow.python.ipu.rnn_ops`, from where upstream moved them.
"""

from ipu_keras.ops.rnn_ops import PopnnAUGRU as PopnnAUGRU
from ipu_keras.ops.rnn_ops import PopnnDynamicGRU as PopnnDynamicGRU
from ipu_keras.ops.rnn_ops import PopnnDynamicLSTM as PopnnDynamicLSTM
from ipu_keras.ops.rnn_ops import PopnnGRU as PopnnGRU
from ipu_keras.ops.rnn_ops import PopnnLSTM as PopnnLSTM
