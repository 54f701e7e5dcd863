"""TensorFlow 1 code in a session: gradients of several batches make one weight update.

Three optimizers around each other: Momentum gets the sum of the gradients of 4 batches, to
each of which a decay of the weights was added when it was computed.
"""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(__name__, __doc__, epochs=(10, "passes over the training images"))

import digits_data
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

BATCH_SIZE = 16
NUM_MINI_BATCHES = 4
WEIGHT_DECAY = 1e-4


def classifier(images):
    """64 pixels to the logits of 10 digits."""
    pixels = tf.reshape(images, [-1, 64])
    weights = tf.get_variable("weights", initializer=tf.zeros([64, 10]))
    return tf.matmul(pixels, weights) + tf.get_variable("bias", initializer=tf.zeros([10]))


def main(num_epochs: int = ARGUMENTS.epochs) -> dict:
    """Trains a linear classifier on the digits; prints and returns what it reached."""
    (x_train, y_train), (x_test, y_test) = digits_data.load()
    with tf.Graph().as_default(), tf.Session() as session:
        images = tf.placeholder(tf.float32, [None, 8, 8, 1])
        labels = tf.placeholder(tf.int32, [None])
        logits = classifier(images)
        loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
        optimizer = ipu.optimizers.GradientAccumulationOptimizer(
            tf.train.MomentumOptimizer(0.05, 0.9), NUM_MINI_BATCHES
        )
        optimizer = ipu.optimizers.MapGradientOptimizer(
            optimizer, lambda gradient, variable: gradient + WEIGHT_DECAY * variable
        )
        global_step = tf.train.create_global_step()
        operation = optimizer.minimize(loss, global_step)
        session.run(tf.global_variables_initializer())

        random = np.random.default_rng(0)
        losses = []
        for _ in range(num_epochs):
            batches = random.permutation(len(x_train)).reshape(-1, BATCH_SIZE)
            found = [
                session.run([loss, operation], {images: x_train[batch], labels: y_train[batch]})[0]
                for batch in batches
            ]
            losses.append(float(np.mean(found)))
        outputs = session.run(logits, {images: x_test})
        accuracy = float(np.mean(np.argmax(outputs, axis=1) == y_test))
        weight_updates = int(session.run(global_step))
    print(
        f"test accuracy {accuracy:.3f} after {num_epochs * len(batches)} batches and "
        f"{weight_updates} weight updates"
    )
    return {"losses": losses, "accuracy": accuracy, "weight_updates": weight_updates}


if __name__ == "__main__":
    main()
