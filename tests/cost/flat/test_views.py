"""Which values are views of others, and what reads them then."""

from dataclasses import replace

import pytest
from hlo_graphs import argument, graph, op, product, variable

from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.fusion import fuse
from ipu_keras.cost.flat.in_place import share_memory
from ipu_keras.cost.flat.layouts import layouts_of
from ipu_keras.cost.flat.views import with_views
from ipu_keras.cost.passes import model_graph
from ipu_keras.machine.target import TARGETS

SHAPE = (8, 4)
TRANSPOSED = {"dimensions": (1, 0)}
PART = {"start": (0, 0), "limit": (4, 4), "stride": (1, 1)}
ROWS = (4, 4)


def viewed(*ops, results=()):
    return with_views(flatten(graph(argument("x", *SHAPE), *ops, results=results)))


def reads(program):
    """What each compute set reads; views in parentheses."""
    return {
        one.name: [f"({name})" if k in one.views else name for k, name in enumerate(one.reads)]
        for one in program.compute_sets
    }


def transpose(name="t", source="x", shape=SHAPE):
    return op(name, "transpose", shape[::-1], source, **TRANSPOSED)


def test_a_product_takes_its_operand_in_another_order():
    program = viewed(
        argument("w", 8, 6), transpose(), product("y", (4, 6), "t", "w", contracted=(1, 0))
    )
    assert reads(program) == {"y": ["(x)", "w"]}
    assert "t" not in program.values


@pytest.mark.parametrize(
    ("view", "reader", "expected"),
    [
        (transpose(), op("y", "tanh", (4, 8), "t"), ["(x)"]),
        (transpose(), op("y", "add", (4, 8), "t", "t"), ["(x)"]),
        (transpose(), op("y", "convert", (4, 8), "t", dtype="float16"), ["(x)"]),
        (op("t", "slice", ROWS, "x", **PART), op("y", "tanh", ROWS, "t"), ["(x)"]),
        (
            op("t", "concatenate", (16, 4), "x", "x", dimensions=(0,)),
            op("y", "reduce", (4,), "t", operation="add", dimensions=(0,)),
            ["(x)"],
        ),
        # A copy that is needed takes what is behind the view.
        (transpose(), op("y", "reverse", (4, 8), "t", dimensions=(0,)), ["(x)"]),
        (transpose(), op("y", "slice", (2, 8), "t", start=(0, 0), limit=(2, 8)), ["(x)"]),
    ],
)
def test_views(view, reader, expected):
    assert reads(viewed(view, reader)) == {"y": expected}


@pytest.mark.parametrize(
    "reader",
    [
        op("y", "sort", (4, 8), "t", dimensions=(0,)),
        op("y", "dynamic-slice", (1, 8), "t", "i", "i", slice_sizes=(1, 8)),
        op("y", "gather", (4, 8), "t", "i"),
    ],
)
def test_who_needs_a_tensor_of_its_own(reader):
    program = viewed(op("i", "constant", (), value=0), transpose(), reader)
    assert reads(program)["t"] == ["x"]
    assert reads(program)["y"][0] == "t"


def test_one_reader_that_needs_a_tensor_is_enough():
    program = viewed(
        transpose(),
        op("y", "tanh", (4, 8), "t"),
        op("z", "sort", (4, 8), "t", dimensions=(0,)),
        results=("y", "z"),
    )
    assert reads(program) == {"t": ["x"], "y": ["t"], "z": ["t"]}


def test_results_are_no_views():
    program = viewed(transpose(), op("y", "tanh", (4, 8), "t"), results=("t", "y"))
    assert reads(program) == {"t": ["x"], "y": ["t"]}


def test_views_of_views():
    program = viewed(
        transpose(),
        op("part", "slice", (2, 8), "t", start=(0, 0), limit=(2, 8), stride=(1, 1)),
        op("y", "tanh", (2, 8), "part"),
    )
    assert reads(program) == {"y": ["(x)"]}


def test_a_chain_meets_its_operands_in_one_order():
    """`a` and `y` would be one vertex without the view between them."""
    program = fuse(
        viewed(
            op("a", "negate", SHAPE, "x"),
            transpose(source="a"),
            op("y", "tanh", (4, 8), "t"),
            op("z", "negate", (4, 8), "y"),
        )
    )
    assert reads(program) == {"a": ["x"], "z": ["(a)"]}


def test_a_chain_that_reads_a_value_in_two_orders():
    square = op("x", "parameter", (4, 4), role="argument")
    program = fuse(
        with_views(
            flatten(
                graph(
                    square,
                    op("a", "negate", (4, 4), "x"),
                    transpose(shape=(4, 4)),
                    op("y", "add", (4, 4), "a", "t"),
                )
            )
        )
    )
    assert reads(program) == {"y": ["x", "(x)"]}
    # Nothing in one order is written over what is read in another.
    assert share_memory(program).in_place == {"y": "x"}


def test_where_a_result_lies():
    """Like the first operand, but not like what lies as that did before it was seen otherwise."""
    program = viewed(variable("w", 4, 8), transpose(), op("y", "add", (4, 8), "t", "w"))
    assert layouts_of(program) == {}
    assert layouts_of(viewed(op("y", "tanh", SHAPE, "x"))) == {"y": "x"}


def cost(*ops, results=()):
    """Cycles of exchange and of all, of the last compute set and of the program."""
    step = graph(argument("x", 512, 256), *ops, results=results)
    model = model_graph("step", step, TARGETS["gc200"])
    return model.costs[-1], sum(each.cycles for each in model.costs)


def test_an_operand_alone_arrives_nowhere():
    plain, _ = cost(op("y", "tanh", (512, 256), "x"))
    turned, whole = cost(transpose(shape=(512, 256)), op("y", "tanh", (256, 512), "t"))
    assert whole == turned.cycles == plain.cycles
    assert turned.exchange_bytes == 0


def test_what_lies_in_another_order_arrives():
    """512 x 256 floats on 1,472 tiles are 357 bytes each."""
    turned, _ = cost(
        variable("w", 256, 512),
        transpose(shape=(512, 256)),
        op("y", "add", (256, 512), "w", "t"),
    )
    assert turned.exchange_bytes == 90 * 4


@pytest.mark.parametrize(("count", "expected"), [(2, 90 * 4), (3, 90 * 4)])
def test_parts_that_make_up_a_result(count, expected):
    """However many there are, a tile gets the elements that it has of the result."""
    parts = ["x"] * count
    given, _ = cost(
        op("t", "concatenate", (512 * count, 256), *parts, dimensions=(0,)),
        op("v", "slice", (512, 256), "t", start=(0, 0), limit=(512, 256), stride=(1, 1)),
        variable("w", 512, 256),
        op("y", "add", (512, 256), "w", "v"),
    )
    assert given.exchange_bytes == expected


def in_parts(step, backward):
    """A pipeline's stage, whose backward part has the compute sets of those names."""
    program = flatten(step)
    sets = [replace(one, stage=0, backward=one.name in backward) for one in program.compute_sets]
    return with_views(replace(program, compute_sets=tuple(sets)))


def part(name, first):
    limit = {"start": (first, 0), "limit": (first + 4, 4), "stride": (1, 1)}
    return op(name, "slice", ROWS, "a", **limit)


def test_a_part_is_kept_for_another_part_of_a_pipeline():
    """Not all of `a` for half of it, but all of it for both halves, in whichever order."""
    half = graph(
        argument("x", *SHAPE),
        op("a", "negate", SHAPE, "x"),
        part("low", 0),
        op("t", "transpose", ROWS, "low", **TRANSPOSED),
        op("y", "tanh", ROWS, "t"),
        op("dy", "negate", ROWS, "t"),
        results=("y", "dy"),
    )
    assert reads(in_parts(half, {"dy"})) == {
        "a": ["x"],
        "low": ["a"],
        "y": ["(low)"],
        "dy": ["(low)"],
    }
    both = graph(
        *half.ops,
        part("high", 4),
        op("z", "tanh", ROWS, "high"),
        op("dz", "negate", ROWS, "high"),
        results=("y", "z", "dy", "dz"),
    )
    assert reads(in_parts(both, {"dy", "dz"})) == {
        "a": ["x"],
        **{name: ["(a)"] for name in ("y", "z", "dy", "dz")},
    }


def test_the_weight_update_takes_no_views():
    program = flatten(
        graph(argument("x", *SHAPE), transpose(), op("y", "tanh", (4, 8), "t"), results=("y",))
    )
    first, last = program.compute_sets
    program = replace(program, compute_sets=(first, replace(last, weight_update=True)))
    assert reads(with_views(program)) == {"t": ["x"], "y": ["t"]}
