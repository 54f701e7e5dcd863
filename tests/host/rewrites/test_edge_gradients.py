"""Gradients of roots and reciprocals in XLA's programs: those of TensorFlow's kernels."""

import contextlib
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.host.rewrites.edge_gradients import edge_gradients
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM

NUMBERS = [0.0, -0.0, 2.0, -3.0, np.inf, -np.inf, np.nan]
RESULTS, GRADIENTS = map(np.array, zip(*itertools.product(NUMBERS, NUMBERS), strict=True))


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("kind", ["ReciprocalGrad", "RsqrtGrad", "SqrtGrad"])
def test_gradients_of_roots_are_those_of_the_kernel(kind, dtype):
    def kernel(y, dy):
        return getattr(tf.raw_ops, kind)(y=y, dy=dy)

    given = [tf.constant(values, dtype) for values in (RESULTS, GRADIENTS)]
    check(kernel, *given)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16], ids=lambda dtype: dtype.name)
def test_gradients_of_selu_are_those_of_the_kernel(dtype):
    def kernel(outputs, gradients):
        return tf.raw_ops.SeluGrad(gradients=gradients, outputs=outputs)

    outputs = tf.constant([-1.5, -1e-3, -0.0, 0.0, 1e-3, 2.0], dtype)
    check(kernel, outputs, tf.constant([1.0, 2.0, -3.0, 0.1, 0.7, 1.3], dtype))


def check(kernel, *given):
    """XLA computes it as the kernel does, which it does not by itself."""

    def compiled(*given):
        with edge_gradients():
            return kernel(*given)

    expected = kernel(*given)
    ours = tf.function(compiled, jit_compile=True, autograph=False)(*given)
    tolerance = 1e-3 if expected.dtype == tf.float16 else 1e-6
    np.testing.assert_allclose(ours, expected, rtol=tolerance)
    alone = tf.function(kernel, jit_compile=True, autograph=False)(*given)
    assert not np.allclose(alone, expected, rtol=0.1, equal_nan=True)


def trained(scope):
    """A model whose outputs are zero, as of rectified inputs that are all negative."""
    keras.utils.set_random_seed(1)
    with scope:
        model = keras.Sequential(
            [
                keras.Input((3,)),
                keras.layers.Dense(4, "relu", kernel_initializer="ones"),
                keras.layers.UnitNormalization(),
                keras.layers.Dense(2, use_bias=False),
            ]
        )
        model.compile("sgd", "cosine_similarity", steps_per_execution=2)
        inputs, labels = -np.ones((8, 3), np.float32), np.ones((8, 2), np.float32)
        loss = model.fit(inputs, labels, batch_size=2, verbose=0).history["loss"]
    return model.get_weights(), loss


def test_a_model_whose_outputs_are_zero_trains_as_in_stock_keras():
    stock, stock_loss = trained(contextlib.nullcontext())
    SYSTEM.reset()
    ours, loss = trained(IPUStrategy().scope())
    assert np.isfinite(stock_loss).all()
    assert loss == stock_loss
    for mine, theirs in zip(ours, stock, strict=True):
        np.testing.assert_array_equal(mine, theirs)
