"""What executions read and send is kept, in the order in which they did."""

import numpy as np
import tensorflow as tf

from ipu_keras.host.interpreter import Interpreter
from ipu_keras.host.kept_transfers import KeptTransfers


def shown(op, place, inputs, run):
    return run(*inputs)


def test_what_a_loop_reads_and_sends():
    queue = tf.queue.FIFOQueue(10, [tf.float32], [[]])
    elements = iter(tf.data.Dataset.range(10))

    @tf.function(input_signature=[])
    def execution():
        total = tf.constant(0.0)
        for _ in tf.range(3):
            total += tf.cast(next(elements), tf.float32)
            queue.enqueue(total / 2.0)
        return total

    concrete = execution.get_concrete_function()
    transfers = KeptTransfers(concrete)
    assert float(transfers.function()) == 0 + 1 + 2
    values = transfers.values()
    found = {one.is_sent: np.ravel(lists).tolist() for one, lists in values.items()}
    assert found == {False: [0, 1, 2], True: [0.0, 0.5, 1.5]}

    again = transfers.again(values)
    assert [int(tensor) for tensor in again.read] == [0, 1, 2]
    [total] = Interpreter(concrete, shown, instead=again.instead)([])
    assert (float(total), int(queue.size()), int(next(elements))) == (3.0, 3, 3)

    transfers.clear()
    assert all(lists == [] for lists in transfers.values().values())


def test_a_function_that_reads_and_sends_nothing_stays_as_it_is():
    concrete = tf.function(lambda x: x + 1.0).get_concrete_function(tf.TensorSpec([]))
    transfers = KeptTransfers(concrete)
    assert transfers.function is concrete
    assert transfers.kept == ()
