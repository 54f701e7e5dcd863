"""ResNet-50 in a pipeline of four IPUs: balanced, trained, and reported.

The images are small and random: what counts is that a large model runs in stages.
"""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(
    __name__,
    __doc__,
    size=(64, "of the images, in pixels"),
    updates=(2, "of the weights, in an epoch"),
    epochs=(2, "passes over the images"),
)

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

import ipu_keras

NUM_IPUS = 4
BATCH_SIZE = 2
# Batches per weight update; a grouped pipeline of four stages takes them by eight.
ACCUMULATED = 8


def build(size: int) -> keras.Model:
    """Returns a ResNet-50 for square images, made in the scope of a strategy."""
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.applications.ResNet50(
            weights=None, input_shape=(size, size, 3), classes=10, classifier_activation=None
        )
    model.compile(
        keras.optimizers.SGD(0.001, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        steps_per_execution=ACCUMULATED,
    )
    return model


def main(
    size: int = ARGUMENTS.size, updates: int = ARGUMENTS.updates, epochs: int = ARGUMENTS.epochs
) -> dict:
    """Trains on random images; prints and returns what came of it.

    Args:
        size: Of the images, in pixels.
        updates: Of the weights, in an epoch.
        epochs: Passes over the images.
    """
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = NUM_IPUS
    config.configure_ipu_system()
    model = build(size)

    images = tf.TensorSpec((BATCH_SIZE, size, size, 3))
    labels = tf.TensorSpec((BATCH_SIZE,), tf.int32)
    assignment = ipu_keras.suggest_pipeline(model, NUM_IPUS, images, labels)
    model.set_pipeline_stage_assignment(assignment)
    # The sum of so many gradients, which is the default, would ask for another learning rate.
    model.set_pipelining_options(ACCUMULATED, gradient_accumulation_reduction_method="mean")

    random = np.random.default_rng(0)
    num_images = updates * ACCUMULATED * BATCH_SIZE
    x = random.standard_normal((num_images, size, size, 3), dtype="float32")
    y = random.integers(0, 10, num_images, dtype="int32")
    history = model.fit(x, y, batch_size=BATCH_SIZE, epochs=epochs, shuffle=False, verbose=2)

    report = ipu_keras.profile(model, images, labels)
    print(f"{report.cycles_per_step:,} modelled cycles for a batch of {BATCH_SIZE} images")
    print(report.pipeline)
    return {
        "stages": [one.pipeline_stage for one in assignment],
        "losses": history.history["loss"],
        "updates": int(model.optimizer.iterations),
        "report": report,
    }


if __name__ == "__main__":
    main()
