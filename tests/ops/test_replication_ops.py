"""The number of the replica."""

import doctest

import numpy as np
import pytest
import tensorflow as tf
from replicas import numbers, run, trace

from ipu_keras.ops import replication_ops
from ipu_keras.ops.replication_ops import replication_index


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("num_replicas", [2, 4])
def test_each_replica_has_its_own(num_replicas, jit_compile):
    x = numbers(num_replicas, 2, dtype=np.int32)
    found = run(lambda x: x * replication_index(), x, jit_compile=jit_compile)
    np.testing.assert_array_equal(found, x * np.arange(num_replicas)[:, np.newaxis])


def test_in_loops_and_branches():
    def function(x):
        x = tf.while_loop(lambda x: x < 5, lambda x: x + 1 + replication_index(), [x])[0]
        return tf.cond(x > 5, lambda: -replication_index(), lambda: x)

    # 0 -> 5; 0 -> 2 -> 4 -> 6
    assert run(function, np.zeros(2, np.int32)) == [5, -1]


def test_without_replication():
    index = trace(replication_index, 1)
    assert int(index()) == 0
    assert index.structured_outputs.dtype == tf.int32


def test_examples():
    assert doctest.testmod(replication_ops).failed == 0
