"""Which values take over memory, on programs built by hand."""

from dataclasses import replace

import pytest
from hlo_graphs import argument, graph, inner_parameter, loop, op, spec, variable
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.in_place import share_memory
from ipu_keras.cost.flat.liveness import lifetimes, storage
from ipu_keras.ir import Op

CARRIED = [("array", 9, 4), ("state", 4)]


def shared(*ops, results=(), functions=None):
    return share_memory(flatten(graph(*ops, results=results, functions=functions)))


def names(program):
    return [one.name for one in program.compute_sets]


def test_an_elementwise_result_takes_the_place_of_an_operand_that_dies():
    #  x ── a ─┬─ b ─┬─ c ── d
    #          └─────┘
    program = shared(
        argument("x", 4),
        op("a", "negate", (4,), "x"),
        op("b", "tanh", (4,), "a"),
        op("c", "add", (4,), "a", "b"),
        op("d", "reduce", (), "c"),
    )
    # `a` still is needed when `b` is made, and both die in `c`, which takes the first.
    assert program.in_place == {"a": "x", "c": "a"}
    assert storage(program)["c"] == "x"


@pytest.mark.parametrize(
    "change",
    [
        op("y", "convert", (4,), "a", dtype="float16"),  # another size
        op("y", "reverse", (4,), "a", dimensions=(0,)),  # other places
        op("y", "broadcast", (2, 4), "a"),
    ],
)
def test_other_sizes_and_orders_have_their_own_memory(change):
    program = shared(variable("w", 4), op("a", "negate", (4,), "w"), change)
    assert program.in_place == {}  # nor is the variable overwritten


def test_results_and_new_values_of_variables_stay():
    program = shared(
        argument("x", 4),
        variable("w", 4, result=1),
        op("a", "negate", (4,), "x"),
        op("new", "add", (4,), "w", "x"),
        op("b", "tanh", (4,), "new"),
        op("c", "tanh", (4,), "a"),
        results=("a", "new", "b", "c"),
    )
    assert program.in_place == {}
    assert program.updates == {"new": "w"}


def test_a_sum_over_replicas_takes_the_place_of_what_it_adds_up():
    both = Op("sum", "all-reduce", (spec(8), spec(8)), inputs=("g", "h"))
    program = shared(
        argument("g", 8),
        argument("h", 8),
        both,
        op("y", "add", (8,), "h", "sum:0"),
        results=("y", "sum:1"),
    )
    # `h` is read once more, after its sum.
    assert program.in_place == {"sum:0": "g", "y": "h"}


def test_an_update_may_write_over_what_it_takes_from_an_accumulator():
    """Which is set to zero after that; other variables have to stay."""
    step = graph(
        variable("acc", 8),
        variable("w", 8),
        op("a", "negate", (8,), "w"),
        op("b", "tanh", (8,), "acc"),
        results=("a", "b"),
    )
    program = flatten(step)
    accumulator = replace(program.values["acc"], is_accumulator=True)
    program = replace(program, values={**program.values, "acc": accumulator})
    assert share_memory(program).in_place == {"b": "acc"}


@pytest.mark.parametrize("kind", ["dynamic-update-slice", "scatter"])
def test_updates_overwrite_their_first_operand(kind):
    program = shared(
        argument("x", 8),
        argument("part", 8),
        op("y", kind, (8,), "x", "part", "part"),
        op("z", kind, (8,), "y", "part", "part"),
        op("both", "reduce", (), "y", "z"),
    )
    # `y` is read again: `z` cannot take its place.
    assert program.in_place == {"y": "x"}


def test_a_loop_that_updates_in_place_needs_no_copies():
    program = share_memory(flatten(loop(5)))
    assert names(program) == ["while/body/next", "y"]
    assert program.compute_sets[0].reads == ("x", "w")
    assert program.compute_sets[1].reads == ("while/body/next",)
    assert program.in_place == {"while/body/next": "x", "y": "while/body/next"}
    assert set(lifetimes(program)) == {"x"}


def test_a_loop_that_fills_an_array():
    """Each trip writes a slice; the old state is written there before its next value is made."""
    inner = [
        inner_parameter(name, *shape, first_leaf=k) for k, (name, *shape) in enumerate(CARRIED)
    ]
    body = graph(
        *inner,
        op("next", "dot", (4,), "state", "state", lhs_contracting_dimensions=()),
        op("filled", "dynamic-update-slice", (9, 4), "array", "state", "state"),
        results=("filled", "next"),
    )
    condition = graph(*inner, op("more", "compare", (), "state"))
    specs = tuple(spec(*shape) for _, *shape in CARRIED)
    whole = Op(
        "while",
        "while",
        specs,
        body=("condition", "body"),
        inputs=("zeros", "x"),
        attributes={"trip_count": 9},
    )
    program = shared(
        op("zero", "constant", (), value=0.0),
        op("zeros", "broadcast", (9, 4), "zero"),
        argument("x", 4),
        whole,
        op("y", "reduce", (), "while:0", "while:1"),
        functions={"condition": condition, "body": body},
    )
    assert names(program) == [
        "zeros",
        "while/body/filled",
        "while/body/next",
        "while/body/carried:1",
        "y",
    ]
    # A product cannot be written over what it multiplies.
    assert program.in_place == {"while/body/filled": "zeros", "while/body/carried:1": "x"}
    # One array and one state from the start to the end of the loop, and the next state.
    assert {name: (life.first, life.last) for name, life in lifetimes(program).items()} == {
        "zeros": (0, 4),
        "x": (0, 4),
        "while/body/next": (2, 3),
        "y": (4, 4),
    }


def test_what_a_loop_leaves_in_place_waits_under_its_name():
    """A pipeline keeps the loop's result of four more batches, which is no copy any more."""
    program = flatten(loop(5))
    found = share_memory(replace(program, stashes={"while/body/carried:0": 4}))
    assert found.stashes == {"while/body/next": 4}
    assert "while/body/next" in found.values


def test_a_loop_over_a_variable_works_in_it():
    condition = graph(inner_parameter("i", 3), op("more", "compare", (), "i"))
    body = graph(inner_parameter("i", 3), op("next", "negate", (3,), "i"))
    program = shared(
        variable("w", 3, result=0),
        op("while", "while", (3,), "w", body=("condition", "body"), trip_count=3),
        results=("while",),
        functions={"condition": condition, "body": body},
    )
    assert names(program) == ["while/body/next"]
    assert program.updates == {"while/body/next": "w"}
    assert lifetimes(program) == {}


KINDS = st.sampled_from(["negate", "reverse", "add", "dynamic-update-slice", "scatter"])


@given(
    kinds=st.lists(KINDS, min_size=1, max_size=20),
    reads=st.lists(st.integers(0, 30), min_size=40, max_size=40),
    kept=st.sets(st.integers(0, 20), max_size=3),
)
def test_nothing_is_overwritten_that_is_needed(kinds, reads, kept):
    """Runs the program on memory that remembers which value was written last."""
    ops = [argument("v0", 8)]
    for k, kind in enumerate(kinds):
        operands = [f"v{reads[2 * k + j] % (k + 1)}" for j in range(2)]
        ops.append(op(f"v{k + 1}", kind, (8,), *operands[: 1 if kind == "negate" else 2]))
    results = sorted({f"v{k % len(ops)}" for k in kept}) or [ops[-1].name]
    program = shared(*ops, results=results)
    place = storage(program)
    memory = {"v0": "v0"}
    for one in program.compute_sets:
        assert [memory[place[name]] for name in one.reads] == list(one.reads)
        memory[place[one.name]] = one.name
    assert [memory[place[name]] for name in results] == results


def test_what_has_no_result():
    printed = Op("print", "PrintV2", inputs=("x",))
    found = share_memory(flatten(graph(argument("x", 4), printed, results=("x",))))
    assert [one.name for one in found.compute_sets] == ["print"]
    assert found.in_place == {}


def test_each_branch_of_a_conditional_may_overwrite_what_only_branches_need():
    """And none what is needed afterwards."""
    once = graph(inner_parameter("a", 4), op("n", "negate", (4,), "a"))
    twice = graph(inner_parameter("b", 4), op("m", "tanh", (4,), "b"), op("o", "tanh", (4,), "m"))
    either = op(
        "if", "conditional", (4,), "p", "y", "y", body=("once", "twice"), num_branch_inputs=(1, 1)
    )
    ops = [
        op("p", "parameter", (), dtype="bool", role="argument"),
        argument("x", 4),
        op("y", "reverse", (4,), "x", dimensions=(0,)),
        either,
    ]
    functions = {"once": once, "twice": twice}
    program = shared(*ops, functions=functions)
    assert program.in_place == {
        "if/branch0/n": "y",
        "if/branch1/m": "y",
        "if/branch1/o": "if/branch1/m",
    }
    later = shared(*ops, op("z", "add", (4,), "if", "y"), functions=functions)
    assert set(later.in_place) == {"if/branch1/o", "z"}
