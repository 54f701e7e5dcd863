"""Data that moves between replicas, against NumPy."""

import doctest

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from replicas import in_groups, numbers, repeated, run, trace

from ipu_keras.ops import all_to_all_op
from ipu_keras.ops.all_to_all_op import all_gather, all_to_all

GROUPS = [(2, 2), (2, 1), (4, 4), (4, 2), (8, 2), (8, 4)]


def all_to_all_by_numpy(x, split, concat):
    blocks = [np.split(each, len(x), axis=split) for each in x]
    return np.stack(
        [np.concatenate(received, axis=concat) for received in zip(*blocks, strict=True)]
    )


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(("num_replicas", "size"), GROUPS)
def test_all_gather(num_replicas, size, jit_compile):
    x = numbers(num_replicas, 3, 2)
    found = run(lambda x: all_gather(x, size), x, jit_compile=jit_compile)
    np.testing.assert_array_equal(found, repeated(in_groups(x, size), size))


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(("num_replicas", "size"), [(2, 2), (4, 4), (4, 2)])
def test_gradient_of_all_gather(num_replicas, size, jit_compile):
    """What a replica gave comes back from all that gathered it, added up."""
    x, weights = numbers(num_replicas, 3, 2), numbers(num_replicas, size, 3, 2, seed=1)

    def gradient(x, weights):
        return tf.gradients(all_gather(x, size) ** 2 * weights, x)[0]

    found = run(gradient, x, weights, jit_compile=jit_compile)
    sums = in_groups(weights, size).sum(axis=1).reshape(num_replicas, 3, 2)
    np.testing.assert_array_equal(found, 2 * x * sums)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(("split", "concat"), [(0, 0), (0, 1), (1, 0), (2, 1)])
@pytest.mark.parametrize("num_replicas", [2, 4])
def test_all_to_all(num_replicas, split, concat, jit_compile):
    x = numbers(num_replicas, 4, 8, 4)
    found = run(lambda x: all_to_all(x, split, concat, num_replicas), x, jit_compile=jit_compile)
    np.testing.assert_array_equal(found, all_to_all_by_numpy(x, split, concat))


@pytest.mark.parametrize(("split", "concat"), [(0, 0), (0, 1), (1, 0)])
def test_gradient_of_all_to_all(split, concat):
    x = numbers(2, 4, 2)
    weights = numbers(*all_to_all_by_numpy(x, split, concat).shape, seed=1)

    def gradient(x, weights):
        return tf.gradients(all_to_all(x, split, concat, 2) ** 2 * weights, x)[0]

    found = run(gradient, x, weights)
    np.testing.assert_array_equal(found, 2 * x * all_to_all_by_numpy(weights, concat, split))


@pytest.mark.parametrize("dtype", ["float16", "int32", "uint32", "bool", "int8", "uint8"])
def test_each_type(dtype):
    x = (numbers(2, 4) > 0).astype(dtype)
    gathered, exchanged = zip(
        *run(lambda x: (all_gather(x, 2), all_to_all(x, 0, 0, 2)), x), strict=True
    )
    assert gathered[0].dtype == exchanged[0].dtype == dtype
    np.testing.assert_array_equal(gathered[1], x)
    np.testing.assert_array_equal(exchanged, all_to_all_by_numpy(x, 0, 0))


@settings(deadline=None, max_examples=15)
@given(st.data())
def test_any_shape(data):
    num_replicas = data.draw(st.sampled_from([2, 3, 4]), "replicas")
    shape = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3), "shape")
    split, concat = (data.draw(st.integers(0, len(shape) - 1)) for _ in range(2))
    shape[split] *= num_replicas
    x = numbers(num_replicas, *shape)

    def function(x):
        return all_to_all(x, split, concat, num_replicas), all_gather(x, num_replicas)

    exchanged, gathered = zip(*run(function, x), strict=True)
    np.testing.assert_array_equal(exchanged, all_to_all_by_numpy(x, split, concat))
    np.testing.assert_array_equal(gathered, [x] * num_replicas)


def test_without_replication():
    x = numbers(2, 3)
    np.testing.assert_array_equal(all_gather(x, 1), x[np.newaxis])
    np.testing.assert_array_equal(all_to_all(x, 0, 1, 1, name="anything"), x)


def test_other_numbers_of_replicas():
    with pytest.raises(ValueError, match="Received: replication_factor=3 in a program of 4"):
        trace(lambda x: all_gather(x, 3), 4, tf.TensorSpec(()))
    with pytest.raises(ValueError, match="Received: replication_factor=2 in a program of 1"):
        all_gather(1.0, 2)
    with pytest.raises(ValueError, match="Received: replication_factor=2 in a program of 4"):
        trace(lambda x: all_to_all(x, 0, 0, 2), 4, tf.TensorSpec((4,)))


def test_axes_that_cannot_be():
    with pytest.raises(ValueError, match=r"concat_dimension=2 for shape \(2, 3\)"):
        trace(lambda x: all_to_all(x, 0, 2, 2), 2, tf.TensorSpec((2, 3)))
    with pytest.raises(ValueError, match="split_dimension=-1"):
        trace(lambda x: all_to_all(x, -1, 0, 2), 2, tf.TensorSpec((2, 3)))
    with pytest.raises(
        ValueError, match=r"must be a multiple.*split_dimension=1 of shape \(2, 3\)"
    ):
        trace(lambda x: all_to_all(x, 1, 0, 2), 2, tf.TensorSpec((2, 3)))


def test_a_type_that_does_not_move():
    with pytest.raises(TypeError, match=r"`all_gather` takes tensors of .*`x`, a tensor of int64"):
        all_gather(tf.constant(1, tf.int64), 1)


def test_examples():
    assert doctest.testmod(all_to_all_op).failed == 0
