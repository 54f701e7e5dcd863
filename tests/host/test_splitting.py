"""A traced step in two parts: together they do what the step does."""

import keras
import numpy as np
import tensorflow as tf

from ipu_keras.host.splitting import before_return, open_step, split_step
from ipu_keras.host.step_order import opening_ops, sequential_ops
from ipu_keras.tracing import graph_of


def split(step, *specs):
    concrete = tf.function(step, autograph=False).get_concrete_function(*specs)
    return split_step(concrete, sequential_ops(graph_of(concrete)), concrete.structured_outputs)


def kinds(part):
    return {op.kind for op in graph_of(part.function).walk()}


def test_golden():
    weights = tf.Variable([[2.0], [3.0]])
    total = tf.Variable(10.0)

    def step(x, unused, factor):
        outputs = x @ weights
        total.assign_add(tf.reduce_sum(outputs) * factor)
        return {"total": total.read_value(), "outputs": outputs, "factor": factor}

    first, second = split(
        step, tf.TensorSpec((1, 2)), tf.TensorSpec((3,)), tf.TensorSpec((), tf.float32)
    )
    assert (first.inputs, second.inputs) == ((0, 2), (2,))
    assert "MatMul" in kinds(first) - kinds(second)
    assert "AssignAddVariableOp" in kinds(second) - kinds(first)

    kept, gradients = first.function(tf.constant([[1.0, 1.0]]), tf.constant(4.0))
    assert gradients == []
    assert total.numpy() == 10.0
    assert sorted(np.ravel(tensor)[0] for tensor in kept) == [5.0, 20.0]
    results = second.function(tf.constant(4.0), *kept)
    assert total.numpy() == 30.0
    assert {name: value.numpy().tolist() for name, value in results.items()} == {
        "total": 30.0,
        "outputs": [[5.0]],
        "factor": 4.0,
    }


def test_results_before_they_wait_for_what_is_written():
    total = tf.Variable(0.0)

    def step(x):
        total.assign_add(x)
        return x * 2.0, x

    concrete = tf.function(step, autograph=False).get_concrete_function(tf.TensorSpec(()))
    product, argument = map(before_return, concrete.structured_outputs)
    assert (product.op.type, product.op.control_inputs) == ("Mul", [])
    assert argument is concrete.inputs[0]
    assert before_return(product) is product


def test_constants_and_weights_are_in_both_parts():
    weights = tf.Variable(tf.ones((2, 2)))
    total = tf.Variable(tf.zeros((2, 2)))
    table = np.float32([[1.0, 2.0], [3.0, 4.0]])

    def step(x):
        total.assign(total * weights + table)
        return x @ weights

    first, second = split(step, tf.TensorSpec((2, 2)))
    assert len(first.function.outputs) == 1
    kept, _ = first.function(tf.ones((2, 2)))
    second.function(*kept)
    np.testing.assert_array_equal(total, table)


def test_operations_that_only_write_are_run():
    counter = tf.Variable(0)

    def step(x):
        counter.assign_add(1)
        return x @ x

    first, second = split(step, tf.TensorSpec((2, 2)))
    kept, _ = first.function(tf.ones((2, 2)))
    second.function(*kept)
    second.function(*kept)
    assert counter.numpy() == 2


def test_an_evaluation_step_of_keras():
    model = keras.Sequential(
        [keras.Input((6, 6, 1)), keras.layers.Conv2D(2, 3), keras.layers.Flatten()]
    )
    model.compile(loss="mse", metrics=["mae"])
    model.evaluate(np.zeros((2, 6, 6, 1)), np.zeros((2, 32)), verbose=0)

    first, second = split(model.test_step, (tf.TensorSpec((2, 6, 6, 1)), tf.TensorSpec((2, 32))))
    assert "Conv2D" in kinds(first) - kinds(second)
    assert "AssignAddVariableOp" not in kinds(first)
    # What crosses are the model's sums, not its outputs.
    assert (first.inputs, second.inputs) == ((0, 1), ())
    assert {tuple(tensor.shape) for tensor in first.function.outputs} == {()}


def test_what_is_drawn_before_all_else():
    seed, total = tf.Variable(3.0), tf.Variable(0.0)

    def step(x):
        drawn = seed.read_value()
        seed.assign_add(1.0)
        product = tf.squeeze(x @ x) * drawn
        total.assign_add(product)
        return {"product": product, "total": total.read_value(), "drawn": drawn}

    concrete = tf.function(step, autograph=False).get_concrete_function(tf.TensorSpec((1, 1)))
    heavy = {op.name for op in concrete.graph.get_operations() if op.type == "MatMul"}
    opening, rest = open_step(concrete, opening_ops(graph_of(concrete), heavy))
    assert (opening.inputs, rest.inputs) == ((), (0,))
    assert "MatMul" not in kinds(opening)
    drawn = [opening.function() for _ in range(2)]
    assert [float(value) for (value,) in drawn] == [3.0, 4.0]
    assert float(seed) == 5.0
    for (value,), expected in zip(drawn, (12.0, 16.0), strict=True):
        results = rest.function(tf.constant([[2.0]]), value)
        assert float(results["product"]) == expected
    assert {name: float(value) for name, value in results.items()} == {
        "product": 16.0,
        "total": 28.0,
        "drawn": 4.0,
    }
    assert (float(seed), float(total)) == (5.0, 28.0)


def test_gradients_are_not_kept_for_the_second_part():
    """What the step returns of them waits for what it writes, and so counts as the second part."""
    total = tf.Variable(0.0)

    def step(x):
        total.assign_add(tf.reduce_sum(x))
        return total.read_value(), tf.square(x)

    concrete = tf.function(step, autograph=False).get_concrete_function(tf.TensorSpec((2,)))
    read, gradient = map(before_return, concrete.structured_outputs)
    sequential = sequential_ops(graph_of(concrete))
    assert concrete.structured_outputs[1].op.name in sequential
    first, second = split_step(concrete, sequential, read, [gradient])
    kept, gradients = first.function.structured_outputs
    assert [before_return(tensor).op.type for tensor in kept] == ["Sum"]
    assert [before_return(tensor).op.type for tensor in gradients] == ["Square"]
    assert second.inputs == ()
