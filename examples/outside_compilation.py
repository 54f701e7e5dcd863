"""TensorFlow 2: a step of which a part runs on the host, in the middle of a program of the IPU.

The host clips gradients by a norm that it takes from all steps so far, with Python's `statistics`.
"""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(__name__, __doc__, epochs=(10, "passes over the training images"))

import statistics

import digits_data
import keras
import numpy as np
import tensorflow as tf
from keras import layers
from tensorflow.python import ipu

import ipu_keras

BATCH_SIZE = 16


def main(num_epochs: int = ARGUMENTS.epochs) -> dict:
    """Trains an MLP on the digits; prints and returns what it reached, and what copies cost."""
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
                layers.Dense(64, activation="relu"),
                layers.Dense(10),
            ]
        )
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    (x_train, y_train), (x_test, y_test) = digits_data.load()
    dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train))
    dataset = dataset.shuffle(1000, seed=0).repeat().batch(BATCH_SIZE, drop_remainder=True)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
    _ = infeed.initializer
    norms: list[float] = []

    def usual_norm(norm: np.ndarray) -> np.float32:
        norms.append(float(norm))
        return np.float32(statistics.median(norms))

    def step(total: tf.Tensor, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_fn(labels, model(images, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        norm = tf.linalg.global_norm(gradients)
        with ipu.scopes.outside_compilation_scope():
            most = tf.ensure_shape(tf.numpy_function(usual_norm, [norm], tf.float32), [])
        clipped, _ = tf.clip_by_global_norm(gradients, most, norm)
        optimizer.apply_gradients(zip(clipped, model.trainable_variables, strict=True))
        return total + loss

    @tf.function(jit_compile=True)
    def train_epoch():
        steps = len(x_train) // BATCH_SIZE
        total = ipu.loops.repeat(steps, step, [0.0], infeed)
        return total / steps

    losses = []
    for epoch in range(1, num_epochs + 1):
        losses.append(float(strategy.run(train_epoch)))
        print(f"epoch {epoch}: loss {losses[-1]:.4f}")
    report = ipu_keras.last_report()
    costs = zip(report.model.program.compute_sets, report.model.costs, strict=True)
    (copies,) = [cost for one, cost in costs if one.family == "OutsideCompilation"]
    print(f"the host gets a norm in each step, which costs {copies.cycles:,} cycles")
    accuracy = float((model(x_test).numpy().argmax(axis=1) == y_test).mean())
    print(f"test accuracy {accuracy:.3f}")
    return {"losses": losses, "norms": norms, "copies": copies.detail, "accuracy": accuracy}


if __name__ == "__main__":
    main()
