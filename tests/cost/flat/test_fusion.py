"""What is computed once, and chains that are one vertex, on graphs that are built by hand."""

from dataclasses import replace

import pytest
from hlo_graphs import argument, graph, inner_parameter, loop, op, spec, variable

from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.fusion import deduplicate, fuse


def names(program):
    return [one.name for one in program.compute_sets]


def test_loops_that_start_from_the_same_value_keep_their_own():
    """Two loops fill an array from the same zeros; each fills its own memory."""
    body = graph(
        inner_parameter("array", 3), op("next", "negate", (3,), "array"), results=("next",)
    )
    condition = graph(inner_parameter("array", 3), op("more", "compare", (), "array"))
    whiles = [
        op(name, "while", (3,), "zeros", body=("condition", "body"), trip_count=2)
        for name in ("first", "second")
    ]
    whole = graph(
        op("zero", "constant", (), value=0.0),
        op("zeros", "broadcast", (3,), "zero"),
        *whiles,
        op("sum", "add", (3,), "first", "second"),
        functions={"condition": condition, "body": body},
    )
    program = fuse(deduplicate(flatten(whole)))
    filled = {one.name: one for one in program.compute_sets if one.family == "broadcast"}
    assert {name: one.reads for name, one in filled.items()} == {
        "first:0": ("float32(0.0)",),
        "second:0": ("float32(0.0)",),
    }
    assert program.compute_sets[-1].reads == ("first/body/carried:0", "second/body/carried:0")


def test_a_chain_of_elementwise_operations_is_one_vertex():
    #  x ── scale ── shift ── relu ──▶
    #        w ───────┘ (broadcast)
    program = fuse(
        flatten(
            graph(
                argument("x", 4, 8),
                variable("w", 8),
                op("scale", "multiply", (4, 8), "x", "x"),
                op("wide", "broadcast", (4, 8), "w"),
                op("shift", "add", (4, 8), "scale", "wide", layer="dense"),
                op("relu", "maximum", (4, 8), "shift", "x", layer="relu"),
            )
        )
    )
    (one,) = program.compute_sets
    assert [member.name for member in one.ops] == ["scale", "wide", "shift", "relu"]
    assert one.reads == ("x", "w")
    assert (one.family, one.layer, one.flops) == ("elementwise", "relu", 96)
    assert set(program.values) == {"x", "w", "relu"}


def halves(*ops, results=("sum",), repeat=1):
    """The sum of halves that were converted to float32, and what else; the sum runs so often."""
    program = flatten(
        graph(
            op("x", "parameter", (8, 32), dtype="float16", role="argument"),
            op("zero", "constant", (), value=0.0),
            op("wide", "convert", (8, 32), "x"),
            op("sum", "reduce", (32,), "wide", "zero", dimensions=(0,), operation="add"),
            *ops,
            results=results,
        )
    )
    sets = [replace(s, repeat=repeat) if s.name == "sum" else s for s in program.compute_sets]
    return fuse(replace(program, compute_sets=tuple(sets)))


def test_a_reduction_takes_halves_as_they_are():
    program = halves()
    (one,) = program.compute_sets
    assert [member.name for member in one.ops] == ["wide", "sum"]
    assert (one.family, one.reads) == ("reduce", ("x", "float32(0.0)"))
    assert one.operands == (spec(8, 32, dtype="float16"), spec())
    assert one.writes[0].spec == spec(32)
    # 256 halves and what they are added to; an addition for each.
    assert (one.bytes_read, one.bytes_written, one.flops) == (512 + 4, 128, 256)
    assert set(program.values) == {"x", "float32(0.0)", "sum"}


def squares(reducer="add", factor="wide"):
    """A reduction of halves that are float32 when they are multiplied."""
    return fuse(
        flatten(
            graph(
                op("x", "parameter", (8, 32), dtype="float16", role="argument"),
                argument("y", 8, 32),
                op("zero", "constant", (), value=0.0),
                op("wide", "convert", (8, 32), "x"),
                op("square", "multiply", (8, 32), "wide", factor),
                op("sum", "reduce", (32,), "square", "zero", dimensions=(0,), operation=reducer),
            )
        )
    )


def test_a_sum_squares_what_it_takes():
    (one,) = squares().compute_sets
    assert [member.name for member in one.ops] == ["wide", "square", "sum"]
    assert (one.family, one.reads) == ("reduce", ("x", "float32(0.0)"))
    # A multiplication and an addition for each.
    assert (one.bytes_read, one.flops) == (512 + 4, 2 * 256)


@pytest.mark.parametrize("arguments", [{"reducer": "maximum"}, {"factor": "y"}])
def test_other_products_stay_apart_from_what_reduces_them(arguments):
    assert names(squares(**arguments)) == ["square", "sum"]


def test_so_do_all_that_reduce_them():
    highest = op("max", "reduce", (8,), "wide", "zero", dimensions=(1,), operation="maximum")
    program = halves(highest, results=("sum", "max"))
    assert [(one.name, one.reads) for one in program.compute_sets] == [
        ("sum", ("x", "float32(0.0)")),
        ("max", ("x", "float32(0.0)")),
    ]


@pytest.mark.parametrize(
    "program",
    [
        halves(op("y", "tanh", (8, 32), "wide"), results=("sum", "y")),
        halves(results=("sum", "wide")),
        halves(repeat=2),
    ],
)
def test_a_conversion_that_others_need_too_stays(program):
    found = {one.name: one for one in program.compute_sets}
    assert found["sum"].reads == ("wide", "float32(0.0)")
    assert (found["wide"].family, found["wide"].reads) == ("cast", ("x",))


def test_other_conversions_before_a_reduction_stay():
    for dtype, wide in (("int32", "float32"), ("float32", "float16")):
        program = fuse(
            flatten(
                graph(
                    op("x", "parameter", (8,), dtype=dtype, role="argument"),
                    op("zero", "constant", (), dtype=wide, value=0.0),
                    op("wide", "convert", (8,), "x", dtype=wide),
                    op("sum", "reduce", (), "wide", "zero", dtype=wide, dimensions=(0,)),
                )
            )
        )
        assert names(program) == ["wide", "sum"]


def test_what_two_use_is_kept():
    program = fuse(
        flatten(
            graph(
                argument("x", 4),
                op("a", "exponential", (4,), "x"),
                op("b", "negate", (4,), "a"),
                op("c", "tanh", (4,), "a"),
                results=("b", "c"),
            )
        )
    )
    assert names(program) == ["a", "b", "c"]


def test_results_sizes_and_loops_end_a_chain():
    mixed = graph(
        argument("x", 4),
        op("a", "negate", (4,), "x"),
        op("b", "negate", (4,), "a"),  # returned too
        op("wide", "broadcast", (2, 4), "b"),  # larger
        results=("a", "wide"),
    )
    assert names(fuse(flatten(mixed))) == ["a", "b", "wide"]
    assert names(fuse(flatten(loop(5)))) == names(flatten(loop(5)))


def test_a_broadcast_joins_everyone_who_uses_it():
    # bias ── wide ─┬─ a ─┐
    #               └─ b ─┴─ c
    shared = flatten(
        graph(
            argument("x", 4, 8),
            variable("bias", 8),
            op("wide", "broadcast", (4, 8), "bias", dimensions=(1,)),
            op("a", "add", (4, 8), "x", "wide"),
            op("b", "multiply", (4, 8), "x", "wide"),
            op("c", "subtract", (4, 8), "a", "b"),
        )
    )
    (one,) = fuse(shared).compute_sets
    assert [member.name for member in one.ops] == ["wide", "a", "b", "c"]
    assert one.reads == ("bias", "x")


def test_a_broadcast_of_a_broadcast_is_one_view():
    # number ── column ── wide ── y
    program = fuse(
        flatten(
            graph(
                argument("x", 4, 8),
                variable("number"),
                op("column", "broadcast", (4,), "number", dimensions=()),
                op("wide", "broadcast", (4, 8), "column", dimensions=(0,)),
                op("y", "multiply", (4, 8), "x", "wide"),
            )
        )
    )
    (one,) = program.compute_sets
    assert [member.name for member in one.ops] == ["column", "wide", "y"]
    assert one.reads == ("number", "x")
    assert "column" not in program.values


def test_what_several_ask_for_is_computed_once():
    program = deduplicate(
        flatten(
            graph(
                variable("t", 1, result=0),
                op("one", "constant", (), value=1.0),
                op("uno", "constant", (), value=1.0),
                op("next", "add", (1,), "t", "one"),
                op("again", "add", (1,), "t", "uno"),
                op("power", "power", (1,), "next", "next"),
                op("power_again", "power", (1,), "again", "next"),
                op("draw", "random", (1,), "power"),
                op("another_draw", "random", (1,), "power_again"),
                results=("again", "draw", "another_draw"),
            )
        )
    )
    assert names(program) == ["next", "power", "draw", "another_draw"]
    assert program.compute_sets[3].reads == ("power",)
    assert program.results == ("next", "draw", "another_draw")
    assert program.updates == {"next": "t"}


@pytest.mark.parametrize("first", [True, False])
def test_a_broadcast_beside_the_values_of_a_reduction_is_part_of_it(first):
    """As the numbers of an axis of an arg max; the values themselves are written to memory."""
    reads = ("wide", "x") if first else ("x", "wide")
    attributes = {"dimensions": (1,), "operation": ("compare", "select")}
    arg_max = replace(op("best", "reduce", (4,), *reads, **attributes), outputs=(spec(4), spec(4)))
    whole = graph(
        argument("x", 4, 8),
        variable("numbers", 8),
        op("wide", "broadcast", (4, 8), "numbers", dimensions=(1,)),
        arg_max,
        results=("best:0", "best:1"),
    )
    program = fuse(flatten(whole))
    assert names(program) == (["wide", "best"] if first else ["best"])
    assert program.compute_sets[-1].family == "reduce"
    assert ("numbers" in program.compute_sets[-1].reads) != first
