"""How tensors are spread, and which values lie as others do, on programs built by hand."""

from dataclasses import replace

import pytest
from hlo_graphs import argument, graph, inner_parameter, op, product, spec, variable

from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.fusion import deduplicate, fuse
from ipu_keras.cost.flat.in_place import share_memory
from ipu_keras.cost.flat.layouts import (
    allocated_values,
    bytes_per_tile,
    elements_per_tile,
    layouts_of,
    num_tiles_of,
)
from ipu_keras.cost.flat.normalizations import fuse_normalizations
from ipu_keras.ir import Op
from ipu_keras.machine.target import TARGETS

GC200 = TARGETS["gc200"]


@pytest.mark.parametrize(
    ("tensor", "tiles", "elements", "num_bytes"),
    [
        (spec(), 1, 1, 4),
        (spec(32), 1, 32, 128),
        (spec(33), 2, 17, 66),
        (spec(33, dtype="float16"), 1, 33, 66),
        (spec(1472, 64), 1472, 64, 256),
        (spec(0), 1, 0, 0),
    ],
)
def test_a_tile_has_128_bytes_or_more(tensor, tiles, elements, num_bytes):
    assert num_tiles_of(tensor, GC200) == tiles
    assert elements_per_tile(tensor, GC200) == elements
    assert bytes_per_tile(tensor, GC200) == num_bytes


def layouts(*ops, results=(), functions=None):
    return layouts_of(
        share_memory(fuse(flatten(graph(*ops, results=results, functions=functions))))
    )


def test_what_is_fed_kept_copied_or_gathered_is_allocated():
    program = flatten(
        graph(
            argument("x", 8),
            variable("w", 8),
            op("sum", "add", (8,), "x", "w"),
            op("all", "all-gather", (16,), "sum", num_replicas=2),
            op("double", "add", (16,), "all", "all"),
            results=("double",),
        )
    )
    assert allocated_values(program) == {"x", "w", "all"}
    arrived = replace(program.values["sum"], name="arrived", copy_of="sum")
    program = replace(program, values={**program.values, "arrived": arrived})
    assert allocated_values(program) == {"x", "w", "all", "arrived"}


def test_an_elementwise_result_lies_with_its_first_operand_of_that_size():
    found = layouts(
        variable("bias", 8),
        argument("x", 4, 8),
        op("a", "tanh", (4, 8), "x"),
        op("wide", "broadcast", (4, 8), "bias", dimensions=(1,)),
        op("b", "add", (4, 8), "wide", "a"),
        op("t", "transpose", (8, 4), "b", dimensions=(1, 0)),
        op("c", "exponential", (8, 4), "t"),
        results=("a", "b", "c"),
    )
    # What is transposed lies by itself.
    assert found == {"a": "x", "b": "x", "c": "t"}


def test_it_lies_with_what_it_overwrites():
    found = layouts(
        argument("x", 8), variable("w", 8, result=0), op("new", "subtract", (8,), "x", "w")
    )
    assert found == {"new": "w"}


def test_what_nobody_else_has_the_size_of_lies_by_itself():
    assert layouts(variable("w"), op("y", "broadcast", (8,), "w", dimensions=())) == {}


def test_what_is_updated_in_part_stays_where_it_is():
    found = layouts(
        argument("x", 64),
        argument("part", 8),
        argument("at"),
        op("y", "dynamic-update-slice", (64,), "x", "part", "at"),
        op("z", "scatter", (64,), "y", "at", "part"),
        op("part_of_z", "dynamic-slice", (8,), "z", "at"),
        results=("part_of_z",),
    )
    assert found == {"y": "x", "z": "x"}


def test_what_a_loop_carries_lies_as_its_first_value_did():
    """The array comes back reversed from each trip; it is copied to where it was."""
    inner = inner_parameter("i", 64)
    body = graph(inner, op("next", "reverse", (64,), "i", dimensions=(0,)))
    condition = graph(inner, op("more", "compare", (), "i"))
    loop = op("while", "while", (64,), "w", body=("condition", "body"), trip_count=3)
    program = flatten(
        graph(variable("w", 64), loop, functions={"condition": condition, "body": body})
    )
    found = layouts_of(share_memory(program))
    assert found == {"while:0": "w", "while/body/carried:0": "w"}


def test_a_normalized_tensor_stays_where_it_is():
    row = {"dimensions": (1,), "operation": "maximum", "layer": "softmax"}
    program = flatten(
        graph(
            argument("x", 64, 8),
            op("zero", "constant", (), value=0.0),
            op("t", "transpose", (8, 64), "x", dimensions=(1, 0)),
            op("max", "reduce", (8,), "t", "zero", **row),
            op("maxes", "broadcast", (8, 64), "max", dimensions=(0,), layer="softmax"),
            op("centred", "subtract", (8, 64), "t", "maxes", layer="softmax"),
            op("y", "exponential", (8, 64), "centred", layer="softmax"),
        )
    )
    program = fuse(fuse_normalizations(deduplicate(program)))
    assert [one.family for one in program.compute_sets] == ["transpose", "softmax", "softmax"]
    assert layouts_of(program) == {"y": "t"}


def adam(*after, state=("m", "v"), results=("nm", "nv", "u")):
    """One variable's update; its gradient comes from a product with the weight's input."""
    return layouts(
        argument("x", 64, 8),
        variable("w", 8, 8, result=2),
        variable(state[0], 8, 8, result=0),
        variable(state[1], 8, 8, result=1),
        product("y", (64, 8), "x", "w"),
        product("g", (8, 8), "x", "y", contracted=(0, 0)),
        op("nm", "add", (8, 8), state[0], "g"),
        op("gg", "multiply", (8, 8), "g", "g"),
        op("nv", "add", (8, 8), state[1], "gg"),
        op("s", "divide", (8, 8), "nm", "nv"),
        op("u", "subtract", (8, 8), "w", "s"),
        *after,
        results=results,
    )


def test_state_lies_where_its_weight_lies():
    """Only the gradient, which lies as a product leaves it, has to move."""
    found = adam()
    assert [found[name] for name in ("m", "v", "nm", "nv", "u")] == ["w"] * 5
    assert "g" not in found
    assert "w" not in found


def test_what_has_a_place_of_its_own_stays_there():
    """`m` is multiplied too: it lies as that product wants it."""
    found = adam(product("z", (64, 8), "y", "m"), results=("nm", "nv", "u", "z"))
    assert "m" not in found
    assert found["v"] == "w"


def test_state_of_what_nothing_wants_in_a_place_lies_together():
    found = layouts(
        argument("g", 64),
        variable("bias", 64, result=1),
        variable("m", 64, result=0),
        op("nm", "add", (64,), "m", "g"),
        op("u", "subtract", (64,), "bias", "nm"),
        results=("nm", "u"),
    )
    assert found == {"m": "bias", "nm": "bias", "u": "bias"}


def test_targets_lie_with_what_they_are_compared_with():
    made = [argument("x", 8, 4), variable("w", 4, 2), product("p", (8, 2), "x", "w")]
    targets = argument("y", 8, 2)
    away = op("d", "subtract", (8, 2), "y", "p")
    assert layouts(*made, targets, away) == {"y": "p", "d": "p"}
    # What another operation wants has a place of its own, and so has an input beside an input.
    again = op("sum", "reduce", (), "y", "zero", dimensions=(0, 1), operation="add")
    zero = op("zero", "constant", (), value=0.0)
    assert layouts(*made, targets, zero, away, again) == {"d": "p"}
    assert layouts(argument("p", 8, 2), targets, away) == {"d": "y"}


def test_sums_over_replicas_stay_where_their_operands_are():
    found = layouts(
        argument("g", 64),
        argument("h", 64),
        Op("sum", "all-reduce", (spec(64), spec(64)), inputs=("g", "h")),
        results=("sum:0", "sum:1"),
    )
    assert found == {"sum:0": "g", "sum:1": "h"}
