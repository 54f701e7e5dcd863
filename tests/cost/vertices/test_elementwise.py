"""What elementwise operations cost: exchange, sync and launch around their vertices."""

from dataclasses import replace

from graph_costs import LAUNCH, SYNC, TILES, WAY, costs
from hlo_graphs import argument, op, variable

from ipu_keras.ir import TensorSpec
from ipu_keras.machine.target import Confidence


def test_an_addition_of_what_lies_elsewhere():
    # 1024 elements on each tile: the 1733 cycles of an addition, and y's 4096 bytes arrive
    # at 4 in a cycle. The tiles wait for each other before the exchange, and not behind it.
    found = costs(
        argument("x", TILES, 1024),
        argument("y", TILES, 1024),
        op("z", "add", (TILES, 1024), "x", "y"),
    )["z"]
    assert found.compute_cycles == 1733 + LAUNCH
    assert found.exchange_bytes == 4096
    assert found.exchange_cycles == 1024 + WAY
    assert found.sync_cycles == SYNC
    assert found.cycles == 1814 + 1181 + 126
    assert found.tiles == TILES


def test_what_a_result_is_made_of_lies_with_it():
    # exp(x) and log(x) both lie where x does: nothing moves.
    found = costs(
        argument("x", TILES, 64),
        op("a", "exponential", (TILES, 64), "x"),
        op("b", "log", (TILES, 64), "x"),
        op("c", "add", (TILES, 64), "a", "b"),
        results=("a", "b", "c"),
    )
    assert [cost.exchange_bytes for cost in found.values()] == [0, 0, 0]
    # So no tile waits for others: `exp`, 6 vectors for a worker, is its vertex and its launch.
    assert [cost.sync_cycles for cost in found.values()] == [0, 0, 0]
    assert found["a"].cycles == 20 + 6 * (33 + 6 * (6 + 4)) + LAUNCH


def test_each_tile_receives_a_small_operand_whole():
    # A bias of 10 floats for 64 elements on each tile, and one of 1000 of which it needs 64.
    for size, received in [(10, 40), (1000, 256)]:
        found = costs(
            argument("x", TILES * 64),
            variable("bias", size),
            op("wide", "broadcast", (TILES * 64,), "bias", dimensions=()),
            op("z", "add", (TILES * 64,), "x", "wide"),
        )["z"]
        assert found.exchange_bytes == received


def test_constants_are_in_the_code():
    found = costs(
        argument("x", 64),
        op("two", "constant", (), value=2.0),
        op("wide", "broadcast", (64,), "two", dimensions=()),
        op("z", "multiply", (64,), "x", "wide"),
    )["z"]
    assert (found.exchange_bytes, found.exchange_cycles, found.sync_cycles) == (0, 0, 0)


def test_a_number_is_in_the_code_of_what_makes_one_number_too():
    """As the reciprocal by which a mean is its sum; a variable beside it has to arrive."""
    cycles = {}
    for role in ("constant", "variable"):
        found = costs(
            argument("x"),
            op("two", "parameter", (), role=role),
            op("z", "multiply", (), "x", "two"),
        )["z"]
        cycles[role] = found.exchange_bytes, found.sync_cycles, found.compute_cycles
    assert cycles["constant"] == (0, 0, cycles["variable"][2])
    assert cycles["variable"] == (4, SYNC, cycles["variable"][2])


def test_only_what_is_no_number_arrives_before_it_is_filled_in():
    for role, received in (("constant", 0), ("variable", 4)):
        found = costs(
            op("number", "parameter", (), role=role),
            op("wide", "broadcast", (64,), "number", dimensions=()),
        )["wide"]
        assert found.exchange_bytes == received
        assert (found.sync_cycles > 0) == (role == "variable")


def test_an_operation_computes_in_its_own_dtype():
    """Not in that of the floats whose bits it takes."""
    same = costs(
        replace(argument("x", 64), outputs=(TensorSpec((64,), "uint32"),)),
        op("y", "not", (64,), "x", dtype="uint32"),
    )
    view = costs(
        argument("x", 64),
        op("bits", "bitcast-convert", (64,), "x", dtype="uint32"),
        op("y", "not", (64,), "bits", dtype="uint32"),
    )
    assert view["y"] == same["y"]
    assert view["y"].confidence is Confidence.GUESSED
