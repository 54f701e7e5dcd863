"""What operations of TensorFlow cost on an IPU, from the traced function on."""

import pytest
import tensorflow as tf

from ipu_keras.compiler.modelling import model_graph
from ipu_keras.target import TARGETS, Confidence
from ipu_keras.tracing.hlo import hlo_graph

GC200 = TARGETS["gc200"]
TILES, LAUNCH, SYNC = GC200.num_tiles, 81, 126


def modelled(function, *specs):
    """The compute sets and costs of a function's model, by family."""
    traced = tf.function(function, autograph=False).get_concrete_function(*specs)
    model = model_graph("step", hlo_graph(traced), GC200)
    pairs = zip(model.program.compute_sets, model.costs, strict=True)
    return {one.family: (one, cost) for one, cost in pairs}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize(
    ("function", "operation"), [(tf.cumsum, "add"), (tf.math.cumprod, "multiply")]
)
def test_cumulative_sums_and_products(function, operation, exclusive, reverse):
    # A row of 64 floats for each tile: 11 to each worker, and then added to each.
    found = modelled(
        lambda x: function(x, axis=1, exclusive=exclusive, reverse=reverse),
        tf.TensorSpec((TILES, 64), tf.float32),
    )
    one, cost = found["scan"]
    assert "pooling" not in found
    assert one.flops == TILES * 64
    assert cost.vertex == f"scan {operation} float32"
    assert cost.compute_cycles == 11 + 6 * (33 + 11 * 3) + 11 + 6 * (29 + 6 * 3) + 2 * LAUNCH
    assert (cost.exchange_cycles, cost.sync_cycles) == (0, SYNC)
    assert cost.confidence is Confidence.GUESSED


def test_a_cumulative_logarithm_of_sums():
    one, cost = modelled(
        lambda x: tf.math.cumulative_logsumexp(x, axis=1), tf.TensorSpec((TILES, 64), tf.float32)
    )["scan"]
    # An exponential and a logarithm for each element at least, 64 for each of six workers.
    assert one.ops[-1].attributes["operation"] == "custom"
    assert cost.compute_cycles > 6 * 11 * (6 + 13)
    assert cost.vertex == "scan custom float32"


def test_pooling_is_no_scan():
    found = modelled(
        lambda x: tf.nn.max_pool1d(x, 8, 1, "SAME"), tf.TensorSpec((4, 64, 16), tf.float32)
    )
    assert "pooling" in found
    assert "scan" not in found
