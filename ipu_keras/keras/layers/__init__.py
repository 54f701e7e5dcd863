"""Layers for IPUs, as `tensorflow.python.ipu.keras.layers` documents them."""

from ipu_keras.keras.layers.popnn_gru import GRU as GRU
from ipu_keras.keras.layers.popnn_gru import PopnnGRU as PopnnGRU
from ipu_keras.keras.layers.popnn_lstm import LSTM as LSTM
from ipu_keras.keras.layers.popnn_lstm import PopnnLSTM as PopnnLSTM
