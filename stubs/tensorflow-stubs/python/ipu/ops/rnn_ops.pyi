# Written by `python tests/stub_files.py`.
from ipu_keras.ops.rnn_ops import LSTMStateTuple as LSTMStateTuple
from ipu_keras.ops.rnn_ops import PopnnAUGRU as PopnnAUGRU
from ipu_keras.ops.rnn_ops import PopnnDynamicGRU as PopnnDynamicGRU
from ipu_keras.ops.rnn_ops import PopnnDynamicLSTM as PopnnDynamicLSTM
from ipu_keras.ops.rnn_ops import PopnnGRU as PopnnGRU
from ipu_keras.ops.rnn_ops import PopnnLSTM as PopnnLSTM
from ipu_keras.ops.rnn_ops import gru_weights_from_keras as gru_weights_from_keras
from ipu_keras.ops.rnn_ops import gru_weights_to_keras as gru_weights_to_keras
from ipu_keras.ops.rnn_ops import lstm_weights_from_keras as lstm_weights_from_keras
from ipu_keras.ops.rnn_ops import lstm_weights_to_keras as lstm_weights_to_keras
