"""A wide layer in parts: the same numbers, in less memory at once.

Poplar plans a whole matrix product at once, with its partial results on all tiles. `SerialDense`
computes it in parts, one after the other, forward and backward.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import digits_data
import keras
import numpy as np
from ipu_tensorflow_addons.keras import layers as ipu_layers
from tensorflow.python import ipu

BATCH_SIZE = 16


def build_model(parts: int) -> keras.Model:
    """A classifier whose wide layer is computed in so many parts; it has seeds of its own."""
    inputs = keras.Input((8, 8, 1), batch_size=BATCH_SIZE)
    x = keras.layers.Conv2D(16, 3, kernel_initializer=keras.initializers.HeNormal(1))(inputs)
    x = ipu_layers.GroupNorm(groups=4)(x)
    x = keras.layers.Flatten()(keras.layers.ReLU()(x))
    x = ipu_layers.SerialDense(
        512, parts, "kernel_rows", "relu", kernel_initializer=keras.initializers.HeNormal(2)
    )(x)
    x = ipu_layers.Dropout(0.3, seed=3)(x)
    outputs = keras.layers.Dense(10, kernel_initializer=keras.initializers.HeNormal(4))(x)
    model = keras.Model(inputs, outputs)
    model.compile(
        optimizer=keras.optimizers.Adam(0.001),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=11,
    )
    return model


def main(num_epochs: int = 3) -> dict:
    """Trains the model with the whole product and with four parts; prints what both reach."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    (x_train, y_train), (x_test, y_test) = digits_data.load()
    results = {}
    for parts in (1, 4):
        with strategy.scope():
            model = build_model(parts)
            history = model.fit(
                x_train, y_train, batch_size=BATCH_SIZE, epochs=num_epochs, shuffle=False, verbose=0
            )
            logits = model.predict(x_test, batch_size=BATCH_SIZE, verbose=0)
        accuracy = float(np.mean(np.argmax(logits, axis=1) == y_test))
        losses = history.history["loss"]
        print(f"{parts} part(s): loss {losses[-1]:.4f}, test accuracy {accuracy:.3f}")
        results[parts] = {"losses": losses, "accuracy": accuracy}
    return results


if __name__ == "__main__":
    main()
