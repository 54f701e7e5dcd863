"""What operations of TensorFlow cost on an IPU, from the traced function on."""

import pytest
import tensorflow as tf

from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.vertices.rejection import rejecting_draw
from ipu_keras.cost.vertices.sorts import sort_cost
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.target import TARGETS, Confidence
from ipu_keras.tracing.hlo import hlo_graph

GC200 = TARGETS["gc200"]
TILES, LAUNCH = GC200.num_tiles, 81


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
    assert (cost.exchange_cycles, cost.sync_cycles) == (0, 0)
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


LOGITS = tf.TensorSpec((32, 100), tf.float32)


@pytest.mark.parametrize("num_samples", [1, 5])
@pytest.mark.parametrize(
    "draw",
    [
        tf.random.categorical,
        lambda logits, count: tf.random.stateless_categorical(logits, count, seed=(1, 2)),
    ],
)
def test_categorical_draws(draw, num_samples):
    found = modelled(lambda logits: draw(logits, num_samples), LOGITS)
    one, cost = found["random"]
    assert one.ops[-1].attributes["num_drawn"] == 32 * num_samples * 100
    # 128 bytes on each of so many tiles, for one of its workers 3 vectors with two logarithms each.
    assert cost.tiles == 100 * num_samples
    assert cost.compute_cycles > 6 * (3 * (4 + 12 + 12)) + 3 * LAUNCH
    assert cost.vertex == "random categorical"


def test_uniform_draws_are_as_before():
    found = modelled(
        lambda x: x + tf.random.stateless_uniform((TILES, 64), seed=(1, 2)),
        tf.TensorSpec((TILES, 64), tf.float32),
    )
    _, cost = found["random"]
    # 6 vectors for each worker.
    assert cost.compute_cycles == 4 + 6 * (22 + 4 * 6) + LAUNCH
    assert cost.vertex == "random uniform"


@pytest.mark.parametrize(
    "shuffle",
    [tf.random.shuffle, lambda x: tf.random.experimental.stateless_shuffle(x, seed=(1, 2))],
)
@pytest.mark.parametrize("shape", [(32 * TILES,), (32, 64)])
def test_shuffles(shuffle, shape):
    found = modelled(shuffle, tf.TensorSpec(shape, tf.float32))
    _, cost = found["random"]
    # There are 32 keys on a tile. Tiles share columns and lookups, of which a worker has one.
    looked_up = 6 * (30 + 19 + 2) + LAUNCH if len(shape) > 1 else 0
    operands = [TensorSpec(shape[:1], dtype) for dtype in ("uint32", "float32")]
    ordered = sort_cost(GC200, operands=operands, axis=0).compute_cycles
    assert cost.compute_cycles == 4 + 6 * (22 + 4 * 3) + LAUNCH + ordered + looked_up
    assert cost.vertex == "random shuffle"
    # The key of a seed is a draw of its own where XLA lacks the shuffle.
    assert "elementwise" not in found


def test_memory_is_enough_for_either_branch():
    """One branch sorts twice, for long, the other one computes with 40 copies for less."""

    def slow(x):
        return tf.reduce_sum(tf.sort(-tf.sort(x)), axis=1)

    def wide(x):
        copies = tf.tile(x, [1, 40])
        return tf.reduce_sum(copies * tf.sqrt(copies + 1.0), axis=1)

    def either(x, decides):
        return tf.cond(decides, lambda: wide(x), lambda: slow(x))

    x = tf.TensorSpec((TILES, 256), tf.float32)
    models = [
        model_graph("step", hlo_graph(tf.function(each).get_concrete_function(x, *others)), GC200)
        for each, others in [(slow, ()), (wide, ()), (either, (tf.TensorSpec((), tf.bool),))]
    ]
    long, large, both = models
    assert long.compute_cycles > large.compute_cycles
    assert large.memory.max_tile_bytes > 3 * long.memory.max_tile_bytes
    assert both.compute_cycles == long.compute_cycles
    # Besides what the larger one needs, there is code of the other one, which fills up its last
    # memory element, and the vertices of its 2 * 36 steps have a state. The numbers that XLA sorts
    # along are the same 256 for all rows.
    more = both.memory.max_tile_bytes - large.memory.max_tile_bytes
    assert 0 < more < 72 * 32


@pytest.mark.parametrize(
    ("function", "distribution"),
    [
        (lambda a: tf.random.gamma((TILES,), a), "gamma"),
        (lambda a: tf.random.stateless_gamma((TILES, 32), [1, 2], a), "gamma"),
        (lambda a: tf.random.poisson((TILES,), a), "poisson"),
        (lambda a: tf.random.stateless_poisson((TILES, 32), [1, 2], a), "poisson"),
        (lambda a: tf.random.stateless_binomial((TILES, 32), [1, 2], a, 0.5), "binomial"),
        (
            lambda a: a + tf.random.stateless_truncated_normal((TILES, 32), [1, 2]),
            "truncated_normal",
        ),
    ],
)
def test_draws_that_reject_numbers(function, distribution):
    # 32 samples on each tile.
    _, cost = modelled(function, tf.TensorSpec((32,), tf.float32))["random"]
    alone = rejecting_draw(GC200, distribution=distribution, dtype="float32", num_elements=32)
    assert cost.vertex == f"random {distribution}"
    assert cost.compute_cycles == alone.cycles + LAUNCH
    assert cost.tiles == TILES
    assert cost.confidence is Confidence.GUESSED
    # The parameters of a tile's samples.
    assert (cost.exchange_bytes >= 128) == (distribution != "truncated_normal")
