"""Gradient descent with momentum of any type: against Keras's own, and by hand."""

import doctest

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src import testing

from ipu_addons.keras.optimizers import SGDIpuOptimizer, sgd_ipu_optimizer


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_is_sgd_of_keras_in_float32(trained_by, momentum, nesterov):
    options = {"learning_rate": 0.01, "momentum": momentum, "nesterov": nesterov}
    found, expected = (
        trained_by(make(**options)) for make in (SGDIpuOptimizer, keras.optimizers.SGD)
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("nesterov", "expected"),
    # Velocities are -2 and -1; Nesterov's looks half a velocity further.
    [(False, [8.0, 7.0]), (True, [7.0, 6.5])],
)
def test_two_steps_by_hand(nesterov, expected):
    weight = keras.Variable([10.0])
    optimizer = SGDIpuOptimizer(0.5, momentum=0.5, nesterov=nesterov)
    found = []
    for gradient in (4.0, 0.0):
        optimizer.apply([[gradient]], [weight])
        found.append(float(weight.numpy()[0]))
    assert found == expected


def test_type_of_the_momentum():
    weight = keras.Variable([1.0], dtype="float16")
    optimizer = SGDIpuOptimizer(1.0, momentum=0.5, momentum_accum_dtype=tf.float32)
    # Too little for the weight, but not for the momentum, which adds up to it.
    for _ in range(2):
        optimizer.apply([tf.constant([0.0003], tf.float16)], [weight])
    velocity = optimizer.variables[2]
    assert velocity.dtype == "float32"
    np.testing.assert_allclose(velocity.numpy(), [-1.5 * np.float16(0.0003)], rtol=1e-6)
    # Half a unit in the last place is 2**-12.
    np.testing.assert_array_equal(weight.numpy(), [np.float16(1.0 - 2**-11 * 2)])


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("first", ["float16", "float32"])
@pytest.mark.parametrize("second", ["float16", "float32"])
def test_compute_precisions(nesterov, first, second):
    random = np.random.default_rng(0)
    weight = start = random.normal(size=(20, 30)).astype(np.float32)
    gradients = random.normal(size=(4, 20, 30)).astype(np.float32)
    trained = keras.Variable(start)
    precisions = (tf.as_dtype(first), second)
    optimizer = SGDIpuOptimizer(0.3, 0.9, nesterov, optimizer_compute_precisions=precisions)
    velocity = np.zeros_like(start)
    for gradient in gradients:
        optimizer.apply([gradient], [trained])
        step = gradient.astype(first) * np.dtype(first).type(0.3)
        moved = velocity.astype(first) * np.dtype(first).type(0.9) - step
        change = moved * np.dtype(first).type(0.9) - step if nesterov else moved
        weight = (weight.astype(second) + change.astype(second)).astype(np.float32)
        velocity = moved.astype(np.float32)
    np.testing.assert_array_equal(optimizer.variables[2].numpy(), velocity)
    np.testing.assert_array_equal(trained.numpy(), weight)


def test_one_compute_precision_is_for_both():
    weight = keras.Variable([1.0])
    SGDIpuOptimizer(1.0, optimizer_compute_precisions=(tf.float16,)).apply([[2.0**-12]], [weight])
    assert weight.numpy()[0] == 1.0  # 1 - 2**-12 lies between two numbers of float16


def test_without_momentum_there_is_no_state():
    optimizer = SGDIpuOptimizer(momentum_accum_dtype="float16")
    optimizer.build([keras.Variable([1.0])])
    assert [v.name for v in optimizer.variables] == ["iteration", "learning_rate"]


def test_serialization():
    optimizer = SGDIpuOptimizer(0.1, 0.9, True, "mine", "float16", ("float32", tf.float16))
    testing.TestCase().run_class_serialization_test(optimizer)
    config = optimizer.get_config()
    assert (config["momentum"], config["nesterov"]) == (0.9, True)
    assert config["momentum_accum_dtype"] == "float16"
    assert config["optimizer_compute_precisions"] == ("float32", "float16")


def test_wrong_momentum():
    with pytest.raises(ValueError, match=r"^`momentum` must be between \[0, 1\]. Received: "):
        SGDIpuOptimizer(momentum=1.5)


def test_wrong_precisions():
    with pytest.raises(
        ValueError, match=r"^`optimizer_compute_precisions` must be a tuple of size 2"
    ):
        SGDIpuOptimizer(optimizer_compute_precisions=("float32",) * 3)


def test_examples_in_the_documentation():
    assert doctest.testmod(sgd_ipu_optimizer).failed == 0
