"""Reductions whose result is spread over replicas, against NumPy."""

import doctest

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from replicas import in_groups, numbers, run, trace

from ipu_keras.ops import reduce_scatter_op
from ipu_keras.ops.reduce_scatter_op import reduce_scatter

REDUCTIONS = {
    "COLLECTIVE_OP_ADD": lambda x: x.sum(axis=0),
    "COLLECTIVE_OP_MUL": lambda x: x.prod(axis=0),
    "COLLECTIVE_OP_MIN": lambda x: x.min(axis=0),
    "COLLECTIVE_OP_MAX": lambda x: x.max(axis=0),
    "COLLECTIVE_OP_SQUARE_ADD": lambda x: (x * x).sum(axis=0),
    "COLLECTIVE_OP_MEAN": lambda x: x.mean(axis=0),
}


def parts(vector, size):
    """A vector in equal parts, with zeros at its end."""
    return np.pad(vector, (0, -len(vector) % size)).reshape(size, -1)


def reduce_scatter_by_numpy(x, size, reduce):
    return np.concatenate([parts(reduce(group), size) for group in in_groups(x, size)])


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize(("num_replicas", "size"), [(2, 2), (4, 4), (4, 2), (8, 4)])
def test_reductions(num_replicas, size, op, jit_compile):
    x = numbers(num_replicas, 7)
    found = run(lambda x: reduce_scatter(x, size, op), x, jit_compile=jit_compile)
    np.testing.assert_allclose(found, reduce_scatter_by_numpy(x, size, REDUCTIONS[op]))


def test_documented_example():
    """[x0, y0, z0] and [x1, y1, z1] become [x0 + x1, y0 + y1] and [z0 + z1, 0]."""
    x = np.array([[1, 2, 3], [10, 20, 30]], np.float32)
    np.testing.assert_array_equal(run(lambda x: reduce_scatter(x, 2), x), [[11, 22], [33, 0]])


@pytest.mark.parametrize(
    ("op", "reduce"),
    [("COLLECTIVE_OP_LOGICAL_AND", np.all), ("COLLECTIVE_OP_LOGICAL_OR", np.any)],
)
def test_logical(op, reduce):
    x = numbers(4, 7) > 0
    found = run(lambda x: reduce_scatter(x, 2, op), x)
    np.testing.assert_array_equal(
        found, reduce_scatter_by_numpy(x, 2, lambda group: reduce(group, axis=0))
    )


def test_local():
    """Each replica of a group keeps its part of its own vector."""
    x = numbers(4, 3)
    found = run(lambda x: reduce_scatter(x, 2, "COLLECTIVE_OP_LOCAL"), x)
    np.testing.assert_array_equal(found, [parts(x[k], 2)[k % 2] for k in range(4)])


def whole_upstream(weights, size, num_elements):
    """The weights of all parts of a group, for each of its replicas."""
    groups = in_groups(weights, size).reshape(-1, size * weights.shape[1])[:, :num_elements]
    return np.repeat(groups, size, axis=0)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(("num_replicas", "size"), [(2, 2), (4, 2)])
@pytest.mark.parametrize("op", [*REDUCTIONS, "COLLECTIVE_OP_LOCAL"])
def test_gradients(num_replicas, size, op, jit_compile):
    x, weights = numbers(num_replicas, 3), numbers(num_replicas, 2, seed=1)
    if op == "COLLECTIVE_OP_MUL":
        x[0, 0] = 0.0
    found = run(
        lambda x, weights: tf.gradients(reduce_scatter(x, size, op) * weights, x)[0],
        x,
        weights,
        jit_compile=jit_compile,
    )
    upstream = whole_upstream(weights, size, 3)
    np.testing.assert_allclose(found, upstream * derivatives(op, x, size), rtol=1e-6)


def derivatives(op, x, size):
    """By each replica's vector, of the elements of its group's result."""
    groups = in_groups(x, size)
    if op in ("COLLECTIVE_OP_MIN", "COLLECTIVE_OP_MAX"):
        # Replicas with the same extreme value share its gradient.
        chosen = groups == REDUCTIONS[op](np.swapaxes(groups, 0, 1))[:, np.newaxis]
        return (chosen / chosen.sum(axis=1, keepdims=True)).reshape(x.shape)
    if op == "COLLECTIVE_OP_MUL":
        others = [np.delete(groups, k, axis=1).prod(axis=1) for k in range(size)]
        return np.stack(others, axis=1).reshape(x.shape)
    if op == "COLLECTIVE_OP_LOCAL":
        return np.stack([np.arange(x.shape[1]) // 2 == k % size for k in range(len(x))])
    return {
        "COLLECTIVE_OP_ADD": np.ones_like(x),
        "COLLECTIVE_OP_MEAN": np.full_like(x, 1 / size),
        "COLLECTIVE_OP_SQUARE_ADD": 2 * x,
    }[op]


@settings(deadline=None, max_examples=15)
@given(st.sampled_from([2, 3, 4]), st.integers(1, 9), st.sampled_from(["float16", "int32"]))
def test_any_size(num_replicas, num_elements, dtype):
    x = numbers(num_replicas, num_elements, dtype=dtype)
    found = run(lambda x: reduce_scatter(x, num_replicas), x)
    assert found[0].dtype == dtype
    expected = reduce_scatter_by_numpy(x, num_replicas, REDUCTIONS["COLLECTIVE_OP_ADD"])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("op", [*REDUCTIONS, "COLLECTIVE_OP_LOCAL"])
def test_without_replication(op):
    x = numbers(3)
    expected = x * x if op == "COLLECTIVE_OP_SQUARE_ADD" else x
    np.testing.assert_array_equal(reduce_scatter(x, 1, op, name="anything"), expected)


def test_mistakes():
    with pytest.raises(ValueError, match=r"rank 1: .* Received: `x` of shape \(2, 3\)"):
        reduce_scatter(tf.zeros((2, 3)), 1)
    with pytest.raises(ValueError, match=r"COLLECTIVE_OP_LOCAL.*Received: op='ADD'"):
        reduce_scatter([1.0], 1, "ADD")
    with pytest.raises(ValueError, match="replication_factor=2 in a program of 1"):
        reduce_scatter([1.0], 2)
    with pytest.raises(TypeError, match=r"takes tensors of bool.*a tensor of float32"):
        reduce_scatter([1.0], 1, "COLLECTIVE_OP_LOGICAL_OR")
    with pytest.raises(TypeError, match=r"mean is one of floating point.*int32"):
        reduce_scatter([1], 1, "COLLECTIVE_OP_MEAN")
    with pytest.raises(ValueError, match=r"fully defined.*\(None,\)"):
        trace(lambda x: reduce_scatter(x, 2), 2, tf.TensorSpec((None,)))


def test_examples():
    assert doctest.testmod(reduce_scatter_op).failed == 0
