"""Functions of some of a traced function's operations."""

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.tracing.extraction import extract, feeds_of


def trace(function, *specs):
    return tf.function(function, autograph=False).get_concrete_function(*specs)


def tensor(concrete, name):
    return concrete.graph.get_tensor_by_name(name)


@pytest.fixture
def concrete():
    """(x, y, z) -> sum((x @ weights + z) * 2), which also counts its calls."""
    weights = tf.Variable([[1.0, 2.0], [3.0, 4.0]], name="weights")
    calls = tf.Variable(0, name="calls")

    def function(x, y, z):
        calls.assign_add(1)
        product = tf.matmul(x, weights, name="product")
        added = tf.add(product, z, name="added")
        return {"sum": tf.reduce_sum(added * 2.0), "y": y}

    traced = trace(function, *[tf.TensorSpec((1, 2))] * 3)
    traced.weights, traced.calls = weights, calls  # which nobody else keeps
    return traced


ONES = tf.ones((1, 2))


def test_golden(concrete):
    part = extract(concrete, tensor(concrete, "added:0"))
    assert part.inputs == (0, 2)
    np.testing.assert_array_equal(part.function(ONES, 10.0 * ONES), [[14, 16]])
    assert concrete.calls.numpy() == 0


def test_callbacks_of_users_do_not_see_it(concrete):
    tf.debugging.enable_check_numerics()
    try:
        part = extract(concrete, tensor(concrete, "added:0"))
    finally:
        tf.debugging.disable_check_numerics()
    kinds = {op.type for op in part.function.graph.get_operations()}
    assert not {kind for kind in kinds if "Numeric" in kind}, kinds


def test_given_tensors_come_after_the_inputs(concrete):
    (product,) = [op for op in concrete.graph.get_operations() if op.type == "MatMul"]
    part = extract(concrete, tensor(concrete, "added:0"), given=product.outputs)
    assert part.inputs == (2,)
    np.testing.assert_array_equal(part.function(ONES, [[5.0, 6.0]]), [[6, 7]])
    assert "MatMul" not in {op.type for op in part.function.graph.get_operations()}


def test_a_structure_of_results_with_inputs_and_given_tensors(concrete):
    _, y, z = feeds_of(concrete)
    product = tensor(concrete, "product:0")
    part = extract(concrete, {"y": y, "z": [z, product]}, given=[product])
    assert part.inputs == (1, 2)
    results = part.function(ONES, 2.0 * ONES, 3.0 * ONES)
    assert {name: np.max(value) for name, value in results.items()} == {"y": 1.0, "z": 3.0}


def test_controls_are_run(concrete):
    part = extract(concrete, feeds_of(concrete)[:1], controls=concrete.graph.control_outputs)
    part.function(ONES)
    part.function(ONES)
    assert concrete.calls.numpy() == 2


def test_what_is_left_out(concrete):
    """The function's results wait for the counter, which is not there."""
    (count,) = [op for op in concrete.graph.get_operations() if op.type == "AssignAddVariableOp"]
    part = extract(concrete, concrete.structured_outputs, without={count.name})
    np.testing.assert_allclose(part.function(ONES, ONES, ONES)["sum"], 24.0)
    assert concrete.calls.numpy() == 0


def test_names_and_variables_stay(concrete):
    part = extract(concrete, concrete.structured_outputs)
    names = {op.name for op in part.function.graph.get_operations()}
    assert {"product", "added"} <= names
    assert {v.name for v in part.function.graph.variables} == {"weights:0", "calls:0"}
    np.testing.assert_allclose(part.function(ONES, ONES, ONES)["sum"], 24.0)
    assert concrete.calls.numpy() == 1


def test_functions_that_are_called(concrete):
    del concrete

    @tf.function
    def inner(x):
        return tf.cond(tf.reduce_sum(x) > 1.0, lambda: x * 3.0, lambda: x)

    traced = trace(lambda x: inner(x) + 1.0, tf.TensorSpec((1, 2)))
    part = extract(traced, traced.structured_outputs)
    np.testing.assert_array_equal(part.function(ONES), [[4, 4]])


def test_shapes_that_python_has_said():
    """Of what is found in a table, such as that of a layer `IntegerLookup`."""
    values = tf.lookup.KeyValueTensorInitializer([1, 2], [3, 4])
    table = tf.lookup.StaticHashTable(values, 0)
    traced = trace(lambda x: table.lookup(x) + 1, tf.TensorSpec((2, 3), tf.int32))
    part = extract(traced, traced.structured_outputs)
    assert part.function.outputs[0].shape == (2, 3)
    np.testing.assert_array_equal(part.function(tf.constant([[1, 2, 3]] * 2)), [[4, 5, 1]] * 2)


def test_other_operands(concrete):
    """The sum takes the product itself in place of what is added to it."""
    added, product = tensor(concrete, "added:0"), tensor(concrete, "product:0")
    part = extract(
        concrete, {"sum": concrete.structured_outputs["sum"]}, instead={added.ref(): product}
    )
    assert part.inputs == (0,)
    np.testing.assert_allclose(part.function(ONES)["sum"], 20.0)
    assert "added" not in {op.name for op in part.function.graph.get_operations()}
