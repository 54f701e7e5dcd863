"""What operations make of the largest and smallest halves does not depend on who computes it."""

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.ops import recurrent
from ipu_keras.ops.embedding_ops import embedding_lookup
from ipu_keras.ops.image_ops import normalise_image
from ipu_keras.ops.math_ops import serialized_matmul
from ipu_keras.ops.nn_ops import (
    ctc_loss_v2,
    gelu,
    hard_sigmoid,
    sampled_softmax_loss,
    swish,
)
from ipu_keras.ops.normalization_ops import group_norm
from ipu_keras.ops.rand_ops import dropout
from ipu_keras.ops.statistics_ops import fixed_width_bins, histogram

random = np.random.default_rng(0)
UPWARDS = [0, 6e-8, 6e-5, 0.1, 1, 2, 5, 10, 41, 100, 200, 256, 300, 1000, 4096, 32768, 65504]
HALVES = np.float16([*UPWARDS, *(-value for value in UPWARDS)])
LENGTHS = tf.constant([2, 2, 1]), tf.constant([3, 3, 2])
LABELS = tf.constant([[1, 2], [2, 2], [1, 0]])
SAMPLE = (
    tf.constant([0, 3, 5, 6], tf.int64),
    tf.constant([[0.5], [0.2]]),
    tf.constant([0.9, 0.2, 0.01, 0.1]),
)


def ends(*shape):
    return tf.constant(random.choice(HALVES, shape))


def usual(*shape):
    return tf.constant(random.normal(size=shape), tf.float16)


OPERATIONS = {
    "gelu": (gelu, HALVES),
    "gelu with erf": (lambda x: gelu(x, approximate=False), HALVES),
    "swish": (swish, HALVES),
    "hard_sigmoid": (hard_sigmoid, HALVES),
    "dropout": (lambda x: dropout(x, 0.5, seed=[1, 2]), HALVES),
    "histogram": (lambda x: histogram(x, np.float16([-1000, 0, 5]), True), HALVES),
    "fixed_width_bins": (lambda x: fixed_width_bins(x, 5), HALVES),
    "normalise_image": (lambda x: normalise_image(x, [1, 2, 3], [0.5, 2, 1e-3]), ends(2, 3, 4, 3)),
    "group_norm": (lambda x: group_norm(x, center=False, scale=False), ends(4, 6, 4)),
    "serialized_matmul": (
        lambda a, b: serialized_matmul(a, b, 2, "a_rows_b_columns"),
        *(ends(4, 4), ends(4, 4)),
    ),
    "embedding_lookup": (lambda x: embedding_lookup(x, [0, 1, 1, 3], None, 2), ends(6, 4)),
    "ctc_loss_v2": (lambda x: ctc_loss_v2(LABELS, x, *LENGTHS, 0), ends(3, 3, 4)),
    "sampled_softmax_loss": (
        lambda w, b, x: sampled_softmax_loss(w, b, [[1], [3]], x, 4, 8, 1, SAMPLE),
        *(ends(8, 3), ends(8), ends(2, 3)),
    ),
    "lstm": (
        lambda *tensors: recurrent.lstm(*tensors)[0],
        *(ends(4, 2, 3), usual(2, 2), usual(2, 2), usual(3, 8), usual(2, 8), usual(8)),
    ),
    "gru": (recurrent.gru, ends(4, 2, 3), usual(2, 2), usual(3, 6), usual(2, 6), usual(2, 6)),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_eager_executor_and_xla_agree(name):
    operation, *tensors = OPERATIONS[name]

    def with_gradients(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            result = operation(*tensors)
        gradients = tape.gradient(result, tensors, unconnected_gradients="zero")
        return [tf.convert_to_tensor(each) for each in (result, *gradients)]

    tensors = [tf.constant(tensor) for tensor in tensors]
    eager = [np.float64(each) for each in with_gradients(*tensors)]
    for jit_compile in (False, True):
        found = tf.function(with_gradients, jit_compile=jit_compile)(*tensors)
        for one, other in zip(found, eager, strict=True):
            # Infinities, and what is no number, are in the same places.
            np.testing.assert_allclose(np.float64(one), other, rtol=1e-2, atol=1e-2)
