"""TensorFlow 2: a loop within a function, with queues to and from the IPU."""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(__name__, __doc__, epochs=(15, "passes over the training images"))

import digits_data
import keras
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

    (x_train, y_train), (x_test, y_test) = digits_data.load()
    dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train))
    dataset = dataset.shuffle(1000, seed=0).repeat().batch(BATCH_SIZE, drop_remainder=True)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    _ = infeed.initializer

    def step(total: tf.Tensor, images: tf.Tensor, labels: tf.Tensor) -> list:
        with tf.GradientTape() as tape:
            loss = loss_fn(labels, model(images, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return [total + loss, outfeed.enqueue({"loss": loss, "total": total})]

    @tf.function(jit_compile=True)
    def train_epoch():
        steps = len(x_train) // BATCH_SIZE
        total = ipu.loops.repeat(steps, step, [0.0], infeed)
        return total / steps

    losses = []
    for epoch in range(1, num_epochs + 1):
        losses.append(float(strategy.run(train_epoch)))
        by_step = outfeed.dequeue()["loss"]
        print(f"epoch {epoch}: loss {losses[-1]:.4f}, of {len(by_step)} steps")
    predicted = tf.argmax(model(x_test, training=False), axis=1).numpy()
    accuracy = float((predicted == y_test).mean())
    print(f"test accuracy {accuracy:.3f}")
    return {"losses": losses, "by_step": by_step.numpy(), "accuracy": accuracy}


if __name__ == "__main__":
    main()
