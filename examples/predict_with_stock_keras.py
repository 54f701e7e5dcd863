"""Loads a saved model in stock Keras, with `ipu_keras` out of reach, and predicts.

`digits.py` runs it with the models that it has trained.
"""

import argparse
import os
import sys

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model_path", metavar="MODEL.keras", help="a saved model")
    parser.add_argument("inputs_path", metavar="INPUTS.npy", help="what to predict for")
    parser.add_argument("predictions_path", metavar="PREDICTIONS.npy", help="is written")
    ARGUMENTS = parser.parse_args()

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
for module in ("ipu_keras", "ipu_addons"):
    # Importing a module that is None here fails, installed or not.
    sys.modules[module] = None

import keras
import numpy as np


def main(model_path: str, inputs_path: str, predictions_path: str) -> None:
    """Writes what the model predicts for the inputs."""
    model = keras.models.load_model(model_path)
    np.save(predictions_path, model.predict(np.load(inputs_path), verbose=0))


if __name__ == "__main__":
    main(**vars(ARGUMENTS))
