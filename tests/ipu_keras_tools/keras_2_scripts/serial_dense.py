"""The example of `SerialDense`, first in a Sequential model; nothing of it has changed."""

import numpy as np
from ipu_tensorflow_addons.keras.layers import SerialDense
from tensorflow import keras
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()

with strategy.scope():
    model = keras.Sequential()
    model.add(keras.Input((16,)))
    model.add(SerialDense(32, serialization_factor=2, serialization_dimension="kernel_rows"))
    model.add(SerialDense(32, serialization_factor=2, serialization_dimension="kernel_rows"))
    model.compile(keras.optimizers.Adam(1e-3), "mse", steps_per_execution=2)
    model.fit(np.zeros((8, 16), np.float32), np.zeros((8, 32), np.float32), 4, verbose=0)
