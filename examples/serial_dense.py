"""A wide layer in parts: less memory, some more cycles, and the same training.

Poplar plans a whole matrix product at once, with its partial results on all tiles. `SerialDense`
computes it in parts, one after the other, forward and backward.
"""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(__name__, __doc__, epochs=(3, "passes over the training images"))

import digits_data
import keras
import numpy as np
import tensorflow as tf
from ipu_tensorflow_addons.keras import layers as ipu_layers
from tensorflow.python import ipu

import ipu_keras

BATCH_SIZE = 16
WIDTH = 4096


def cost(parts: int) -> dict:
    """What a step of training a wide layer costs on an IPU: bytes and cycles."""
    layer = ipu_layers.SerialDense(WIDTH, parts, "kernel_rows", use_bias=False)
    model = keras.Sequential([keras.Input((WIDTH,)), layer])
    model.compile(optimizer="sgd", loss="mse")
    spec = tf.TensorSpec((256, WIDTH))
    report = ipu_keras.profile(model, spec, spec)
    bytes_of_tile = int(report.memory_by_tile.max())
    print(f"{parts} part(s): {bytes_of_tile:7,} bytes on the fullest tile", end=", ")
    print(f"{report.cycles_per_step:,.0f} cycles")
    return {"bytes": bytes_of_tile, "cycles": report.cycles_per_step}


def build_model() -> keras.Model:
    """A classifier of digits with layers for IPUs."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1), batch_size=BATCH_SIZE),
            keras.layers.Conv2D(16, 3),
            ipu_layers.GroupNorm(groups=4),
            keras.layers.ReLU(),
            keras.layers.Flatten(),
            ipu_layers.SerialDense(256, 4, "kernel_rows", activation="relu"),
            ipu_layers.Dropout(0.3),
            keras.layers.Dense(10),
        ]
    )


def main(num_epochs: int = ARGUMENTS.epochs) -> dict:
    """Prints what parts cost, trains a model with them, and returns both."""
    costs = {parts: cost(parts) for parts in (1, 2, 4, 8)}
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    keras.utils.set_random_seed(0)
    (x_train, y_train), (x_test, y_test) = digits_data.load()
    with strategy.scope():
        model = build_model()
        model.compile(
            optimizer=keras.optimizers.Adam(0.001),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            steps_per_execution=11,
        )
        history = model.fit(x_train, y_train, BATCH_SIZE, epochs=num_epochs, verbose=0)
        logits = model.predict(x_test, BATCH_SIZE, verbose=0)
    accuracy = float(np.mean(np.argmax(logits, axis=1) == y_test))
    print(f"test accuracy {accuracy:.3f} after {num_epochs} epochs")
    return {
        "costs": costs,
        "losses": history.history["loss"],
        "accuracy": accuracy,
        "variable_devices": {variable.value.device for variable in model.variables},
    }


if __name__ == "__main__":
    main()
