"""Which operations of a step wait for the step before, on graphs that are built by hand."""

import pytest

from ipu_keras.host.step_order import opening_ops, sequential_ops
from ipu_keras.ir import Graph, Op, TensorSpec

SCALAR = TensorSpec((), "float32")
X = Op("x", "Placeholder", (SCALAR,))
VARIABLE = Op("v", "Placeholder", (TensorSpec((), "resource"),))
OTHER = Op("w", "Placeholder", (TensorSpec((), "resource"),))


def compute(name, *inputs, outputs=(SCALAR,), **options):
    return Op(name, "Compute", outputs, inputs=inputs, **options)


def write(name, *inputs, **options):
    return Op(name, "Assign", stateful=True, inputs=inputs, **options)


def sequential(*ops, functions=None):
    return sequential_ops(Graph("step", (X, VARIABLE, OTHER, *ops), functions or {}))


def test_golden():
    """What is read before it is written depends on the step before."""
    assert sequential(
        compute("read_v", "v"),
        compute("read_w", "w"),
        compute("model", "x", "read_w"),
        compute("sum", "read_v", "model"),
        write("assign", "v", "sum"),
        compute("loss", "model"),
        compute("average", "sum"),
    ) == {"read_v", "sum", "assign", "average"}


def test_a_step_that_only_reads():
    assert sequential(compute("read", "v"), compute("model", "x", "read")) == set()


def test_control_edges_are_dependencies():
    assert sequential(write("log"), compute("after_it", "x", after=("log",))) == {
        "log",
        "after_it",
    }


def test_a_control_edge_to_an_earlier_operation():
    """As TensorFlow orders the results of a function after all that it writes."""
    result = compute("result", "x", after=("all",))
    everything = Op("all", "NoOp", after=("assign",))
    assert sequential(result, write("assign", "v", "x"), everything) == {
        "result",
        "assign",
        "all",
    }


def test_a_body_that_writes():
    body = Graph("body", (write("assign", "handle"),))
    loop = Op("loop", "While", body=("body",), inputs=("v",))
    read = compute("read", "v")
    assert sequential(loop, read, functions={"body": body}) == {"loop", "read"}
    reading = Graph("body", (compute("read", "handle"),))
    assert sequential(loop, read, functions={"body": reading}) == set()


def test_a_handle_that_was_passed_on():
    """A loop returns the handles that it was given, among its results."""
    passed = (TensorSpec((), "variant"), TensorSpec((), "resource"))
    loop = Op("loop", "While", passed, inputs=("x", "v"))
    assert sequential(loop, write("assign", "loop:1", "x"), compute("read", "v")) == {
        "loop",
        "assign",
        "read",
    }


def test_one_result_of_several():
    two = compute("two", "x", outputs=(TensorSpec((), "variant"), SCALAR))
    assert sequential(two, write("assign", "v", "two:1")) == {"assign"}
    assert sequential(two, write("assign", "v", "two")) == {"assign", "two"}


@pytest.mark.parametrize(
    "result",
    [TensorSpec((), "variant"), TensorSpec((-1, 2), "float32"), TensorSpec((0,), "int32")],
    ids=str,
)
def test_what_cannot_be_kept_for_all_steps(result):
    """Its operation is sequential, and so is what else depends on that one."""
    assert sequential(
        compute("model", "x"),
        compute("found", "model", outputs=(result,)),
        write("assign", "v", "found"),
        compute("size", "found"),
    ) == {"found", "assign", "size"}


# -- what comes before all else --------------------------------------------------


def graph_of(*ops, functions=None):
    return Graph("step", (X, VARIABLE, OTHER, *ops), functions or {})


SEED = (compute("seed", "v"), compute("next", "seed"), write("advance", "v", "next"))


def test_seeds_are_drawn_first():
    """v is the state of a generator, w a metric."""
    graph = graph_of(
        *SEED,
        compute("model", "x", "seed"),
        compute("read_w", "w"),
        compute("sum", "read_w", "model"),
        write("assign", "w", "sum"),
        compute("result", "sum", after=("advance",)),
    )
    opening = opening_ops(graph, {"model"})
    assert opening == {"v", "seed", "next", "advance"}
    assert sequential_ops(graph, opening) == {"read_w", "sum", "assign", "result"}
    # Without that, all of it is in turn.
    assert "model" in sequential_ops(graph)


def test_a_state_that_something_heavy_decides():
    graph = graph_of(
        compute("model", "x", "read"), compute("read", "v"), write("set", "v", "model")
    )
    assert opening_ops(graph, {"model"}) == set()


def test_a_state_that_another_decides():
    """w is drawn from, but takes over what v gets from the model."""
    graph = graph_of(
        compute("read_v", "v"),
        compute("model", "x", "read_v"),
        write("set_v", "v", "model"),
        compute("read_w", "w"),
        compute("both", "read_w", "read_v"),
        write("set_w", "w", "both"),
    )
    assert opening_ops(graph, {"model"}) == set()


def test_a_state_that_a_loop_writes():
    """The loop is heavy itself, as the loops of recurrent layers are."""
    body = Graph("body", (write("assign", "handle"),))
    loop = Op("loop", "While", body=("body",), inputs=("v",))
    assert opening_ops(graph_of(loop, functions={"body": body}), {"loop"}) == set()


def test_an_opening_whose_result_cannot_be_kept():
    seed, *others = SEED
    lists = (TensorSpec((), "variant"),)
    graph = graph_of(Op("seed", seed.kind, lists, inputs=seed.inputs), *others)
    assert opening_ops(graph, set()) == {"v", "seed", "next", "advance"}
    taken = graph_of(*graph.ops[3:], compute("model", "x", "seed"))
    assert opening_ops(taken, {"model"}) == set()
