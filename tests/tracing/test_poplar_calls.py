"""Operations of Poplar's libraries, on graphs that are built by hand and on those of XLA."""

from dataclasses import replace

import pytest
import tensorflow as tf
from hlo_graphs import argument, graph, inner_parameter, missing_references, op, spec, variable

from ipu_keras.ir import Op
from ipu_keras.ops.recurrent import lstm
from ipu_keras.pipelining_ops import recomputation_checkpoint
from ipu_keras.program import WEIGHT_UPDATE_SCOPE, stage_scope
from ipu_keras.store.canonical_json import to_json
from ipu_keras.tracing import traced_for_xla
from ipu_keras.tracing.hlo import hlo_graph
from ipu_keras.tracing.poplar_calls import with_poplar_calls
from ipu_keras.tracing.poplar_operation import differentiable, poplar_operation

NORM = "layer/poplar.Norm"


def part(whole, name, kind, *inputs, **others):
    """An operation of a marked scope."""
    return replace(op(f"{whole}/{name}", kind, (4,), *inputs, **others), poplar_operation=whole)


def calls(graph):
    return {one.name: one for one in graph.ops if one.kind == "poplar-call"}


def names(graph):
    return [one.name for one in graph.ops]


# -- graphs built by hand ------------------------------------------------------


def marked(*between, last="layer/poplar.Norm/a"):
    """x ─ a ─ b ─ y, of which a and b are one operation."""
    return graph(
        argument("x", 4),
        part(NORM, "a", "tanh", "x", layer="layer"),
        *between,
        part(NORM, "b", "add", last, "x", layer="layer"),
        op("out/y", "negate", (4,), f"{NORM}/b"),
    )


def test_a_marked_scope_becomes_one_operation():
    found = with_poplar_calls(marked())
    assert found.ops == (
        argument("x", 4),
        Op(
            "layer/Norm",
            "poplar-call",
            (spec(4),),
            body=("layer/Norm",),
            inputs=("x",),
            attributes={"operation": "Norm"},
            layer="layer",
        ),
        op("out/y", "negate", (4,), "layer/Norm"),
    )
    parameter = op("layer/Norm/parameter.0", "parameter", (4,), number=0, first_leaf=0)
    assert found.functions["layer/Norm"] == replace(
        graph(
            parameter,
            op(f"{NORM}/a", "tanh", (4,), "layer/Norm/parameter.0", layer="layer"),
            op(f"{NORM}/b", "add", (4,), f"{NORM}/a", "layer/Norm/parameter.0", layer="layer"),
        ),
        name="layer/Norm",
    )
    assert missing_references(found) == []


def test_calls_of_a_function_are_operations_of_their_own():
    first, second = "Call/poplar.Norm", "Call_1/poplar.Norm"
    found = with_poplar_calls(
        graph(
            argument("x", 4),
            replace(op("poplar.Norm/a", "tanh", (4,), "x"), poplar_operation=first),
            replace(op("poplar.Norm/a.1", "tanh", (4,), "x"), poplar_operation=second),
            op("out/y", "add", (4,), "poplar.Norm/a", "poplar.Norm/a.1"),
        )
    )
    assert names(found) == ["x", "Call/Norm", "Call_1/Norm", "out/y"]
    both = with_poplar_calls(
        graph(
            argument("x", 4),
            replace(op("a", "tanh", (4,), "x"), poplar_operation=f"PartitionedCall/{first}"),
            replace(op("b", "tanh", (4,), "x"), poplar_operation=f"PartitionedCall_1/{first}"),
            op("out/y", "add", (4,), "a", "b"),
        )
    )
    assert names(both) == ["x", "Call/Norm", "Call/Norm.1", "out/y"]
    assert [one.body for one in both.ops[1:3]] == [("Call/Norm",), ("Call/Norm.1",)]


def test_others_that_come_between_divide_an_operation():
    between = op("other/square", "multiply", (4,), f"{NORM}/a", f"{NORM}/a")
    found = with_poplar_calls(marked(between, last="other/square"))
    assert names(found) == ["x", "layer/Norm", "other/square", "layer/Norm.1", "out/y"]
    assert {one.attributes["operation"] for one in calls(found).values()} == {"Norm"}
    assert missing_references(found) == []


def test_operations_that_cannot_be_divided_stay_as_they_are():
    """Each takes from the other's first what the other's second gives; one of them yields."""
    first, second = "poplar.A", "poplar.B"
    found = with_poplar_calls(
        graph(
            argument("x", 4),
            part(first, "a", "tanh", "x"),
            part(second, "a", "tanh", "x"),
            part(second, "b", "tanh", f"{first}/a"),
            part(first, "b", "tanh", f"{second}/a"),
            op("out/y", "add", (4,), f"{first}/b", f"{second}/b"),
        )
    )
    assert names(found) == ["x", "poplar.A/a", "B", "poplar.A/b", "out/y"]
    assert missing_references(found) == []


@pytest.mark.parametrize("kind", ["all-reduce", "outfeed"])
def test_what_reaches_others_than_the_ipu_is_outside(kind):
    exchange = part(NORM, "sum", kind, f"{NORM}/a")
    found = with_poplar_calls(marked(exchange, last=f"{NORM}/sum"))
    assert names(found) == ["x", "layer/Norm", f"{NORM}/sum", "layer/Norm.1", "out/y"]


def test_an_exchange_without_a_name_is_outside():
    exchange = op("all-reduce", "all-reduce", (4,), f"{NORM}/a")
    found = with_poplar_calls(marked(exchange, last="all-reduce"))
    assert names(found) == ["x", "layer/Norm", "all-reduce", "layer/Norm.1", "out/y"]


def test_a_loop_with_a_collective_is_outside():
    body = graph(inner_parameter("i", 4), op("sum", "all-reduce", (4,), "i"))
    condition = graph(inner_parameter("i", 4), op("more", "compare", (), "i"))
    loop = replace(
        part(NORM, "while", "while", f"{NORM}/a"), body=("condition", "body"), attributes={}
    )
    whole = replace(
        marked(loop, last=f"{NORM}/while"), functions={"condition": condition, "body": body}
    )
    assert names(with_poplar_calls(whole)) == [
        "x",
        "layer/Norm",
        f"{NORM}/while",
        "layer/Norm.1",
        "out/y",
    ]


def test_what_has_no_name_belongs_to_its_neighbour():
    found = with_poplar_calls(
        graph(
            argument("x", 4),
            op("constant", "constant", ()),
            op("broadcast", "broadcast", (4,), "constant"),
            part(NORM, "a", "add", "x", "broadcast"),
            op("copy", "copy", (4,), f"{NORM}/a"),
            op("named/y", "negate", (4,), "copy"),
        )
    )
    assert names(found) == ["x", "layer/Norm", "named/y"]
    assert found.ops[2].inputs == ("layer/Norm",)


def test_sums_of_the_tape_within_an_operation_belong_to_it():
    """Of an outer gradient and the operation's own: else there was a cycle."""
    inside = op("gradients/AddN_1/add", "add", (4,), f"{NORM}/a", "x")
    found = with_poplar_calls(marked(inside, last="gradients/AddN_1/add"))
    assert names(found) == ["x", "layer/Norm", "out/y"]


def test_sums_of_the_tape_that_an_operation_only_takes_are_not_its_own():
    found = with_poplar_calls(
        graph(
            argument("x", 4),
            op("AddN/add", "add", (4,), "x", "x"),
            part(NORM, "a", "tanh", "AddN/add"),
            op("out/y", "negate", (4,), f"{NORM}/a"),
        )
    )
    assert names(found) == ["x", "AddN/add", "layer/Norm", "out/y"]


def test_a_scope_that_computes_nothing_is_no_operation():
    free = graph(argument("x", 4), part(NORM, "a", "reshape", "x"))
    assert names(with_poplar_calls(free)) == ["x", f"{NORM}/a"]


def test_marks_in_loops_and_loops_in_marks():
    def looped(name):
        return {
            f"{name}_condition": graph(inner_parameter("i", 4), op("more", "compare", (), "i")),
            f"{name}_body": graph(inner_parameter("i", 4), part(f"{name}.b", "a", "tanh", "i")),
        }

    def loop(name, value, **others):
        bodies = (f"{name[4:]}_condition", f"{name[4:]}_body")
        return replace(op(name, "while", (4,), value, body=bodies), **others)

    found = with_poplar_calls(
        graph(
            argument("x", 4),
            loop("out/steps", "x"),
            loop("out/cells", "out/steps", poplar_operation="poplar.LSTM"),
            op("out/y", "negate", (4,), "out/cells"),
            functions=looped("steps") | looped("cells"),
        )
    )
    assert names(found) == ["x", "out/steps", "LSTM", "out/y"]
    assert [one.kind for one in found.functions["steps_body"].ops] == ["parameter", "poplar-call"]
    # The loop within an operation is as it was.
    assert found.functions["cells_body"] == looped("cells")["cells_body"]
    assert names(found.functions["LSTM"]) == ["LSTM/parameter.0", "out/cells"]


def test_what_writes_a_variable_says_so():
    written = graph(
        variable("w", 4, result=0),
        replace(part(NORM, "a", "tanh", "w"), stateful=True, weight_update=True, stage=2),
    )
    call = with_poplar_calls(written).ops[1]
    assert (call.stateful, call.weight_update, call.stage) == (True, True, 2)
    assert with_poplar_calls(written).results == ("layer/Norm",)


def test_checkpoints_pass_a_value_on():
    whole = "layer/poplar.RecomputationCheckpoint"
    backward = f"gradient_tape/{whole}"
    found = with_poplar_calls(
        graph(
            argument("x", 4),
            part(whole, "a", "reshape", "x", layer="layer"),
            part(backward, "a", "reshape", f"{whole}/a", layer="layer", backward=True),
        )
    )
    assert [one.kind for one in found.ops] == ["parameter", "recomputation-checkpoint", "reshape"]


def test_a_graph_without_marks_is_the_same():
    plain = graph(argument("x", 4), op("out/y", "negate", (4,), "x"))
    assert with_poplar_calls(plain) == plain


# -- graphs of XLA -------------------------------------------------------------

X = tf.TensorSpec((2, 2))


def read(function, *specs):
    found = hlo_graph(tf.function(function, autograph=False).get_concrete_function(*specs))
    assert missing_references(found) == []
    return found


def cube(x):
    """Of a kind of its own, with a gradient of its own."""

    def run(x):
        return x * x * x, lambda upstream: 3.0 * upstream * x * x

    with tf.name_scope("layer"), poplar_operation("Cube"):
        return differentiable(run, x)


def gradient(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(function(x))
    return y, tape.gradient(y, x)


def test_forward_and_backward_are_one_operation_each():
    found = calls(read(lambda x: gradient(lambda x: cube(tf.sin(x)), x), X))
    # XLA orders what does not depend on each other.
    assert set(found) == {"layer/Cube", "gradient_tape/layer/Cube"}
    forward, backward = found["layer/Cube"], found["gradient_tape/layer/Cube"]
    assert (forward.layer, forward.backward) == ("layer", False)
    assert (backward.layer, backward.backward) == ("layer", True)
    assert {one.attributes["operation"] for one in found.values()} == {"Cube"}


def test_gradients_that_tensorflow_makes_are_one_operation():
    """With the sum of what flows into `y` from both of its uses."""

    def squares(x):
        with poplar_operation("Squares"):
            y = tf.sin(x)
            return y * tf.cos(y) + y

    graph = read(lambda x: gradient(squares, x), X)
    assert list(calls(graph)) == ["Squares", "gradient_tape/Squares"]
    body = graph.functions["gradient_tape/Squares"]
    assert {one.kind for one in body.ops} >= {"cosine", "sine", "add", "negate"}


def test_each_call_and_each_layer_is_an_operation():
    graph = read(lambda x: cube(cube(x)), X)
    assert [one.layer for one in calls(graph).values()] == ["layer", "layer_1"]
    assert [one.attributes for one in calls(graph).values()] == [{"operation": "Cube"}] * 2


def test_functions_that_are_called_twice():
    inner = tf.function(cube, autograph=False)
    graph = read(lambda x: gradient(lambda x: inner(tf.sin(inner(x))), x), X)
    forward = [one for one in calls(graph).values() if not one.backward]
    backward = [one for one in calls(graph).values() if one.backward]
    assert [one.name for one in forward] == ["layer/Cube", "layer/Cube.1"]
    assert len(backward) == 2
    assert {one.layer for one in calls(graph).values()} == {"layer"}


def test_the_outer_of_two_operations_counts():
    def outer(x):
        with poplar_operation("Outer"):
            return tf.sin(cube(x))

    graph = read(lambda x: gradient(outer, x), X)
    assert list(calls(graph)) == ["Outer", "gradient_tape/Outer"]


def sequence(x):
    zero = tf.zeros((2, 2))
    with tf.name_scope("lstm"), poplar_operation("PopnnLSTM"):
        return lstm(x, zero, zero, tf.ones((2, 8)), tf.ones((2, 8)), tf.zeros(8))[0]


def test_a_loop_is_within_the_operation():
    graph = read(sequence, tf.TensorSpec((5, 2, 2)))
    (call,) = calls(graph).values()
    assert call.outputs == (spec(5, 2, 2),)
    assert not any(one.kind == "while" for one in graph.ops)
    (loop,) = (one for one in graph.functions[call.body[0]].ops if one.kind == "while")
    assert loop.attributes["trip_count"] == 5


def test_operations_in_the_steps_of_an_execution():
    """The engine runs several steps in a loop."""

    def steps(x):
        with traced_for_xla():
            return tf.while_loop(
                lambda k, x: k < 3, lambda k, x: (k + 1, tf.add(*gradient(cube, x))), (0, x)
            )[1]

    graph = read(steps, X)
    assert not calls(graph)
    (body,) = (one.body[1] for one in graph.ops if one.kind == "while")
    found = calls(graph.functions[body]).values()
    assert sorted((one.attributes["operation"], one.backward) for one in found) == [
        ("Cube", False),
        ("Cube", True),
    ]


def test_stages_and_weight_updates():
    weights = tf.Variable(tf.ones((2, 2)))

    def step(x):
        with tf.name_scope(stage_scope(1)):
            y = cube(x)
        with tf.name_scope(WEIGHT_UPDATE_SCOPE), poplar_operation("Adam"):
            weights.assign_sub(0.1 * y)
        return y

    cubed, update = calls(read(step, X)).values()
    assert (cubed.layer, cubed.stage, cubed.weight_update) == ("layer", 1, False)
    assert (update.attributes["operation"], update.weight_update) == ("Adam", True)
    assert update.stateful


def test_random_draws_within():
    def noise(x):
        with poplar_operation("Noise"):
            return x + tf.random.stateless_uniform((2, 2), (1, 2))

    graph = read(noise, X)
    (call,) = calls(graph).values()
    assert "random" in {one.kind for one in graph.functions[call.body[0]].ops}


def test_operations_that_xla_lacks():
    def divided(x):
        with poplar_operation("User"):
            y = tf.numpy_function(lambda y: y, [tf.sin(x)], tf.float32)
            y.set_shape((2, 2))
            return tf.cos(y)

    graph = read(divided, X)
    (call,) = calls(graph).values()
    kinds = [one.kind for one in graph.functions[call.body[0]].ops]
    assert kinds.index("sine") < kinds.index("PyFunc") < kinds.index("cosine")


def test_checkpoints():
    def checked(x):
        return tf.exp(recomputation_checkpoint(tf.sin(x), name="kept"))

    graph = read(lambda x: gradient(checked, x), X)
    (mark,) = (one for one in graph.ops if one.kind == "recomputation-checkpoint")
    assert mark.name == "poplar.RecomputationCheckpoint/kept/reshape"
    assert mark.inputs == ("Sin/sine",)
    assert not calls(graph)


def test_equal_programs_have_equal_graphs():
    def text():
        return to_json(read(lambda x: gradient(lambda x: cube(tf.sin(cube(x))), x), X))

    assert text() == text()
