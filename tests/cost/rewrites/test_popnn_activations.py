"""Activation functions of popnn, in graphs built by hand and as TensorFlow traces them."""

import pytest
import tensorflow as tf
from hlo_graphs import argument, graph, inner_parameter, op, poplar_call

from ipu_keras import profile
from ipu_keras.cost.rewrites.popnn_activations import with_popnn_activations
from ipu_keras.ops.nn_ops import gelu, swish

TILES, LAUNCH = 1472, 81


def traced(*after, operation="Gelu", taken=("swish:0", "x"), results=("y", "dx")):
    """x · s with s = sigmoid(x), and its gradient, which takes both, as of a tape."""
    forward = graph(
        inner_parameter("a", 4),
        op("s", "logistic", (4,), "a"),
        op("as", "multiply", (4,), "a", "s"),
        results=("s", "as"),
    )
    backward = graph(
        *(inner_parameter(f"b{k}", 4, first_leaf=k) for k in range(len(taken) + 1)),
        op("all", "add", (4,), *(f"b{k}" for k in range(len(taken) + 1))),
    )
    return graph(
        argument("x", 4),
        poplar_call("swish", operation, "x", shapes=[(4,), (4,)], body="forward"),
        op("y", "negate", (4,), "swish:1"),
        poplar_call("dx", operation, "y", *taken, shapes=[(4,)], body="backward", backward=True),
        *after,
        results=results,
        functions={"forward": forward, "backward": backward},
    )


def vertices(written):
    """Kinds of each operation's body, by the operation, with what the operation takes."""
    return {
        one.name: ([inner.kind for inner in written.functions[one.body[0]].ops], one.inputs)
        for one in written.ops
        if one.body
    }


@pytest.mark.parametrize(("operation", "kind"), [("Gelu", "gelu"), ("Swish", "swish")])
def test_a_function_and_its_gradient_take_the_input(operation, kind):
    written = with_popnn_activations(traced(operation=operation))
    assert vertices(written) == {
        "swish": (["parameter", kind], ("x",)),
        "dx": (["parameter", "parameter", f"{kind}-gradient"], ("y", "x")),
    }
    # There is one result left, which has no number.
    assert [one.inputs for one in written.ops if one.name == "y"] == [("swish",)]
    assert written.results == ("y", "dx")


def test_what_others_take_on_the_way_has_to_be_made():
    found = traced(op("z", "negate", (4,), "swish:0"), results=("y", "dx", "z"))
    assert with_popnn_activations(found) == found
    assert with_popnn_activations(traced(results=("y", "dx", "swish:0"))).ops[1] == found.ops[1]


def test_other_operations_of_poplar_stay():
    found = traced(operation="HardSigmoid")
    assert with_popnn_activations(found) == found


def test_a_gradient_of_two_functions_stays():
    """So does the function, whose values it takes."""
    found = traced(taken=("swish:0", "other"))
    other = poplar_call("other", "Gelu", "x", shapes=[(4,)], body="forward")
    found = graph(found.ops[0], other, *found.ops[1:], functions=found.functions)
    assert vertices(with_popnn_activations(found))["dx"] == vertices(found)["dx"]


def test_a_function_without_gradient():
    forward = graph(inner_parameter("a", 4), op("s", "tanh", (4,), "a"))
    call = poplar_call("y", "Gelu", "x", shapes=[(4,)], body="forward")
    written = with_popnn_activations(graph(argument("x", 4), call, functions={"forward": forward}))
    assert vertices(written) == {"y": (["parameter", "gelu"], ("x",))}


@pytest.mark.parametrize(
    ("function", "cycles"),
    # Vectors of four halves: 5 cycles each in popnn's loops, and 9 in the gradient of swish.
    [(gelu, (5, 5)), (swish, (5, 9))],
)
def test_training_takes_one_vertex_each_and_keeps_the_input(function, cycles):
    @tf.function
    def step(x, w):
        with tf.GradientTape() as tape:
            tape.watch(w)
            loss = tf.reduce_sum(function(x * w) ** 2)
        return tape.gradient(loss, w)

    # 4,800 halves on a tile, 800 of a worker.
    x = tf.TensorSpec((TILES, 4800), tf.float16)
    report = profile(step, x, x)
    pairs = zip(report.model.program.compute_sets, report.model.costs, strict=True)
    found = [(one, cost) for one, cost in pairs if one.family in ("Gelu", "Swish")]
    assert [len(one.writes) for one, _ in found] == [1, 1]
    assert [cost.compute_cycles for _, cost in found] == [
        pytest.approx(LAUNCH + 6 * 200 * each, rel=0.03) for each in cycles
    ]
