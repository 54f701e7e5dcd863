"""No program does more than its tiles can: what operations count, and what they cost."""

import dataclasses

import pytest
import tensorflow as tf

from ipu_keras.keras.model_profile import profile
from ipu_keras.machine.target import TARGETS


def few_tiles(name):
    """A target whose matrix units are what a large product waits for, and nothing else."""
    return dataclasses.replace(
        TARGETS[name],
        num_tiles=4,
        tile_bytes=1 << 34,
        host_bytes_per_second=1e15,
        host_latency_cycles=1,
    )


def gradients(function):
    def both(x, weights):
        with tf.GradientTape() as tape:
            tape.watch([x, weights])
            outputs = function(x, weights)
        return tape.gradient(outputs, [x, weights], tf.ones_like(outputs) * 2)

    return both


CASES = {
    "product": (tf.matmul, (512, 512), (512, 512)),
    # Most of what a window sees is padding.
    "padded": (lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), (16, 2, 2, 64), (9, 9, 64, 64)),
    "dilated": (
        lambda x, w: tf.nn.conv2d(x, w, 1, "SAME", dilations=4),
        (4, 7, 7, 64),
        (5, 5, 64, 64),
    ),
    "strided": (lambda x, w: tf.nn.conv2d(x, w, 3, "SAME"), (4, 14, 14, 64), (5, 5, 64, 64)),
    "grouped": (lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), (4, 14, 14, 64), (3, 3, 16, 64)),
    "transposed": (
        lambda x, w: tf.nn.conv2d_transpose(x, w, (4, 32, 32, 64), 8),
        (4, 4, 4, 64),
        (3, 3, 64, 64),
    ),
}


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32])
@pytest.mark.parametrize("partials", ["half", "float"])
@pytest.mark.parametrize("target", ["gc2", "gc200"])
@pytest.mark.parametrize("case", CASES)
def test_nothing_exceeds_the_peak(case, target, partials, dtype):
    function, *shapes = CASES[case]
    options = {} if dtype == tf.float32 and partials == "half" else {"partialsType": partials}
    found = profile(
        gradients(function),
        *(tf.TensorSpec(shape, dtype) for shape in shapes),
        target=few_tiles(target),
        convolution_options=options,
        matmul_options=options,
    )
    assert 0 < found.utilisation <= 1
    peak = found.peak_flops / found.model.target.clock_hz
    assert all(row.flops <= peak * row.cycles for row in found.rows)
