"""Called functions whose operations take the place of the calls."""

import numpy as np
import tensorflow as tf

from ipu_keras import scopes
from ipu_keras.host.replicas.inlining import inlined, leads_to
from ipu_keras.tracing.frontend_attributes import attributes_of


def trace(function, *specs):
    return tf.function(function, autograph=False).get_concrete_function(*specs)


def is_tanh(op):
    return op.type == "Tanh"


def kinds(concrete):
    return [op.type for op in concrete.graph.get_operations()]


def test_golden():
    """Two calls of one function, one of which takes what the other returns."""
    weights = tf.Variable([1.0, 2.0], name="weights")

    @tf.function
    def inner(x, y):
        return x, tf.tanh(x * weights) + y

    def function(x):
        x, y = inner(x, x)
        return {"y": inner(y, x)[1]}

    concrete = trace(function, tf.TensorSpec((2,)))
    flat = inlined(concrete, is_tanh)
    assert kinds(flat).count("Tanh") == 2
    assert not [kind for kind in kinds(flat) if "Call" in kind]
    x = tf.constant([0.5, -1.0])
    np.testing.assert_array_equal(flat(x)["y"], concrete(x)["y"])
    assert {v.name for v in flat.graph.variables} == {"weights:0"}


def test_functions_that_nothing_is_wanted_of():
    inner = tf.function(lambda x: x * 2.0)
    concrete = trace(lambda x: tf.tanh(inner(x)), tf.TensorSpec(()))
    assert inlined(concrete, is_tanh) is concrete

    wanted = tf.function(lambda x: inner(tf.tanh(x)))
    flat = inlined(trace(lambda x: wanted(x), tf.TensorSpec(())), is_tanh)
    assert sum("Call" in kind for kind in kinds(flat)) == 1
    assert float(flat(0.0)) == 0.0


def test_scopes_of_calls_are_those_of_what_has_none():
    @tf.function
    def inner(x):
        with scopes.stochastic_rounding(False):
            x = tf.tanh(x)
        return tf.tanh(x)

    def function(x):
        with scopes.stochastic_rounding(True), scopes.partials_type(np.float16):
            x = inner(x)
        return tf.tanh(x)

    flat = inlined(trace(function, tf.TensorSpec(())), is_tanh)
    found = [attributes_of(op) for op in flat.graph.get_operations() if is_tanh(op)]
    rounding = [texts["STOCHASTIC_ROUNDING"] for texts in found]
    assert rounding == ["false", "true", "undefined"]
    assert [texts.get("PARTIALS_TYPE") for texts in found] == ["half", "half", None]


def test_effects_keep_their_order():
    """Of what comes before a call, is in it or in a call of it, and comes after."""
    state = tf.Variable(1.0)

    @tf.function
    def innermost():
        state.assign(tf.tanh(state) * 0.0 + state * 2.0)

    @tf.function
    def inner():
        state.assign_add(1.0)
        innermost()
        state.assign_add(3.0)

    def function():
        state.assign(state * 10.0)
        inner()
        state.assign(state * 10.0)

    flat = inlined(trace(function), is_tanh)
    assert not [kind for kind in kinds(flat) if "Call" in kind]
    flat()
    assert state.numpy() == ((10.0 + 1) * 2 + 3) * 10


def test_loops_stay():
    def function(x):
        return tf.while_loop(lambda x: x > 0.5, lambda x: [tf.tanh(x)], [x])[0]

    concrete = trace(function, tf.TensorSpec(()))
    assert inlined(concrete, is_tanh) is concrete
    (loop,) = [op for op in concrete.graph.get_operations() if op.type == "StatelessWhile"]
    assert leads_to(loop, is_tanh)
    assert not leads_to(loop, lambda op: op.type == "Sin")
