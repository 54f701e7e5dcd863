"""Code of SDK 2.1: a PipelineSequential model of two stages, on four IPUs.

Each stage of the pipeline is a list of layers, on an IPU of its own; so there are two
replicas of the pipeline. A step is one pass of 4 batches of each replica through the
pipeline and one update of the weights; the steps of an epoch run on the device at once.
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

BATCH_SIZE = 8
# Batches of each replica for a weight update.
ACCUMULATION_COUNT = 4


def dataset(images: np.ndarray, labels: np.ndarray) -> tf.data.Dataset:
    """Batches of fixed shapes, in another order for each epoch."""
    samples = tf.data.Dataset.from_tensor_slices((images, labels))
    return samples.shuffle(len(images), seed=0).batch(BATCH_SIZE, drop_remainder=True)


def main(num_epochs: int = ARGUMENTS.epochs) -> dict:
    """Trains an MLP in two stages on the digits; prints and returns what it reached."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 4
    cfg.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    keras.utils.set_random_seed(0)
    train, test = digits_data.load()

    with strategy.scope():
        model = ipu.keras.PipelineSequential(
            [
                [layers.Flatten(), layers.Dense(128, activation="relu")],
                [layers.Dense(64, activation="relu"), layers.Dense(10)],
            ],
            gradient_accumulation_count=ACCUMULATION_COUNT,
            pipeline_schedule=ipu.pipelining_ops.PipelineSchedule.Grouped,
        )
        model.compile(
            # The gradients of 4 batches and 2 replicas are added, not averaged. The size of
            # Adam's updates does not depend on it.
            optimizer=keras.optimizers.Adam(0.004),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        history = model.fit(dataset(*train), epochs=num_epochs, shuffle=False, verbose=0)
        # Those of the last replica.
        _, accuracy = model.evaluate(*test, batch_size=BATCH_SIZE // 2, verbose=0)
        # Of all samples.
        outputs = model.predict(test[0], batch_size=BATCH_SIZE // 2, verbose=0)

    predicted_accuracy = float(np.mean(outputs.argmax(axis=1) == test[1]))
    for epoch, loss in enumerate(history.history["loss"]):
        print(f"epoch {epoch + 1}: {history.params['steps']} steps, loss {loss:.4f}")
    print(f"test accuracy {predicted_accuracy:.3f}")
    return {
        "losses": history.history["loss"],
        "steps": history.params["steps"],
        "weight_updates": int(model.optimizer.iterations),
        "accuracy": accuracy,
        "predicted_accuracy": predicted_accuracy,
        "variable_devices": {variable.value.device for variable in model.variables},
    }


if __name__ == "__main__":
    main()
