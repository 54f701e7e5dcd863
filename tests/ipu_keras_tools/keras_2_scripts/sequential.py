"""A Sequential model in the strategy's scope, as the guide begins."""

import numpy as np
from tensorflow import keras
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()


def create_model():
    return keras.Sequential(
        [
            keras.layers.Flatten(),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


x = np.zeros((16, 4, 4), np.float32)
y = np.zeros(16, np.int32)
with strategy.scope():
    model = create_model()
    # now: optimizer = keras.optimizers.SGD(learning_rate=0.1)
    optimizer = keras.optimizers.SGD(lr=0.1)
    # now: model.compile(optimizer, "sparse_categorical_crossentropy", steps_per_execution=2)
    model.compile(optimizer, "sparse_categorical_crossentropy", experimental_steps_per_execution=2)
    # now: model.fit(x, y, epochs=1, batch_size=8, verbose=0)
    model.fit(x, y, epochs=1, batch_size=8, verbose=0, workers=2)
    # now: print(optimizer.learning_rate)
    print(optimizer.lr)
