"""Gradients of ReLU, in graphs built by hand and as TensorFlow traces them."""

import doctest

import pytest
import tensorflow as tf
from hlo_graphs import argument, graph, inner_parameter, op, variable

from ipu_keras import profile
from ipu_keras.cost.rewrites import relu_gradients
from ipu_keras.cost.rewrites.relu_gradients import with_relu_gradients
from ipu_keras.machine.target import Confidence

TILES, LAUNCH = 1472, 81


def masked(*after, direction="GT", bound=0.0, otherwise=0.0, dtype="float32", results=("dx",)):
    """Gradients where features are beyond a bound, and what comes after."""
    return graph(
        argument("x", 4),
        op("dy", "parameter", (4,), dtype=dtype, role="argument"),
        op("bound", "constant", (), value=bound),
        op("bounds", "broadcast", (4,), "bound", dimensions=()),
        op("other", "constant", (), dtype=dtype, value=otherwise),
        op("others", "broadcast", (4,), "other", dtype=dtype, dimensions=()),
        op("on", "compare", (4,), "x", "bounds", dtype="bool", direction=direction),
        op("dx", "select", (4,), "on", "dy", "others", dtype=dtype, layer="act", backward=True),
        *after,
        results=results,
    )


def listed(written):
    return [(one.name, one.kind, one.inputs) for one in written.ops]


def test_example_in_the_docstring():
    assert doctest.testmod(relu_gradients).failed == 0


def test_a_comparison_and_a_selection_are_one_operation():
    written = with_relu_gradients(masked())
    parameters = [("x", "parameter", ()), ("dy", "parameter", ())]
    assert listed(written) == [*parameters, ("dx", "relu-gradient", ("dy", "x"))]
    assert (written.ops[-1].layer, written.ops[-1].backward) == ("act", True)
    assert (written.results, written.ops[-1].attributes) == (("dx",), {})


@pytest.mark.parametrize(
    "other",
    [
        {"direction": "GE"},
        {"bound": 6.0},
        {"otherwise": 1.0},
        {"dtype": "int32"},
        {"dtype": "float16"},  # whose features are float32
    ],
)
def test_other_selections_stay(other):
    found = masked(**other)
    assert with_relu_gradients(found).ops == found.ops


def test_what_others_use_stays():
    both = masked(op("count", "convert", (4,), "on", dtype="int32"), results=("dx", "count"))
    written = with_relu_gradients(both)
    kinds = ["parameter", "parameter", "constant", "broadcast", "compare"]
    assert [one.kind for one in written.ops] == [*kinds, "relu-gradient", "convert"]


def test_those_of_called_graphs_too():
    inner = masked()
    inner = graph(inner_parameter("x", 4), inner_parameter("dy", 4, first_leaf=1), *inner.ops[2:])
    call = op("call", "call", (4,), "a", "b", body=("inner",))
    outer = graph(argument("a", 4), variable("b", 4), call, functions={"inner": inner})
    written = with_relu_gradients(outer)
    assert [one.kind for one in written.functions["inner"].ops] == [
        "parameter",
        "parameter",
        "relu-gradient",
    ]


@pytest.mark.parametrize(
    ("dtype", "cycles"),
    # 240 elements on a tile are 40 for a worker. Of halves, 10 vectors at 3 cycles and 5 for
    # memory; of float32, 20. To compare and select, it would take 290 cycles and more.
    [("float16", 11 + 6 * (26 + 10 * 8)), ("float32", 11 + 6 * (29 + 20 * 8))],
)
def test_a_gradient_as_tensorflow_traces_it(dtype, cycles):
    def gradient(x, dy):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.nn.relu(x)
        return y, tape.gradient(y, x, output_gradients=dy)

    specs = [tf.TensorSpec((TILES, 240), dtype)] * 2
    model = profile(tf.function(gradient), *specs).model
    (found,) = (
        cost
        for one, cost in zip(model.program.compute_sets, model.costs, strict=True)
        if one.ops[-1].kind == "relu-gradient"
    )
    assert found.compute_cycles == cycles + LAUNCH
    assert found.vertex == f"map relu-gradient {dtype}"
    assert found.confidence is Confidence.GUESSED
