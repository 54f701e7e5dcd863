"""Layers for IPUs, as `tensorflow.python.ipu.keras.layers` documents them."""

from ipu_keras.keras.layers.dropout import Dropout as Dropout
from ipu_keras.keras.layers.embedding import Embedding as Embedding
from ipu_keras.keras.layers.group_normalization import GroupNormalization as GroupNormalization
from ipu_keras.keras.layers.instance_normalization import (
    InstanceNormalization as InstanceNormalization,
)
from ipu_keras.keras.layers.layer_normalization import LayerNormalization as LayerNormalization
from ipu_keras.keras.layers.popnn_gru import GRU as GRU
from ipu_keras.keras.layers.popnn_gru import PopnnGRU as PopnnGRU
from ipu_keras.keras.layers.popnn_lstm import LSTM as LSTM
from ipu_keras.keras.layers.popnn_lstm import PopnnLSTM as PopnnLSTM
from ipu_keras.keras.layers.recomputation_checkpoint import (
    RecomputationCheckpoint as RecomputationCheckpoint,
)
