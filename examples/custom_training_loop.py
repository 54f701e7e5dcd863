"""A training loop of one's own: a `tf.function` that the strategy runs on the IPU.

One call trains for a whole epoch, so the host is asked for data once per epoch and
not once per step.
"""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(__name__, __doc__, epochs=(15, "passes over the training images"))

import digits_data
import keras
import numpy as np
import tensorflow as tf
from keras import layers
from tensorflow.python import ipu

BATCH_SIZE = 16


def main(num_epochs: int = ARGUMENTS.epochs) -> dict:
    """Trains an MLP on the digits; prints and returns what it reached."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                layers.Flatten(),
                layers.Dense(128, activation="relu"),
                layers.Dense(10),
            ]
        )
        optimizer = keras.optimizers.Adam(0.002)
        optimizer.build(model.trainable_variables)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train_epoch(images, labels):
        total = 0.0
        for step in tf.range(len(images)):
            with tf.GradientTape() as tape:
                loss = loss_fn(labels[step], model(images[step], training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            total += loss
        return total / tf.cast(len(images), tf.float32)

    @tf.function
    def classify(images):
        return tf.argmax(model(images, training=False), axis=1, output_type=tf.int32)

    (x_train, y_train), (x_test, y_test) = digits_data.load()
    random = np.random.default_rng(0)
    losses = []
    for epoch in range(num_epochs):
        order = random.permutation(len(x_train)).reshape(-1, BATCH_SIZE)
        batches = tf.constant(x_train[order]), tf.constant(y_train[order])
        loss = strategy.run(train_epoch, args=batches)
        losses.append(float(loss))
        print(f"epoch {epoch + 1}: loss {losses[-1]:.4f}")
    labels = strategy.run(classify, args=(tf.constant(x_test),))
    accuracy = float(np.mean(labels.numpy() == y_test))
    print(f"test accuracy {accuracy:.3f}, on {loss.device}")
    return {
        "losses": losses,
        "accuracy": accuracy,
        "loss_device": loss.device,
        "variable_devices": {variable.value.device for variable in model.variables},
    }


if __name__ == "__main__":
    main()
