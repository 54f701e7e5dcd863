"""What the model may cost on a Bow, and that it trains; no IPU is needed for either."""

import numpy as np
import pytest
import tensorflow as tf
from model import make_model

IMAGES, LABELS = tf.TensorSpec((32, 64)), tf.TensorSpec((32,), tf.int32)


@pytest.mark.ipu_fits(target="bow", max_cycles=420_000, max_tile_memory=0.1)
def test_training_fits(ipu_report):
    ipu_report(make_model(), IMAGES, LABELS, steps_per_execution=8)


def test_it_trains(ipu):
    with ipu.scope():
        model = make_model()
    images = np.random.default_rng(0).standard_normal((256, 64)).astype("float32")
    labels = np.zeros(256, "int32")
    losses = model.fit(images, labels, batch_size=32, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
