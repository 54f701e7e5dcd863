"""A small model of images, and specs of a batch for it."""

import keras
import tensorflow as tf

IMAGES = tf.TensorSpec((16, 8, 8, 1))
VECTORS = tf.TensorSpec((16, 1024))
LABELS = tf.TensorSpec((16,), tf.int32)


def image_classifier():
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(8, 3, activation="relu", name="convolution"),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.5, name="dropout"),
            keras.layers.Dense(4, name="dense"),
        ],
        name="classifier",
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
    return model


def wide_classifier():
    """A model whose weights are most of what it takes, so that halves of them are a half of it."""
    layers = [keras.layers.Dense(size) for size in (1024, 1024, 1024, 4)]
    model = keras.Sequential([keras.Input((1024,)), *layers], name="classifier")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
    return model
