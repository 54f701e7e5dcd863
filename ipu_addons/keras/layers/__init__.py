"""Layers for IPUs, as `ipu_tensorflow_addons.keras.layers` documents them."""

from ipu_addons.keras.layers.rnn import GRU as GRU
from ipu_addons.keras.layers.rnn import LSTM as LSTM
from ipu_addons.keras.layers.rnn import PopnnGRU as PopnnGRU
from ipu_addons.keras.layers.rnn import PopnnLSTM as PopnnLSTM
