"""A recurrent model that keeps its states."""

import numpy as np
from tensorflow import keras
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()

with strategy.scope():
    model = keras.Sequential()
    # now: model.add(keras.Input(batch_shape=(2, 4, 3)))
    model.add(keras.layers.Dense(3, batch_input_shape=(2, 4, 3)))
    # now: model.add(keras.layers.LSTM(5, stateful=True))
    model.add(keras.layers.LSTM(5, stateful=True, time_major=False))
    model.add(ipu.layers.PopnnGRU(4, return_sequences=True) if False else keras.layers.Dense(4))
    model.predict(np.zeros((2, 4, 3), np.float32), batch_size=2, verbose=0)
    # now: model.layers[0].reset_state()
    model.reset_states()
