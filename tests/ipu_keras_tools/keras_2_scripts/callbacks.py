"""Callbacks that read the learning rate and keep weights."""

import os
import tempfile

import numpy as np
from tensorflow import keras
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()


class Rates(keras.callbacks.Callback):
    def __init__(self):
        # now: super().__init__()
        super().__init__(self)
        self.rates = []

    def on_epoch_end(self, epoch, logs=None):
        # now: self.rates.append(float(self.model.optimizer.learning_rate))
        self.rates.append(float(self.model.optimizer.lr))


folder = tempfile.mkdtemp()
with strategy.scope():
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", steps_per_execution=2)
    # now: best = keras.callbacks.ModelCheckpoint(os.path.join(folder, "best.keras"))
    best = keras.callbacks.ModelCheckpoint(os.path.join(folder, "best.keras"), period=1)
    # now: last = keras.callbacks.ModelCheckpoint("last.weights.h5", save_weights_only=True)
    last = keras.callbacks.ModelCheckpoint("last.ckpt", save_weights_only=True)
    x, y = np.zeros((8, 6), np.float32), np.zeros((8, 1), np.float32)
    model.fit(x, y, 4, epochs=2, verbose=0, callbacks=[Rates()])
    # now: model.evaluate(x, y, batch_size=4, verbose=0)
    model.evaluate(x, y, batch_size=4, verbose=0, use_multiprocessing=True)
