"""Recurrent layers of Popnn; `ipu_keras.ops.rnn_ops` has their documented names."""
