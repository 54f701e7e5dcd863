"""A Functional model with two outputs, trained with validation data and callbacks."""

import csv
import os
import tempfile
from pathlib import Path

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(
    __name__, __doc__, max_epochs=(30, "most passes over the training images")
)

import digits_data
import keras
from keras import layers
from tensorflow.python import ipu

BATCH_SIZE = 16


def build() -> keras.Model:
    """Tells the digit, and whether it is an odd one, from the same features."""
    images = keras.Input((8, 8, 1), name="image")
    features = layers.Dense(128, activation="relu")(layers.Flatten()(images))
    features = layers.Dropout(0.2)(features)
    digit = layers.Dense(10, activation="softmax", name="digit")(features)
    odd = layers.Dense(1, activation="sigmoid", name="odd")(features)
    return keras.Model(images, {"digit": digit, "odd": odd})


def main(max_epochs: int = ARGUMENTS.max_epochs) -> dict:
    """Trains until the validation loss rests; prints and returns what is left behind."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()

    (x_train, y_train), (x_test, y_test) = digits_data.load()
    train = {"digit": y_train, "odd": (y_train % 2).astype("float32")}
    test = {"digit": y_test, "odd": (y_test % 2).astype("float32")}
    keras.utils.set_random_seed(0)
    with tempfile.TemporaryDirectory() as folder, strategy.scope():
        checkpoint, log = Path(folder, "best.keras"), Path(folder, "log.csv")
        model = build()
        model.compile(
            optimizer="adam",
            loss={"digit": "sparse_categorical_crossentropy", "odd": "binary_crossentropy"},
            metrics={"digit": "accuracy", "odd": "accuracy"},
            steps_per_execution=22,
        )
        callbacks = [
            keras.callbacks.EarlyStopping(monitor="val_loss", patience=3),
            keras.callbacks.ModelCheckpoint(checkpoint, monitor="val_loss", save_best_only=True),
            keras.callbacks.CSVLogger(log),
        ]
        options = {"batch_size": BATCH_SIZE, "verbose": 0}
        history = model.fit(
            x_train,
            train,
            validation_data=(x_test, test),
            epochs=max_epochs,
            callbacks=callbacks,
            **options,
        ).history
        loaded = keras.models.load_model(checkpoint)
        best = loaded.evaluate(x_test, test, return_dict=True, **options)
        with log.open() as file:
            logged = list(csv.DictReader(file))
    accuracies = f"digits {best['digit_accuracy']:.3f}, odd or even {best['odd_accuracy']:.3f}"
    print(f"test accuracy of the best of {len(logged)} epochs: {accuracies}")
    devices = {variable.value.device for variable in model.variables}
    return {"history": history, "logged": logged, "best": best, "variable_devices": devices}


if __name__ == "__main__":
    main()
