"""Loads a saved model in stock Keras, with `ipu_keras` out of reach, and predicts.

Usage: predict_with_stock_keras.py MODEL.keras INPUTS.npy PREDICTIONS.npy
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
for module in ("ipu_keras", "ipu_addons"):
    # Importing a module that is None here fails, installed or not.
    sys.modules[module] = None

import keras  # noqa: E402, it must follow the block above
import numpy as np  # noqa: E402


def main(model_path: str, inputs_path: str, predictions_path: str) -> None:
    """Writes what the model predicts for the inputs."""
    model = keras.models.load_model(model_path)
    np.save(predictions_path, model.predict(np.load(inputs_path), verbose=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
