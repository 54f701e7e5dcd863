"""Recurrent layers of Popnn, of which `ipu_keras.ops.rnn_ops` has the documented names."""
