"""The models that the speed of `ipu_keras` is judged by, and data for them.

They are plain Keras: nothing here knows of IPUs. Where a model is created, inside
a strategy's scope or outside, decides what trains it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import keras
import numpy as np
from keras import layers

BATCH_SIZE = 32


def mlp() -> keras.Model:
    """A 784-256-128-10 perceptron."""
    return keras.Sequential(
        [
            keras.Input((784,)),
            layers.Dense(256, activation="relu"),
            layers.Dense(128, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )


def cnn28() -> keras.Model:
    """Two blocks of convolution and pooling on 28x28 grey images."""
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )


def cnn32() -> keras.Model:
    """Three blocks of convolution and pooling on 32x32 colour images."""
    model = keras.Sequential([keras.Input((32, 32, 3))])
    for filters in (32, 64, 64):
        model.add(layers.Conv2D(filters, 3, padding="same", activation="relu"))
        model.add(layers.MaxPooling2D())
    model.add(layers.Flatten())
    model.add(layers.Dense(64, activation="relu"))
    model.add(layers.Dense(10, activation="softmax"))
    return model


def cnn32_batch_norm() -> keras.Model:
    """`cnn32` with batch normalization after each convolution, and dropout."""
    model = keras.Sequential([keras.Input((32, 32, 3))])
    for filters in (32, 64, 64):
        model.add(layers.Conv2D(filters, 3, padding="same"))
        model.add(layers.BatchNormalization())
        model.add(layers.Activation("relu"))
        model.add(layers.MaxPooling2D())
    model.add(layers.Flatten())
    model.add(layers.Dropout(0.3))
    model.add(layers.Dense(64, activation="relu"))
    model.add(layers.Dense(10, activation="softmax"))
    return model


def lstm() -> keras.Model:
    """A classifier of texts of 64 tokens from a vocabulary of 5000."""
    return keras.Sequential(
        [
            keras.Input((64,), dtype="int32"),
            layers.Embedding(5000, 64),
            layers.LSTM(64),
            layers.Dense(2, activation="softmax"),
        ]
    )


def transformer(dropout: float = 0.0) -> keras.Model:
    """One encoder block: sequence 64, width 128, 4 heads, MLP 512.

    Args:
        dropout: Rate after the attention, inside it and after the MLP. Defaults to
            0, which creates no dropout layers.
    """
    inputs = keras.Input((64, 128))
    attention = layers.MultiHeadAttention(num_heads=4, key_dim=32, dropout=dropout)
    attended = attention(inputs, inputs)
    if dropout:
        attended = layers.Dropout(dropout)(attended)
    hidden = layers.LayerNormalization()(inputs + attended)
    projected = layers.Dense(512, activation="relu")(hidden)
    projected = layers.Dense(128)(projected)
    if dropout:
        projected = layers.Dropout(dropout)(projected)
    hidden = layers.LayerNormalization()(hidden + projected)
    pooled = layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(pooled))


def transformer_dropout() -> keras.Model:
    """`transformer` with a dropout rate of 0.1."""
    return transformer(dropout=0.1)


@dataclass(frozen=True)
class Workload:
    """A model and the shape of what it is trained on.

    Args:
        build: Returns a fresh model, not compiled, that ends in a softmax.
        input_shape: Shape of one example.
        num_classes: How many labels there are.
        num_steps: Batches of an epoch; a multiple of 32.
        vocabulary: Inputs are token ids below this number; floats if `None`.
    """

    build: Callable[[], keras.Model]
    input_shape: tuple[int, ...]
    num_classes: int
    num_steps: int
    vocabulary: int | None = None

    def make_data(self, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns inputs and int32 labels for one epoch; a model can learn them.

        Args:
            seed: The same seed gives the same arrays.
        """
        random = np.random.default_rng(seed)
        shape = (self.num_steps * BATCH_SIZE, *self.input_shape)
        if self.vocabulary is None:
            inputs = random.standard_normal(shape, dtype="float32")
        else:
            inputs = random.integers(0, self.vocabulary, shape, dtype="int32")
        features = inputs.reshape(len(inputs), -1) - inputs.mean(dtype="float32")
        weights = random.standard_normal((features.shape[1], self.num_classes), dtype="float32")
        return inputs, np.argmax(features @ weights, axis=1).astype("int32")


WORKLOADS = {
    "mlp": Workload(mlp, (784,), 10, num_steps=256),
    "cnn28": Workload(cnn28, (28, 28, 1), 10, num_steps=128),
    "cnn32": Workload(cnn32, (32, 32, 3), 10, num_steps=64),
    "cnn32_batch_norm": Workload(cnn32_batch_norm, (32, 32, 3), 10, num_steps=64),
    "lstm": Workload(lstm, (64,), 2, num_steps=128, vocabulary=5000),
    "transformer": Workload(transformer, (64, 128), 10, num_steps=64),
    "transformer_dropout": Workload(transformer_dropout, (64, 128), 10, num_steps=64),
}
