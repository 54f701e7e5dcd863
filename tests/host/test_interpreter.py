"""What runs the operations of a traced function one by one."""

import pytest
import tensorflow as tf

from ipu_keras.host.interpreter import Interpreter


@pytest.mark.parametrize("turns", [0, 3])
def test_gradients_of_loops(turns):
    """They add lists to what a loop takes, which are made after the loop."""

    @tf.function
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            _, power = tf.while_loop(
                lambda k, y: k < turns, lambda k, y: (k + 1, y * x), (0, x), maximum_iterations=3
            )
        return tape.gradient(power, x)

    seen = []

    def observe(op, place, inputs, run):
        seen.append(op.type)
        return run(*inputs)

    x = tf.constant([2.0, -1.0])
    [found] = Interpreter(gradient.get_concrete_function(x), observe)([x])
    assert found.numpy().tolist() == {0: [1.0, 1.0], 3: [32.0, -4.0]}[turns]
    assert seen.count("TensorListPushBack") > 0 or turns == 0
