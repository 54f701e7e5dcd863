"""A subclass of `keras.Model` with its own `call`, saved as weights and as a whole."""

import os
import tempfile
from pathlib import Path

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(__name__, __doc__, epochs=(15, "passes over the training images"))

import digits_data
import keras
import numpy as np
from keras import layers
from tensorflow.python import ipu

BATCH_SIZE = 16


@keras.saving.register_keras_serializable(package="digits")
class ResidualClassifier(keras.Model):
    """A perceptron whose `num_blocks` hidden layers add to what they are given."""

    def __init__(self, num_blocks: int = 2, **kwargs):
        super().__init__(**kwargs)
        self.num_blocks = num_blocks
        self.flatten = layers.Flatten()
        self.embed = layers.Dense(64, activation="relu")
        self.blocks = [layers.Dense(64, activation="relu") for _ in range(num_blocks)]
        self.classify = layers.Dense(10, activation="softmax")

    def call(self, images):
        features = self.embed(self.flatten(images))
        for block in self.blocks:
            features = features + block(features)
        return self.classify(features)

    def get_config(self):
        return {**super().get_config(), "num_blocks": self.num_blocks}


def main(num_epochs: int = ARGUMENTS.epochs) -> dict:
    """Trains, saves and loads the model; prints and returns what it reached."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()

    (x_train, y_train), (x_test, y_test) = digits_data.load()
    options = {"batch_size": BATCH_SIZE, "verbose": 0}
    keras.utils.set_random_seed(0)
    with tempfile.TemporaryDirectory() as folder, strategy.scope():
        model = ResidualClassifier()
        model.compile(
            optimizer="adam",
            loss="sparse_categorical_crossentropy",
            metrics=["accuracy"],
            steps_per_execution=22,
        )
        history = model.fit(x_train, y_train, epochs=num_epochs, **options).history
        _, accuracy = model.evaluate(x_test, y_test, **options)
        predictions = model.predict(x_test, **options)
        model.save_weights(Path(folder, "digits.weights.h5"))
        with_weights = ResidualClassifier()
        with_weights(x_test[:1])  # creates the weights
        with_weights.load_weights(Path(folder, "digits.weights.h5"))
        model.save(Path(folder, "digits.keras"))
        whole = keras.models.load_model(Path(folder, "digits.keras"))
        loaded = [other.predict(x_test, **options) for other in (with_weights, whole)]
    results = {
        "losses": history["loss"],
        "accuracy": accuracy,
        "difference_of_loaded": float(np.abs(np.array(loaded) - predictions).max()),
        "variable_devices": {variable.value.device for variable in model.variables},
    }
    print(f"loss {results['losses'][0]:.2f}, after {num_epochs} epochs {results['losses'][-1]:.4f}")
    print(f"test accuracy {accuracy:.3f}, on {', '.join(sorted(results['variable_devices']))}")
    print(f"loaded models differ by {results['difference_of_loaded']:.0e}")
    return results


if __name__ == "__main__":
    main()
