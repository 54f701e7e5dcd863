"""Digits read row by row by `PopnnLSTM`, whose weights then serve other LSTMs."""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(__name__, __doc__, epochs=(10, "passes over the training images"))

import digits_data
import keras
import numpy as np
import tensorflow as tf
from ipu_tensorflow_addons.keras.layers import PopnnLSTM
from tensorflow.python import ipu
from tensorflow.python.ipu.ops import rnn_ops

BATCH_SIZE = 16
UNITS = 48


def build() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8, 8)),
            PopnnLSTM(UNITS),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def main(num_epochs: int = ARGUMENTS.epochs) -> dict:
    """Trains the model and hands the weights of its LSTM on; prints and returns what it found."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()

    (x_train, y_train), (x_test, y_test) = digits_data.load()
    x_train, x_test = (images.reshape(-1, 8, 8) for images in (x_train, x_test))
    options = {"batch_size": BATCH_SIZE, "verbose": 0}
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = build()
        model.compile(
            optimizer=keras.optimizers.Adam(0.01),
            loss="sparse_categorical_crossentropy",
            metrics=["accuracy"],
            steps_per_execution=22,
        )
        history = model.fit(x_train, y_train, epochs=num_epochs, **options).history
        _, accuracy = model.evaluate(x_test, y_test, **options)
    weights = model.layers[0].get_weights()
    results = {
        "losses": history["loss"],
        "accuracy": accuracy,
        "differences": differences(weights, x_test[:BATCH_SIZE]),
        "variable_devices": {variable.value.device for variable in model.variables},
    }
    print(f"test accuracy {accuracy:.3f}")
    for name, difference in results["differences"].items():
        print(f"{name} with these weights differs by {difference:.0e}")
    return results


def differences(weights: list[np.ndarray], images: np.ndarray) -> dict[str, float]:
    """How far the outputs of other layers are from those of `PopnnLSTM`, given its weights."""
    layers = [layer(UNITS, return_sequences=True) for layer in (PopnnLSTM, keras.layers.LSTM)]
    for layer in layers:
        layer.build(images.shape)
        layer.set_weights(weights)
    expected, of_keras = (layer(images).numpy() for layer in layers)

    # In the graph of a session, as TensorFlow 1 has it, time is the first axis.
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        lstm = rnn_ops.PopnnLSTM(UNITS)
        outputs, _ = lstm(tf.constant(images.swapaxes(0, 1)))
        session.run(tf.compat.v1.global_variables_initializer())
        kernel, biases = rnn_ops.lstm_weights_from_keras(*weights)
        session.run([lstm.kernel.assign(kernel), lstm.biases.assign(biases)])
        of_ops = session.run(outputs).swapaxes(0, 1)
    return {
        "keras.layers.LSTM": float(np.abs(of_keras - expected).max()),
        "rnn_ops.PopnnLSTM": float(np.abs(of_ops - expected).max()),
    }


if __name__ == "__main__":
    main()
