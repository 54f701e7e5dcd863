"""Results that users do not get while a function is traced, and the function without that."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from ipu_keras.host.rewrites.random_bits import compilable_random
from ipu_keras.host.rewrites.replacement import replaced, undone
from ipu_keras.tracing.as_written import AsWritten
from ipu_keras.tracing.fingerprint import fingerprint
from ipu_keras.tracing.hlo import hlo_graph
from ipu_keras.tracing.lowering import LoweringError, lower

SPEC = tf.TensorSpec((3,), tf.float32)
X = tf.constant([1.0, 2.0, 3.0])


def squares_for_sines():
    """Replaces a sine by a square, which shows in results."""
    return replaced({"Sin"}, lambda inputs, output: tf.multiply(*inputs, *inputs, name="square"))


def traced(function, *specs):
    return tf.function(function, autograph=False).get_concrete_function(*specs or (SPEC,))


def test_operations_return_lists_as_ever():
    kinds = []

    def step(x):
        parts = tf.unstack(x)
        kinds.append(type(parts))
        return tf.sin(parts[0])

    with squares_for_sines():
        traced(step)
    traced(step)
    assert kinds == [list, list]


def test_users_of_a_result_get_another():
    def step(x):
        return tf.sin(x) + 1.0

    with squares_for_sines() as found:
        concrete = traced(step)
        np.testing.assert_allclose(tf.sin(X), np.sin(X))  # eager operations are left alone
    (one,) = found
    assert (one.result.op.type, one.other.op.type) == ("Sin", "Mul")
    np.testing.assert_allclose(concrete(X), X * X + 1.0)
    np.testing.assert_allclose(undone(concrete, found)(X), np.sin(X) + 1.0)
    assert undone(concrete, []) is concrete


@pytest.fixture
def numerics_checked():
    tf.debugging.enable_check_numerics()
    yield
    tf.debugging.disable_check_numerics()


def test_callbacks_of_users_may_come_before(numerics_checked):
    """Theirs return nothing, which TensorFlow hands to the next callback in place of results."""
    with squares_for_sines() as found:
        concrete = traced(lambda x: tf.sin(x) + tf.sqrt(x))
    np.testing.assert_allclose(concrete(X), X * X + np.sqrt(X))
    np.testing.assert_allclose(undone(concrete, found)(X), np.sin(X) + np.sqrt(X))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"NaN in output 0 of graph op .Sqrt"):
        concrete(-X)


def test_initial_values_in_a_session_s_graph_are_left():
    def step(x):
        with tf.init_scope():
            initial = tf.sin(tf.constant(X.numpy()))
        return x + initial

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        with squares_for_sines() as found:
            concrete = traced(step)
        assert found == []
        result = session.run(concrete(tf.zeros([3])))
    np.testing.assert_allclose(result, np.sin([1.0, 2.0, 3.0]), rtol=1e-6)


def test_a_function_without_replacements_takes_what_nothing_uses():
    with squares_for_sines() as found:
        concrete = traced(lambda unused, x: (tf.sin(x), x), SPEC, SPEC)
    sine, same = undone(concrete, found)(-X, X)
    np.testing.assert_allclose(sine, np.sin(X), rtol=1e-6)
    np.testing.assert_array_equal(same, X)


def test_a_function_as_written_lowers_as_one_without_replacements():
    variable = tf.Variable(tf.ones(3))

    def step(x):
        result = tf.sin(x * variable)
        variable.assign(tf.cos(result))
        return {"returned": result, "sum": tf.reduce_sum(result)}

    with squares_for_sines() as found:
        concrete = traced(step)
    written, plain = AsWritten(concrete, found), traced(step)
    graph = hlo_graph(written)
    assert graph == hlo_graph(plain)
    assert "sine" in graph.kinds
    assert graph != hlo_graph(concrete)
    assert "multiply" in {op.kind for op in hlo_graph(concrete).ops if "square" in op.name}
    assert not any("square" in op.name for op in graph.ops)
    assert fingerprint(written) == fingerprint(plain) != fingerprint(concrete)
    np.testing.assert_allclose(undone(concrete, found)(X)["returned"], np.sin(X), rtol=1e-6)


def test_tensorflow_knows_it_only_while_it_is_lowered():
    with squares_for_sines() as found:
        concrete = traced(tf.sin)
    written = AsWritten(concrete, found)
    name = written.name.decode()
    assert name != concrete.function_def.signature.name
    with written.defined():
        assert context.context().has_function(name)
    assert not context.context().has_function(name)
    lower(written, stand_ins=False)
    lower(written)
    assert not context.context().has_function(name)


def test_calls_of_what_draws_random_numbers_are_left_out():
    """TensorFlow takes them for writes, which are kept else."""

    def step(x):
        return x * tf.random.stateless_uniform((3,), seed=(1, 2))

    with compilable_random() as found:
        concrete = traced(step)
    assert "XlaCallModule" in {node.op for node in concrete.function_def.node_def}
    written = AsWritten(concrete, found)
    assert "XlaCallModule" not in {node.op for node in written.function_def.node_def}
    assert hlo_graph(written) == hlo_graph(traced(step))
    without = undone(concrete, found)
    assert "XlaCallModule" not in {op.type for op in without.graph.get_operations()}
    np.testing.assert_array_equal(without(X), traced(step)(X))


def test_an_operation_that_xla_lacks_is_cut_out_of_it():
    def step(x):
        given = tf.py_function(lambda value: value, [tf.sin(x)], tf.float32)
        given.set_shape((3,))
        return given + 1.0

    with squares_for_sines() as found:
        concrete = traced(step)
    graph = hlo_graph(AsWritten(concrete, found))
    assert {"sine", "EagerPyFunc"} <= graph.kinds
    assert "square" not in {op.name for op in graph.ops}


def test_inputs_that_are_none_for_xla_are_refused():
    with squares_for_sines() as found:
        concrete = traced(tf.sin, tf.TensorSpec((None,), tf.float32))
    with pytest.raises(LoweringError, match=r"must have a fully defined shape"):
        lower(AsWritten(concrete, found))
