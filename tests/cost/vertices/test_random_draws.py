"""What random draws cost."""

from graph_costs import GC200, LAUNCH, TILES, costs
from hlo_graphs import argument, op

from ipu_keras.cost.tile import vertices
from ipu_keras.cost.vertices.sorts import sort_cost
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.target import Confidence


def test_a_categorical_draw_draws_for_each_class():
    # 6 samples of 1000 classes for each of 1472 rows: 6000 numbers on each tile.
    shape = (TILES, 1000)
    found = costs(
        argument("logits", *shape),
        op("y", "random", (TILES, 6), "logits", distribution="categorical", num_drawn=TILES * 6000),
    )["y"]
    # 500 vectors for each worker.
    drawn = 4 + 6 * (22 + 4 * 500)
    # -log(-log(u)) + logit: 12 + 1 + 12 + 1 cycles for each vector, two loads in one, a store.
    noise = 11 + 6 * (29 + (26 + 2) * 500)
    # The largest is found as any reduction by a computation of its own finds it.
    largest = costs(
        argument("x", TILES, 6, 1000),
        op("zero", "constant", (), value=0.0),
        op("y", "reduce", (TILES, 6), "x", "zero", dimensions=(2,), operation="custom"),
    )["y"]
    assert largest.compute_cycles > 6 * 250 * 14
    assert found.compute_cycles == drawn + noise + 2 * LAUNCH + largest.compute_cycles
    # The logits of a tile's numbers come from where they are; the numbers are there meanwhile.
    assert found.exchange_bytes == 24000
    assert found.temporary_bytes == 2 * 24000
    assert found.vertex == "random categorical"
    assert found.confidence is Confidence.GUESSED


def test_a_categorical_draw_of_what_is_known():
    """The logits are constants that XLA made part of the draw."""
    found = costs(
        argument("x"), op("y", "random", (4, 8), "x", distribution="categorical", num_drawn=32 * 10)
    )["y"]
    # 320 numbers are on 10 tiles, 6 on each worker of them.
    assert found.tiles == 10
    assert found.compute_cycles > 4 + 6 * (22 + 4 * 3) + LAUNCH


def test_a_draw_that_rejects_numbers_gets_its_parameters():
    # 64 samples on each tile, for one rate, or one rate for each.
    def drawn(*rates):
        return costs(argument("rates", *rates), op("y", "RandomPoissonV2", (TILES, 64), "rates"))

    for rates, received in [((), 4), ((TILES, 64), 256)]:
        found = drawn(*rates)["y"]
        # 11 samples for a worker, each 97 cycles.
        assert found.compute_cycles == 4 + 6 * (22 + 97 * 11) + LAUNCH
        assert found.exchange_bytes == received
        assert (found.vertex, found.tiles) == ("random poisson", TILES)
        assert found.confidence is Confidence.GUESSED


def shuffled(*shape, kind="random", **attributes):
    return costs(argument("x", *shape), op("y", kind, shape, "x", **attributes))["y"]


def test_a_shuffle_draws_sorts_and_looks_up():
    # 32 keys on each tile, 6 for a worker: 3 vectors.
    rows = 32 * TILES
    drawn = vertices.random_uniform(GC200, dtype="uint32", num_elements=32).cycles
    assert drawn == 4 + 6 * (22 + 4 * 3)
    keys, numbers = TensorSpec((rows,), "uint32"), TensorSpec((rows,), "float32")
    ordered = sort_cost(GC200, operands=[keys, numbers], axis=0)
    for found in (shuffled(rows, distribution="shuffle"), shuffled(rows, kind="StatelessShuffle")):
        assert found.compute_cycles == drawn + LAUNCH + ordered.compute_cycles
        assert found.exchange_cycles == ordered.exchange_cycles
        # The keys and the numbers that go with them.
        assert found.temporary_bytes == 2 * 4 * 32 + ordered.exchange_bytes
        assert found.sync_cycles == ordered.sync_cycles  # only the sort takes what others have
        assert found.vertex == "random shuffle"
        assert found.confidence is Confidence.GUESSED
    # Of rows of 1472, each tile looks its own column up, for which it needs all indices.
    wide = shuffled(rows, TILES, distribution="shuffle")
    look = vertices.multi_slice(GC200, dtype="float32", num_indices=rows, row_elements=1)
    assert wide.compute_cycles == drawn + ordered.compute_cycles + look.cycles + 2 * LAUNCH
    assert wide.exchange_bytes == 4 * rows
