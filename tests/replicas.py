"""Runs a function as the replicas of a program do: traced once, for all of them."""

import numpy as np
import tensorflow as tf

from ipu_keras.host.replicas.segments import replicate
from ipu_keras.tracing.replication import replicated


def trace(function, num_replicas, *specs):
    """The trace of one replica."""
    traced = tf.function(function, autograph=False)
    with replicated(num_replicas):
        return traced.get_concrete_function(*specs)


def run(function, *arguments, jit_compile=False):
    """What each replica returns, as NumPy arrays.

    Args:
        function: Of tensors.
        arguments: Arrays; the first axis of each is the replica.
        jit_compile: Whether XLA compiles all replicas.
    """
    specs = [tf.TensorSpec(array.shape[1:], array.dtype) for array in arguments]
    num_replicas = len(arguments[0])
    together = replicate(trace(function, num_replicas, *specs), num_replicas)
    inputs = [[tf.constant(array[k]) for array in arguments] for k in range(num_replicas)]
    results = tf.function(together, jit_compile=jit_compile)(inputs)
    return tf.nest.map_structure(lambda t: None if t is None else t.numpy(), results)


def numbers(*shape, dtype=np.float32, seed=0):
    """Small numbers, none of which is zero, and whose sums are exact in float16."""
    random = np.random.default_rng(seed)
    return (random.integers(1, 4, shape) * random.choice([-1, 1], shape)).astype(dtype)


def in_groups(array, size):
    """The first axis, of replicas, as two: of groups, and within a group."""
    return array.reshape(len(array) // size, size, *array.shape[1:])


def repeated(array, size):
    """What each replica has of which each group has one."""
    return np.repeat(array, size, axis=0)
