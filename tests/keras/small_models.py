"""Stock models of each kind that the host runs in another way: 6 features to 3 classes."""

import keras


def dense():
    return keras.Sequential(
        [keras.Input([6]), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)]
    )


def convolutional(normalized=False):
    """Optionally with batch normalization, whose statistics each replica has of its own."""
    return keras.Sequential(
        [
            keras.Input([6]),
            keras.layers.Reshape((3, 2, 1)),
            keras.layers.Conv2D(4, 2, activation="relu"),
            *([keras.layers.BatchNormalization()] if normalized else []),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )


def normalized():
    return convolutional(normalized=True)


def recurrent():
    return keras.Sequential(
        [
            keras.Input([6]),
            keras.layers.Reshape((3, 2)),
            keras.layers.LSTM(4),
            keras.layers.Dense(3),
        ]
    )
