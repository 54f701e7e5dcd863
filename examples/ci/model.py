"""The model of the project: digits, as in the other examples."""

import keras

UNITS = 256


def make_model(units: int = UNITS) -> keras.Model:
    """A perceptron with one hidden layer.

    Args:
        units: Of the hidden layer.
    """
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(units, activation="relu", name="hidden"),
            keras.layers.Dense(10, name="digits"),
        ],
        name="digits",
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, steps_per_execution=8)
    return model
