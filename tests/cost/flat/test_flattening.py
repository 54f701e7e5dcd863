"""Graphs written out, on graphs that are built by hand."""

import pytest
from hlo_graphs import argument, graph, inner_parameter, loop, op, spec, variable

from ipu_keras.cost.flat.flattening import flatten, flops_of
from ipu_keras.ir import Op


def names(program):
    return [one.name for one in program.compute_sets]


def test_what_only_renames_disappears():
    program = flatten(
        graph(
            argument("x", 4, 6),
            op("flat", "reshape", (24,), "x"),
            op("double", "add", (24,), "flat", "flat"),
        )
    )
    (double,) = program.compute_sets
    assert double.reads == ("x", "x")
    assert double.writes[0].spec == spec(24)
    assert program.results == ("double",)
    assert program.values["x"].role == "argument"


def test_results_of_several():
    """The second result of a sort is named with its position."""
    sort = Op("sort", "sort", (spec(8), spec(8, dtype="int32")), inputs=("x", "x"))
    program = flatten(graph(argument("x", 8), sort, op("y", "negate", (8,), "sort:1")))
    assert [value.name for value in program.compute_sets[0].writes] == ["sort:0", "sort:1"]
    assert program.compute_sets[1].reads == ("sort:1",)


def test_a_call_is_written_out():
    inner = graph(
        inner_parameter("a", 3),
        inner_parameter("b", 3, first_leaf=1),
        op("c", "add", (3,), "b", "a"),
    )
    call = op("call", "call", (3,), "x", "y", body=("inner",))
    program = flatten(graph(argument("x", 3), argument("y", 3), call, functions={"inner": inner}))
    (add,) = program.compute_sets
    assert add.name == "call/c"
    assert add.reads == ("y", "x")
    assert program.results == ("call/c",)


def test_a_loop_repeats_its_body():
    """`x` is carried: copied to where the loop has it, and there after each trip."""
    program = flatten(loop(5))
    assert {one.name: (one.reads, one.repeat) for one in program.compute_sets} == {
        "while:0": (("x",), 1),
        "while/body/next": (("while:0", "w"), 5),  # the loop leaves `w` as it is
        "while/body/carried:0": (("while/body/next",), 5),
        "y": (("while/body/carried:0",), 1),
    }
    assert program.in_place == {"while/body/carried:0": "while:0"}
    assert "while:1" not in program.values
    assert program.num_unknown_loops == 0


@pytest.mark.parametrize(("bound", "trips"), [(None, 1), (9, 9)])
def test_a_loop_of_unknown_length_counts_with_its_bound(bound, trips):
    program = flatten(loop(None, max_trip_count=bound))
    assert [one.repeat for one in program.compute_sets] == [1, trips, trips, trips, 1]
    assert program.num_unknown_loops == 1


def test_empty_values_take_nothing():
    program = flatten(
        graph(
            argument("x", 4),
            op("none", "slice", (0,), "x"),
            op("still", "negate", (0,), "none"),
            op("y", "negate", (4,), "x"),
            results=("still", "y"),
        )
    )
    assert names(program) == ["y"]
    assert program.results == ("still", "y")
    assert program.values["still"].spec.nbytes == 0


def test_sizes_of_dimensions_are_names_and_numbers():
    """Of what XLA pads to a size that it knows."""
    program = flatten(
        graph(
            argument("x", 4),
            argument("size"),
            op("bounded", "set-dimension-size", (4,), "x", "size"),
            op("back", "get-dimension-size", (), "bounded", dtype="int32"),
            op("y", "negate", (4,), "bounded"),
            op("z", "negate", (), "back", dtype="int32"),
            results=("y", "z"),
        )
    )
    assert [one.reads for one in program.compute_sets] == [("x",), ("back",)]
    back = program.values["back"]
    assert (back.role, back.spec.shape, back.spec.dtype) == ("constant", (), "int32")


def branches(**options):
    """A conditional between one operation and two of the same size."""
    cheap = graph(inner_parameter("a", 4), op("n", "negate", (4,), "a"))
    costly = graph(inner_parameter("b", 4), op("m", "tanh", (4,), "b"), op("o", "tanh", (4,), "m"))
    either = op(
        "if", "conditional", (4,), "p", "x", "x", body=("cheap", "costly"), num_branch_inputs=(1, 1)
    )
    return flatten(
        graph(
            op("p", "parameter", (), dtype="bool", role="argument"),
            argument("x", 4),
            either,
            functions={"cheap": cheap, "costly": costly},
        ),
        **options,
    )


def test_of_branches_the_one_with_the_most_work_counts():
    program = branches()
    # The other one comes first, and takes memory alone; at its end, it has its result.
    assert [(one.name, one.repeat) for one in program.compute_sets] == [
        ("if/branch0/n", 0),
        ("if/branch0/end", 0),
        ("if/branch1/m", 1),
        ("if/branch1/o", 1),
    ]
    assert program.compute_sets[1].reads == ("if/branch0/n",)
    assert program.compute_sets[1].writes == ()
    assert program.results == ("if/branch1/o",)
    assert flops_of(program) == 8


def test_how_much_work_a_branch_is_can_be_said():
    seen = []

    def work(branch):
        seen.append((names(branch), branch.results))
        return -len(branch.compute_sets)

    assert names(branches(work_of_branch=work)) == [
        "if/branch1/m",
        "if/branch1/o",
        "if/branch1/end",
        "if/branch0/n",
    ]
    assert seen == [
        (["if/branch0/n"], ("if/branch0/n",)),
        (["if/branch1/m", "if/branch1/o"], ("if/branch1/o",)),
    ]


def test_a_loop_in_a_branch_that_others_take_longer_than_runs_no_time():
    inner = graph(inner_parameter("i", 4), op("next", "negate", (4,), "i"))
    condition = graph(inner_parameter("i", 4), op("more", "compare", (), "i"))
    looped = op("while", "while", (4,), "a", body=("condition", "body"), trip_count=9)
    first = graph(inner_parameter("a", 4), looped)
    second = graph(inner_parameter("b", 4))
    either = op(
        "if", "conditional", (4,), "p", "x", "x", body=("first", "second"), num_branch_inputs=(1, 1)
    )
    functions = {"first": first, "second": second, "condition": condition, "body": inner}
    program = flatten(
        graph(
            op("p", "parameter", (), dtype="bool", role="argument"),
            argument("x", 4),
            either,
            functions=functions,
        ),
        work_of_branch=lambda branch: -len(branch.compute_sets),
    )
    # The second passes its argument on.
    assert program.results == ("x",)
    assert {one.repeat for one in program.compute_sets} == {0}
    assert program.compute_sets[-1].reads == ("if/branch0/while/body/carried:0",)


def test_a_new_value_of_a_variable_is_written_in_place_by_either_branch():
    once = graph(inner_parameter("a", 4), op("n", "negate", (4,), "a"))
    twice = graph(inner_parameter("b", 4), op("m", "tanh", (4,), "b"), op("o", "tanh", (4,), "m"))
    either = op(
        "if", "conditional", (4,), "p", "w", "w", body=("once", "twice"), num_branch_inputs=(1, 1)
    )
    program = flatten(
        graph(
            op("p", "parameter", (), dtype="bool", role="argument"),
            variable("w", 4, result=0),
            either,
            functions={"once": once, "twice": twice},
        )
    )
    assert program.updates == {"if/branch1/o": "w"}
    assert program.in_place == {"if/branch0/n": "w"}


def test_new_values_of_variables_are_written_in_place():
    program = flatten(
        graph(
            variable("w", 4, result=1),
            variable("unchanged", 4, result=0),
            op("next", "add", (4,), "w", "w"),
            results=("unchanged", "next"),
        )
    )
    assert program.updates == {"next": "w"}


def test_what_leaves_order_and_type_moves_nothing():
    program = flatten(
        graph(
            argument("x", 3, 1, 5),
            op("float", "convert", (3, 1, 5), "x"),
            op("same", "transpose", (1, 3, 5), "float", dimensions=(1, 0, 2)),
            op("other", "transpose", (5, 1, 3), "same", dimensions=(2, 0, 1)),
        )
    )
    assert names(program) == ["other"]
    assert program.compute_sets[0].operands == (spec(1, 3, 5),)


def test_a_broadcast_to_as_many_elements_moves_nothing():
    """As XLA writes one to a shape of as many axes, behind a sum that has kept its axis."""
    program = flatten(
        graph(
            argument("x", 3, 5),
            op("same", "broadcast", (3, 1, 5, 1), "x", dimensions=(0, 2)),
            op("turned", "broadcast", (5, 1, 3), "x", dimensions=(2, 0)),
            op("wide", "broadcast", (3, 5, 2), "x", dimensions=(0, 1)),
            results=("same", "turned", "wide"),
        )
    )
    assert names(program) == ["turned", "wide"]
    assert program.results == ("x", "turned", "wide")


def test_parts_that_are_the_whole_move_nothing():
    program = flatten(
        graph(
            argument("x", 1, 3, 5),
            op("zero", "constant", (), value=0.0),
            op("part", "slice", (1, 3, 5), "x", start=(0, 0, 0)),
            op("alone", "concatenate", (1, 3, 5), "part", dimensions=(0,)),
            op("sum", "reduce", (3, 5), "alone", "zero", dimensions=(0,), operation="add"),
            op("padded", "pad", (3, 5), "sum", "zero", edge_padding_low=(0, 0)),
            op("moved", "pad", (3, 5), "sum", "zero", edge_padding_low=(1, 0)),
            op("rows", "slice", (2, 5), "sum", start=(0, 0)),
            op("short", "reduce", (5,), "sum", "zero", dimensions=(0,), operation="add"),
            results=("padded", "moved", "rows", "short"),
        )
    )
    assert names(program) == ["moved", "rows", "short"]
    assert program.results == ("x", "moved", "rows", "short")
