"""Steps that are traced once: their parts do what they do as a whole."""

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.host.rewrites.all_rewrites import Purpose
from ipu_keras.host.step_in_a_graph import StepInAGraph, accumulated
from ipu_keras.ir import TensorSpec

X = TensorSpec((2, 3), "float32")
PURPOSE = Purpose(for_xla=True, onednn=False, fast_math=False, accumulates=True)


def traced(step, **purpose):
    return StepInAGraph.trace(
        "work", step, [X], purpose=Purpose(**{**vars(PURPOSE), **purpose}), num_replicas=1
    )


class Regression:
    """A weight, how often it was used, and a rate that is computed in the step."""

    def __init__(self):
        self.weight, self.uses = tf.Variable(tf.ones((3, 1))), tf.Variable(0)
        self.rate = tf.Variable(0.5)

    def step(self, x):
        self.uses.assign_add(1)
        rate = self.rate * 2.0
        outputs = x @ self.weight
        gradient = accumulated(tf.transpose(x) @ outputs)
        self.weight.assign_sub(rate * gradient)
        return [outputs]


def test_the_parts_of_a_step_that_trains():
    x = tf.reshape(tf.range(6.0), (2, 3))
    model = Regression()
    step = traced(model.step)
    (outputs,), (gradient,) = step.function(x)
    np.testing.assert_array_equal(outputs, [[3.0], [12.0]])
    np.testing.assert_array_equal(gradient, [[36.0], [51.0], [66.0]])
    # Only the update changes the weight, and only the step counts.
    assert (int(model.uses), float(model.weight[0, 0])) == (1, 1.0)
    step.update(tf.constant([[1.0], [2.0], [3.0]]))
    assert int(model.uses) == 1
    np.testing.assert_array_equal(model.weight, [[0.0], [-1.0], [-2.0]])


def test_the_whole_is_what_was_written():
    model = Regression()
    step = traced(model.step)
    assert step.as_written() is step.whole
    step.whole(tf.ones((2, 3)))
    np.testing.assert_array_equal(model.weight, tf.fill((3, 1), 1.0 - 6.0))


def test_it_is_not_traced_again():
    traces = []

    def step(x):
        traces.append(x)
        return [tf.nn.dropout(x, 0.5, seed=3)]

    found = traced(step, accumulates=False)
    assert not found.can_be_traced_again
    assert found.for_tensorflow().results[0].shape == (2, 3)
    assert len(traces) == 1


def test_variables_are_made_whenever_it_is_traced():
    made = []

    def step(x):
        made.append(tf.Variable(lambda: tf.ones((3,))))
        return [x + made[-1]]

    for _ in range(2):
        (found,) = traced(step, accumulates=False).function(tf.zeros((2, 3)))
        np.testing.assert_array_equal(found, np.ones((2, 3)))


def test_an_update_that_needs_a_batch_is_refused():
    weight = tf.Variable(tf.ones((3,)))

    def step(x):
        weight.assign_sub(accumulated(x[0]) * x[1, 0])
        return []

    with pytest.raises(ValueError, match="gradients of several batches, and nothing else of a"):
        traced(step)
