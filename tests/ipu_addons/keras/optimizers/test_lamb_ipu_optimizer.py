"""LAMB: against Keras's own, against NumPy, and by hand."""

import doctest
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src import testing

from ipu_addons.keras.optimizers import LAMBIpuOptimizer, lamb_ipu_optimizer


def lamb_by_numpy(weight, gradients, *, decay=0.0, debiasing=True, clip=np.inf, adapts=True):
    """As in the paper, with a learning rate of 0.1 and the default betas."""
    m = v = np.zeros_like(weight)
    for t, gradient in enumerate(gradients, start=1):
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        corrections = (1 - 0.9**t, 1 - 0.999**t) if debiasing else (1, 1)
        update = m / corrections[0] / (np.sqrt(v / corrections[1]) + 1e-6) + decay * weight
        ratio = min(np.linalg.norm(weight), clip) / np.linalg.norm(update) if adapts else 1
        weight = weight - 0.1 * ratio * update
    return weight


def weight_of(name, values, dtype="float32"):
    return keras.Variable(values, dtype=dtype, name=name)


def test_is_lamb_of_keras_in_float32(trained_by):
    found = trained_by(LAMBIpuOptimizer(0.01, beta_1=0.8))
    expected = trained_by(keras.optimizers.Lamb(0.01, beta_1=0.8, epsilon=1e-6))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "reference"),
    [
        ({"weight_decay_rate": 0.1}, {"decay": 0.1}),
        ({"debiasing": False}, {"debiasing": False}),
        ({"weight_norm_clip": 0.5}, {"clip": 0.5}),
        ({"exclude_from_layer_adaptation": ["kern"]}, {"adapts": False}),
        ({"exclude_from_layer_adaptation": ["bias"], "weight_decay_rate": 1.0}, {"decay": 1.0}),
        # What does not decay is not adapted either, unless told otherwise.
        ({"exclude_from_weight_decay": ["^kernel$"], "weight_decay_rate": 1.0}, {"adapts": False}),
        (
            {
                "exclude_from_weight_decay": ["kernel"],
                "weight_decay_rate": 1.0,
                "exclude_from_layer_adaptation": [],
            },
            {},
        ),
    ],
)
def test_options(options, reference):
    random = np.random.default_rng(0)
    start, gradients = random.normal(size=(3, 2)), random.normal(size=(5, 3, 2))
    weight = weight_of("kernel", start)
    optimizer = LAMBIpuOptimizer(0.1, **options)
    for gradient in gradients:
        optimizer.apply([gradient.astype("float32")], [weight])
    expected = lamb_by_numpy(start, gradients, **reference)
    np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-4)


def test_a_step_by_hand():
    weights = [weight_of("a", [3.0, 4.0]), weight_of("b", [0.0, 0.0]), weight_of("c", [1.0])]
    LAMBIpuOptimizer(0.5, epsilon=1e-12).apply([[7.0, -7.0], [7.0, 7.0], [0.0]], weights)
    # Updates are signs of gradients; the first is scaled by 5 / sqrt(2), the others by 1.
    step = 0.5 * 5 / np.sqrt(2)
    np.testing.assert_allclose(weights[0].numpy(), [3.0 - step, 4.0 + step], rtol=1e-5)
    np.testing.assert_allclose(weights[1].numpy(), [-0.5, -0.5], rtol=1e-5)
    np.testing.assert_array_equal(weights[2].numpy(), [1.0])


def test_patterns_find_layers():
    model = keras.Sequential(
        [keras.Input([2]), keras.layers.LayerNormalization(name="norm"), keras.layers.Dense(1)]
    )
    optimizer = LAMBIpuOptimizer(
        weight_decay_rate=1.0, exclude_from_weight_decay=["norm/", "bias"], learning_rate=0.5
    )
    model.set_weights([np.ones_like(weight) for weight in model.get_weights()])
    optimizer.apply([tf.zeros_like(w) for w in model.trainable_weights], model.trainable_weights)
    # Without gradients only decay is left: of a norm of its own, at half the rate.
    values = [(w.name, float(w.numpy().flat[0])) for w in model.trainable_weights]
    assert values == [("gamma", 1.0), ("beta", 1.0), ("kernel", 0.5), ("bias", 1.0)]


def test_variables_of_tensorflow():
    weight = tf.Variable([1.0], name="kernel")
    optimizer = LAMBIpuOptimizer(0.5, weight_decay_rate=1.0, exclude_from_weight_decay=["kernel$"])
    optimizer.apply([tf.constant([0.0])], [weight])
    assert float(weight[0]) == 1.0


def test_types_of_state_and_computation(trained_by):
    options = {"m_dtype": "float16", "v_dtype": "bfloat16"}
    optimizer = LAMBIpuOptimizer(0.01, **options)
    rounded = trained_by(optimizer)
    kinds = {v.name.rpartition("_")[2]: v.dtype for v in optimizer.variables[2:]}
    assert kinds == {"momentum": "float16", "velocity": "bfloat16"}
    for one, other in zip(rounded, trained_by(LAMBIpuOptimizer(0.01)), strict=True):
        np.testing.assert_allclose(one, other, rtol=0.1, atol=0.1)


def test_each_part_has_its_precision():
    gradient = np.float32(1e-4)
    moments = []
    for precisions in ((tf.float32, tf.float32), (tf.float16, tf.float32)):
        optimizer = LAMBIpuOptimizer(v_dtype="float32", optimizer_compute_precisions=precisions)
        optimizer.apply([[gradient]], [weight_of("w", [1.0])])
        moments.append(float(optimizer.variables[3].numpy()[0]))
    # The square of the gradient is zero in float16.
    assert moments == [pytest.approx(1e-11, rel=1e-3), 0.0]

    # In float16, 1 + 2**-11 is 1.
    found = []
    for precision in (tf.float32, tf.float16):
        weight = weight_of("w", [1.0])
        optimizer = LAMBIpuOptimizer(
            2.0**-12,
            optimizer_compute_precisions=(tf.float32, precision),
            exclude_from_layer_adaptation=["w"],
        )
        optimizer.apply([[-1.0]], [weight])
        found.append(float(weight.numpy()[0]))
    assert found == [pytest.approx(1 + 2.0**-12, abs=1e-8), 1.0]


def test_serialization():
    optimizer = LAMBIpuOptimizer(
        weight_decay_rate=0.1,
        exclude_from_weight_decay=["bias", "norm"],
        exclude_from_layer_adaptation=["norm"],
        debiasing=False,
        m_dtype=tf.float16,
        weight_norm_clip=2,
        optimizer_compute_precisions=(tf.float16, tf.float32),
    )
    testing.TestCase().run_class_serialization_test(optimizer)
    config = optimizer.get_config()
    assert list(config["exclude_from_weight_decay"]) == ["bias", "norm"]
    assert list(config["optimizer_compute_precisions"]) == ["float16", "float32"]
    assert config["weight_norm_clip"] == 2.0


def test_wrong_options():
    message = "`optimizer_compute_precisions` must be a tuple of size 2: "
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        LAMBIpuOptimizer(optimizer_compute_precisions=(tf.float32,))
    with pytest.raises(TypeError, match="must be floating point types"):
        LAMBIpuOptimizer(optimizer_compute_precisions=(tf.float32, None))
    message = "`exclude_from_weight_decay` must be a list of regular expressions. Received: "
    with pytest.raises(TypeError, match=f"^{re.escape(message)}exclude_from_weight_decay='bias'"):
        LAMBIpuOptimizer(exclude_from_weight_decay="bias")


def test_examples_in_the_documentation():
    assert doctest.testmod(lamb_ipu_optimizer).failed == 0
