"""Gradients changed by a function."""

import doctest
import re

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.optimizers import MapGradientOptimizer, map_gradient_optimizer

v1 = tf.compat.v1


def test_decay_of_weights_in_a_session():
    with tf.Graph().as_default(), v1.Session() as session:
        values = [1.0, 2.0, 3.0]
        weights = [v1.get_variable(f"w{k}", initializer=[value]) for k, value in enumerate(values)]
        unused = v1.get_variable("unused", initializer=0.0)
        a, b, c = weights
        optimizer = MapGradientOptimizer(
            v1.train.GradientDescentOptimizer(1.0), lambda gradient, w: gradient + 0.01 * w
        )
        pairs = optimizer.compute_gradients(a * b + a * c + b * c, [*weights, unused])
        assert [variable is w for (_, variable), w in zip(pairs, weights, strict=False)] == [
            True
        ] * 3
        assert pairs[3] == (None, unused)
        apply = optimizer.apply_gradients(pairs)
        session.run(v1.global_variables_initializer())
        found = session.run([gradient for gradient, _ in pairs[:3]])
        np.testing.assert_allclose(np.ravel(found), [5.01, 4.02, 3.03], rtol=1e-6)
        session.run(apply)
        np.testing.assert_allclose(np.ravel(session.run(weights)), [-4.01, -2.02, -0.03], rtol=1e-5)


def test_minimize(in_session):
    def make():
        return MapGradientOptimizer(v1.train.GradientDescentOptimizer(1.0), lambda g, _: -g)

    np.testing.assert_array_equal(in_session(make, [1.0, 2.0])[:, 0], [2.0, 4.0])


def test_not_a_function():
    message = "`gradient_mapping_function` must be a function of a gradient and its variable. "
    with pytest.raises(TypeError, match=f"^{re.escape(message)}Received: gradient_mapping"):
        MapGradientOptimizer(v1.train.GradientDescentOptimizer(1.0), 0.5)


def test_examples_in_the_documentation():
    assert doctest.testmod(map_gradient_optimizer).failed == 0
