"""The order of execution, and when values are in memory, on programs built by hand."""

import pytest
from hlo_graphs import argument, graph, loop, op, variable

from ipu_keras.compiler.compute_sets import flatten
from ipu_keras.compiler.liveness import Lifetime, lifetimes, schedule


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


def test_weights_are_updated_as_soon_as_that_frees_memory():
    # g2 and g1 are needed for the gradient before them; after that the update frees them.
    order = [one.name for one in schedule(training(3)).compute_sets]
    assert order == ["h0", "h1", "h2", "g2", "g1", "u2", "g0", "u1", "u0"]


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
    program = flatten(loop(trips))
    assert [one.name for one in program.compute_sets] == [
        "while/condition/more",
        "while/body/next",
        "y",
    ]
    # `x` is carried, and read after the loop.
    assert lifetimes(program)["x"] == Lifetime(0, 2)
    assert lifetimes(program)["while/condition/more"] == Lifetime(0, 0)
