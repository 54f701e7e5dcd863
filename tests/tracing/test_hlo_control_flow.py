"""Loops and branches as XLA has them: how often they run, and what is in them."""

import itertools
import math

import pytest
import tensorflow as tf
from traced_graphs import op, ops, read, spec, trace

from ipu_keras.ir import Graph

X = tf.TensorSpec((8, 3), tf.float32)

# -- control flow --------------------------------------------------------------


def test_a_loop_with_a_bound():
    def step(x):
        return tf.while_loop(
            lambda k, _: k < 7, lambda k, y: (k + 2, y * 2.0), [0, x], maximum_iterations=9
        )

    graph = read(step, X)
    loop = op(graph, "while")
    # 0, 2, 4, 6 are less than 7.
    counters = ((0, 0, 1), (2, 0, 2))  # iterations, and `k`
    assert loop.attributes == {"trip_count": 4, "max_trip_count": 4, "counters": counters}
    assert loop.body == ("cond_wrapper", "while_body")
    assert list(graph.functions) == ["while_cond", "cond_wrapper", "while_body"]
    # TensorFlow counts iterations and keeps their bound.
    integer = spec(dtype="int32")
    assert loop.outputs == (integer, integer, integer, spec(8, 3))
    assert len(loop.inputs) == 4
    condition, body = (graph.functions[name] for name in loop.body)
    for called in (condition, body):
        assert op(Graph("", called.ops), "parameter").outputs == loop.outputs
    assert len(condition.results) == 1
    assert len(body.results) == 4
    call = op(graph, "call")
    assert call.body == ("while_cond",)
    assert call.inputs == tuple(f"parameter:{k}" for k in range(4))
    results = {o.name: o.inputs for o in graph.ops}
    assert [results[name] for name in graph.results] == [(f"{loop.name}:2",), (f"{loop.name}:3",)]


@pytest.mark.parametrize("maximum", [None, 9])
def test_a_loop_until_the_data_say_so(maximum):
    def step(x):
        return tf.while_loop(
            lambda y: tf.reduce_sum(y) < 90.0, lambda y: [y * 2.0], [x], maximum_iterations=maximum
        )

    loop = op(read(step, X), "while")
    assert loop.attributes["trip_count"] is None
    assert loop.attributes["max_trip_count"] == maximum
    assert loop.attributes["counters"] == ((0, 0, 1),)


def recurrent(kernel):
    """A training step over a sequence, whose gradient is a loop too."""

    def step(x):
        inputs = tf.TensorArray(tf.float32, 8).unstack(x)
        with tf.GradientTape() as tape, tf.name_scope("model"), tf.name_scope("rnn"):

            def body(k, state):
                with tf.name_scope("cell"):
                    return k + 1, tf.nn.tanh((state + inputs.read(k)[None]) @ kernel)

            _, state = tf.while_loop(
                lambda k, _: k < 8, body, [0, tf.zeros((1, 3))], maximum_iterations=8
            )
            loss = tf.reduce_sum(state)
        return tape.gradient(loss, kernel)

    return step


def test_the_gradient_of_a_loop_runs_as_often_as_the_loop():
    graph = read(recurrent(tf.Variable(tf.eye(3))), X, for_xla=True)
    forward, backward = ops(graph, "while")
    assert (forward.layer, forward.backward) == ("model/rnn", False)
    assert (backward.layer, backward.backward) == ("model/rnn", True)
    for loop in (forward, backward):
        assert loop.attributes["trip_count"] == loop.attributes["max_trip_count"] == 8
    # What the forward loop adds to its lists, from the first place on, the other takes from
    # their ends.
    steps = {step for _, _, step in forward.attributes["counters"]}
    assert steps == {1}
    assert {(start, step) for _, start, step in backward.attributes["counters"]} == {
        *((0, 1), (8, -1))
    }
    products = ops(graph, "dot")
    assert [product.layer for product in products] == ["model/rnn/cell"] * 3
    assert sorted(product.backward for product in products) == [False, True, True]


def test_branches():
    def step(x, k):
        smaller = tf.cond(x[0, 0] > 0, lambda: tf.nn.relu(x), lambda: tf.nn.tanh(x))
        return tf.switch_case(k, [lambda: smaller, lambda: smaller * 2.0, lambda: smaller - k_(k)])

    def k_(k):
        return tf.cast(k, tf.float32)

    graph = read(step, X, tf.TensorSpec((), tf.int32))
    two, three = ops(graph, "conditional")
    assert len(two.body) == 2
    assert len(three.body) == 3
    assert len(graph.functions) == 5
    for branch in (two, three):
        counts = branch.attributes["num_branch_inputs"]
        assert len(branch.inputs) == 1 + sum(counts)
        assert branch.outputs == (spec(8, 3),)
        for name, count in zip(branch.body, counts, strict=True):
            parameters = [o for o in graph.functions[name].ops if o.kind == "parameter"]
            assert sum(len(o.outputs) for o in parameters) == count
    kinds = [{o.kind for o in graph.functions[name].ops} for name in two.body]
    assert "maximum" in kinds[0]
    assert "tanh" in kinds[1]


def test_names_tell_nothing_of_what_was_traced_before():
    def step(x):
        _, y = tf.while_loop(
            lambda k, _: k < 3,
            lambda k, y: (k + 1, tf.cond(y[0, 0] > 0, lambda: y * 2.0, lambda: y)),
            [0, x + tf.random.stateless_uniform((8, 3), (1, 2))],
            maximum_iterations=3,
        )
        return y

    first = read(step, X)
    for _ in range(3):
        trace(step, X)
    assert read(step, X) == first
    assert set(first.functions) == {
        "cond_wrapper",
        "while_cond",
        "while_body",
        "while_cond_true",
        "while_cond_false",
    }


def test_elements_are_conserved():
    """Specs agree where an operation cannot change the number of elements."""
    graph = read(recurrent(tf.Variable(tf.eye(3))), X, for_xla=True)
    for called in (graph, *graph.functions.values()):
        specs = {
            name: output
            for o in called.ops
            for name, output in itertools.chain(
                [(o.name, o.outputs[0])] if len(o.outputs) == 1 else [],
                ((f"{o.name}:{k}", output) for k, output in enumerate(o.outputs)),
            )
        }
        for o in called.ops:
            if o.kind in ("reshape", "transpose", "add", "multiply", "tanh"):
                sizes = {math.prod(specs[value].shape) for value in o.inputs}
                assert sizes == {math.prod(o.outputs[0].shape)}
            if o.kind == "while":
                assert tuple(specs[value] for value in o.inputs) == o.outputs
