"""The documented names of Popnn's recurrent layers, and of Keras's weights for them."""

from ipu_keras.ops.rnn.keras_weights import gru_weights_from_keras as gru_weights_from_keras
from ipu_keras.ops.rnn.keras_weights import gru_weights_to_keras as gru_weights_to_keras
from ipu_keras.ops.rnn.keras_weights import lstm_weights_from_keras as lstm_weights_from_keras
from ipu_keras.ops.rnn.keras_weights import lstm_weights_to_keras as lstm_weights_to_keras
from ipu_keras.ops.rnn.popnn_gru import PopnnAUGRU as PopnnAUGRU
from ipu_keras.ops.rnn.popnn_gru import PopnnDynamicGRU as PopnnDynamicGRU
from ipu_keras.ops.rnn.popnn_gru import PopnnGRU as PopnnGRU
from ipu_keras.ops.rnn.popnn_lstm import LSTMStateTuple as LSTMStateTuple
from ipu_keras.ops.rnn.popnn_lstm import PopnnDynamicLSTM as PopnnDynamicLSTM
from ipu_keras.ops.rnn.popnn_lstm import PopnnLSTM as PopnnLSTM
