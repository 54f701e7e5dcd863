"""Which loops and branches compute sets are in, whatever they are called."""

from dataclasses import replace

import pytest
from hlo_graphs import argument, graph, inner_parameter, loop, op

from ipu_keras.cost.flat.compute_sets import Branch, ComputeSet, LoopPart
from ipu_keras.cost.flat.control_flow import (
    are_alternatives,
    bodies_of,
    innermost_body,
    is_in_loop,
    outermost_loop,
)
from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.fusion import deduplicate, fuse
from ipu_keras.cost.flat.in_place import share_memory
from ipu_keras.cost.flat.liveness import lifetimes, schedule


def one(*, name="one", repeat=1, loops=(), branches=()):
    return ComputeSet(
        name=name,
        family="elementwise",
        ops=(),
        operands=(),
        reads=(),
        writes=(),
        repeat=repeat,
        loops=loops,
        branches=branches,
    )


OUTER, INNER = LoopPart("outer"), LoopPart("inner")
CONDITION = LoopPart("inner", is_condition=True)


@pytest.mark.parametrize(
    ("loops", "bodies", "innermost", "outermost"),
    [
        ((), (), None, None),
        ((OUTER,), ("outer",), "outer", "outer"),
        ((OUTER, INNER), ("outer", "inner"), "inner", "outer"),
        # A condition belongs to its loop, but runs once more than the body.
        ((OUTER, CONDITION), ("outer",), "outer", "outer"),
        ((CONDITION,), (), None, "inner"),
        ((CONDITION, OUTER), ("outer",), "outer", "inner"),
    ],
)
def test_loops(loops, bodies, innermost, outermost):
    found = one(loops=loops)
    assert bodies_of(found) == bodies
    assert innermost_body(found) == innermost
    assert outermost_loop(found) == outermost
    assert is_in_loop(found) == bool(loops)


def test_what_is_repeated_is_in_a_loop():
    assert is_in_loop(one(repeat=2))
    assert not is_in_loop(one(name="while/body/condition/x"))


@pytest.mark.parametrize(
    ("branches", "others", "expected"),
    [
        ([("if", 0)], [("if", 1)], True),
        ([("if", 0)], [("if", 0)], False),
        ([("if", 0)], [("if_1", 1)], False),
        ([("if", 0), ("inner", 1)], [("if", 10)], True),
        ([("if", 0), ("inner", 1)], [("if", 0), ("inner", 0)], True),
        ([("if", 0), ("inner", 1)], [("if", 0)], False),
        ([("if", 0)], [], False),
        ([], [], False),
    ],
)
def test_alternatives(branches, others, expected):
    first, second = (
        one(branches=tuple(Branch(*branch) for branch in each)) for each in (branches, others)
    )
    assert are_alternatives(first, second) is are_alternatives(second, first) is expected


def test_names_say_nothing():
    first, second = one(name="if/branch0/x"), one(name="if/branch1/x")
    assert not are_alternatives(first, second)


def places(program):
    """By name, the loops and branches of each compute set."""
    return {
        one.name: (
            [part.loop + "?" * part.is_condition for part in one.loops],
            [(branch.conditional, branch.index) for branch in one.branches],
        )
        for one in program.compute_sets
    }


def test_a_graph_that_is_written_out_has_them():
    assert places(flatten(loop(5))) == {
        "while:0": ([], []),
        "while/body/next": (["while"], []),
        "while/body/carried:0": (["while"], []),
        "y": ([], []),
    }
    # A condition decides where nobody can count.
    unknown = places(flatten(loop(None)))
    assert unknown == {**places(flatten(loop(5))), "while/condition/more": (["while?"], [])}


def loop_of_branches():
    """In a loop, one of two functions of which the second has a loop itself; then a negative."""
    inner = graph(inner_parameter("c", 4), op("e", "tanh", (4,), "c"))
    while_ = {"trip_count": 3, "body": ("condition", "inner")}
    functions = {
        "condition": graph(inner_parameter("i", 4), op("more", "compare", (), "i")),
        "inner": inner,
        "first": graph(inner_parameter("a", 4), op("n", "negate", (4,), "a")),
        "second": graph(inner_parameter("b", 4), op("loop", "while", (4,), "b", **while_)),
        "body": graph(
            inner_parameter("x", 4),
            op("p", "compare", (), "x"),
            op(
                "if",
                "conditional",
                (4,),
                "p",
                "x",
                "x",
                body=("first", "second"),
                num_branch_inputs=(1, 1),
            ),
        ),
    }
    whole = op("loop", "while", (4,), "x", body=("condition", "body"), trip_count=2)
    return graph(argument("x", 4), whole, op("y", "negate", (4,), "loop"), functions=functions)


def test_loops_in_branches_in_loops():
    whole, within = ["loop"], [("loop/body/if", 1)]
    inside = [*whole, "loop/body/if/branch1/loop"]
    assert places(flatten(loop_of_branches())) == {
        "loop:0": ([], []),
        "loop/body/p": (whole, []),
        "loop/body/if/branch0/n": (whole, [("loop/body/if", 0)]),
        "loop/body/if/branch0/end": (whole, [("loop/body/if", 0)]),
        "loop/body/if/branch1/loop:0": (whole, within),
        "loop/body/if/branch1/loop/body/e": (inside, within),
        "loop/body/if/branch1/loop/body/carried:0": (inside, within),
        "loop/body/carried:0": (whole, []),
        "y": ([], []),
    }


def test_passes_keep_them():
    program = schedule(fuse(deduplicate(flatten(loop_of_branches()))))
    before = places(flatten(loop_of_branches()))
    assert places(program).items() <= before.items()
    assert places(share_memory(program)).items() <= before.items()


def renamed(step, names):
    """The step with other names of operations at its top."""
    ops = tuple(
        replace(
            each,
            name=names.get(each.name, each.name),
            inputs=tuple(names.get(value, value) for value in each.inputs),
        )
        for each in step.ops
    )
    results = tuple(names.get(value, value) for value in step.results)
    return replace(step, ops=ops, results=results)


def test_names_that_read_like_loops_and_branches_are_names():
    """`a`, which three others read, is overwritten by the last of these whatever it is called."""
    step = graph(
        argument("x", 64),
        op("a", "reverse", (64,), "x", dimensions=(0,)),
        op("b", "sort", (64,), "a", dimensions=(0,)),
        op("c", "tanh", (64,), "a"),
        op("d", "sort", (64,), "c", dimensions=(0,)),
        results=("b", "d"),
    )
    names = {
        "a": "if/branch0/a",
        "b": "while/body/b",
        "c": "if/branch1/while/condition/c",
        "d": "while/body/while/body/d",
    }
    plain = share_memory(schedule(flatten(step)))
    other = share_memory(schedule(flatten(renamed(step, names))))
    assert plain.in_place == {"c": "a"}
    assert other.in_place == {names["c"]: names["a"]}
    assert {names.get(name, name): life for name, life in lifetimes(plain).items()} == lifetimes(
        other
    )


def test_no_two_are_called_the_same():
    """An operation of the step, and one of the loop's body, would be."""
    step = loop(5)
    clash = op("while/body/next", "tanh", (3,), "w")
    another = op("while/body/carried", "tanh", (3,), "w")
    ops = (*step.ops[:2], clash, another, *step.ops[2:])
    program = flatten(replace(step, ops=ops))
    assert places(program) == {
        "while/body/next": ([], []),
        "while/body/carried": ([], []),
        "while:0": ([], []),
        "while/body/next_1": (["while"], []),
        "while/body/carried_1:0": (["while"], []),
        "y": ([], []),
    }
    assert set(program.values) >= {value.name for s in program.compute_sets for value in s.writes}
