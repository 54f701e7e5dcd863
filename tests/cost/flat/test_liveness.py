"""The order of execution, and when values are in memory, on programs built by hand."""

from dataclasses import replace

import pytest
from hlo_graphs import argument, graph, inner_parameter, loop, op, spec, variable

from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.liveness import Lifetime, lifetimes, schedule, storage
from ipu_keras.ir import Op


def training(layers):
    """A chain of products, its gradients, and at the end all weight updates.

    x ─ h0 ─ h1 ─ … ─ loss;  g_k and u_k for each weight w_k
    """
    ops = [argument("x", 64)]
    ops += [variable(f"w{k}", 64, result=k) for k in range(layers)]
    before = "x"
    for k in range(layers):
        ops.append(op(f"h{k}", "dot", (64,), before, f"w{k}", lhs_contracting_dimensions=()))
        before = f"h{k}"
    for k in reversed(range(layers)):
        inputs = (f"h{k}", before)
        ops.append(op(f"g{k}", "dot", (64,), *inputs, lhs_contracting_dimensions=()))
        before = f"g{k}"
    ops += [op(f"u{k}", "subtract", (64,), f"w{k}", f"g{k}") for k in range(layers)]
    return flatten(graph(*ops, results=[f"u{k}" for k in range(layers)]))


def test_weights_are_updated_as_soon_as_there_is_a_gradient():
    order = [one.name for one in schedule(training(3)).compute_sets]
    assert order == ["h0", "h1", "h2", "g2", "u2", "g1", "u1", "g0", "u0"]


def test_an_update_comes_before_what_frees_other_memory():
    """The gradient `g` frees nothing but what `s` is the last to read, and `s` could be next."""
    program = flatten(
        graph(
            argument("x", 64),
            variable("w", 64, 64, result=0),
            op("h", "tanh", (64,), "x"),
            op("e", "tanh", (64,), "h"),
            op("g", "dot", (64, 64), "e", "h", lhs_contracting_dimensions=()),
            op("s", "reduce", (), "h"),
            op("u", "subtract", (64, 64), "w", "g"),
            results=("u", "s"),
        )
    )
    assert [one.name for one in schedule(program).compute_sets] == ["h", "e", "g", "u", "s"]


def test_a_learning_rate_is_there_before_the_gradients():
    """Traced behind them, what it is computed from would have both gradients wait for it."""
    program = flatten(
        graph(
            argument("x", 64),
            variable("rate"),
            *(variable(f"w{k}", 64, result=k) for k in range(2)),
            *(op(f"g{k}", "tanh", (64,), "x" if k == 0 else "g0") for k in range(2)),
            op("rate2", "multiply", (), "rate", "rate"),
            *(op(f"s{k}", "multiply", (64,), f"g{k}", "rate2") for k in range(2)),
            *(op(f"u{k}", "subtract", (64,), f"w{k}", f"s{k}") for k in range(2)),
            results=("u0", "u1"),
        )
    )
    order = [one.name for one in schedule(program).compute_sets]
    assert order == ["rate2", "g0", "s0", "u0", "g1", "s1", "u1"]


def test_what_reads_a_weight_does_so_before_its_update():
    """`u` could be next, and would write over what `y` needs."""
    program = flatten(
        graph(
            argument("g", 64),
            variable("w", 64, result=0),
            op("h", "tanh", (64,), "g"),
            op("y", "multiply", (64,), "h", "w"),
            op("z", "reduce", (), "y"),
            op("u", "subtract", (64,), "w", "g"),
            results=("u", "z"),
        )
    )
    assert [one.name for one in schedule(program).compute_sets] == ["h", "y", "u", "z"]


def test_a_gradient_goes_straight_into_its_accumulator():
    """`dw` frees nothing, as `x` and `dy` are needed later; nor does it take memory for long."""
    program = flatten(
        graph(
            argument("x", 64),
            variable("acc", 64, result=0),
            op("dy", "tanh", (64,), "x"),
            op("t", "sine", (64,), "dy"),
            op("s", "multiply", (64,), "dy", "x"),
            op("dw", "dot", (64,), "x", "dy", lhs_contracting_dimensions=()),
            op("half", "convert", (64,), "dw", dtype="float16"),
            op("a", "add", (64,), "acc", "half"),
            results=("a", "t", "s"),
        )
    )
    order = [one.name for one in schedule(program).compute_sets]
    assert order == ["dy", "dw", "half", "a", "t", "s"]
    # Where something else reads it too, it stays where it was.
    both = replace(program, results=(*program.results, "dw"))
    assert schedule(both).compute_sets[1].name == "t"


def test_one_update_ends_before_the_next_begins():
    """TensorFlow converts all gradients first; all float32 gradients would be there at once."""
    names = ("a", "b")
    ops = [argument(f"g{k}", 64) for k in names]
    ops += [variable(f"w{k}", 64, result=i) for i, k in enumerate(names)]
    ops += [variable(f"m{k}", 64, result=2 + i) for i, k in enumerate(names)]
    steps = [op(f"c{k}", "convert", (64,), f"g{k}", dtype="float16") for k in names]
    steps += [op(f"n{k}", "add", (64,), f"m{k}", f"c{k}") for k in names]
    steps += [op(f"s{k}", "sqrt", (64,), f"n{k}") for k in names]
    steps += [op(f"u{k}", "subtract", (64,), f"w{k}", f"s{k}") for k in names]
    results = ("ua", "ub", "na", "nb")
    ops += [replace(one, weight_update=True) for one in steps]
    program = schedule(flatten(graph(*ops, results=results)))
    assert [one.name for one in program.compute_sets] == [f"{s}{k}" for k in names for s in "cnsu"]


def test_a_schedule_keeps_every_compute_set_after_its_inputs():
    program = training(9)
    scheduled = schedule(program)
    assert sorted(one.name for one in scheduled.compute_sets) == sorted(
        one.name for one in program.compute_sets
    )
    made = {"x", *(name for name in program.values if name.startswith("w"))}
    for one in scheduled.compute_sets:
        assert made.issuperset(one.reads)
        made.update(value.name for value in one.writes)


def test_the_order_of_readers_that_free_memory_is_no_hash():
    """Once `y` is done, each value has one reader left: that of the last value runs first."""
    names = [f"x{k}" for k in range(8)]
    program = flatten(
        graph(
            op("zero", "constant", (), value=0.0),
            argument("x", 64),
            *(
                op(name, "sort", (64,), "x" if k == 0 else names[k - 1], dimensions=(0,))
                for k, name in enumerate(names)
            ),
            op("y", "concatenate", (512,), *names, dimensions=(0,)),
            *(
                op(f"sum{k}", "reduce", (), name, "zero", dimensions=(0,))
                for k, name in enumerate(names)
            ),
            results=("y", *(f"sum{k}" for k in range(8))),
        )
    )
    order = [one.name for one in schedule(program).compute_sets]
    assert order == [*names, "y", *(f"sum{k}" for k in reversed(range(8)))]


def test_the_order_of_tracing_stays_if_nothing_is_gained():
    program = flatten(
        graph(
            argument("x", 4),
            op("a", "negate", (4,), "x"),
            op("b", "tanh", (4,), "x"),
            op("c", "add", (4,), "a", "b"),
        )
    )
    assert schedule(program) == program


def test_lifetimes():
    # position: 0 a, 1 b, 2 c
    program = flatten(
        graph(
            argument("x", 4),
            variable("w", 4, result=2),
            op("a", "negate", (4,), "x"),
            op("b", "tanh", (4,), "x"),
            op("c", "add", (4,), "b", "w"),
            results=("a", "b", "c"),
        )
    )
    assert lifetimes(program) == {
        "x": Lifetime(0, 1),
        "a": Lifetime(0, 2),
        "b": Lifetime(1, 2),
    }  # `w` is always live, and `c` is its new value


@pytest.mark.parametrize("trips", [1, 7])
def test_what_a_loop_reads_lives_until_it_ends(trips):
    program = schedule(flatten(loop(trips)))
    assert [one.name for one in program.compute_sets] == [
        "while:0",
        "while/body/next",
        "while/body/carried:0",
        "y",
    ]
    # What is carried is read after the loop, in the memory that the loop has for it.
    assert lifetimes(program) == {
        "x": Lifetime(0, 0),
        "while:0": Lifetime(0, 3),
        "while/body/next": Lifetime(1, 2),
        "y": Lifetime(3, 3),
    }


def test_what_follows_a_loop_waits_for_its_end():
    """`late` could free memory after the first set of the loop, whose result it reads."""
    inner = (inner_parameter("a", 3), inner_parameter("b", 3, first_leaf=1))
    body = graph(
        *inner,
        op("c", "negate", (3,), "a"),
        op("d", "tanh", (3,), "b"),
        results=("c", "d"),
    )
    condition = graph(*inner, op("more", "compare", (), "a"))
    whole = Op(
        "while",
        "while",
        (spec(3), spec(3)),
        inputs=("x", "x"),
        body=("condition", "body"),
        attributes={"trip_count": 4},
    )
    program = flatten(
        graph(
            argument("x", 3),
            whole,
            op("late", "reduce", (), "while:0"),
            functions={"condition": condition, "body": body},
        )
    )
    order = [one.name for one in schedule(program).compute_sets]
    assert order[-1] == "late"
    assert order.index("while/body/carried:1") == len(order) - 2


def test_values_in_place_are_one():
    program = flatten(
        graph(
            argument("x", 4),
            op("a", "negate", (4,), "x"),
            op("b", "tanh", (4,), "a"),
            op("c", "tanh", (4,), "b"),
        )
    )
    program = replace(program, in_place={"b": "a", "c": "b"})
    assert storage(program) == {"x": "x", "a": "a", "b": "a", "c": "a"}
    assert lifetimes(program) == {"x": Lifetime(0, 0), "a": Lifetime(0, 2)}


def test_the_branch_that_runs_comes_after_those_that_do_not():
    # The sum frees `y`, which nobody else takes, but not while another branch has its values.
    short = graph(inner_parameter("a", 64), op("n", "reduce", (), "a"), op("m", "negate", (), "n"))
    long = graph(inner_parameter("b", 64), op("r", "reduce", (), "b"))
    either = op(
        "if", "conditional", (), "p", "x", "y", body=("short", "long"), num_branch_inputs=(1, 1)
    )
    program = flatten(
        graph(
            op("p", "parameter", (), dtype="bool", role="argument"),
            argument("x", 64),
            op("y", "negate", (64,), "x"),
            either,
            op("z", "negate", (), "if"),
            functions={"short": short, "long": long},
        ),
        work_of_branch=lambda branch: -len(branch.compute_sets),
    )
    assert [one.name for one in schedule(program).compute_sets] == [
        "y",
        "if/branch0/n",
        "if/branch0/m",
        "if/branch0/end",
        "if/branch1/r",
        "z",
    ]
