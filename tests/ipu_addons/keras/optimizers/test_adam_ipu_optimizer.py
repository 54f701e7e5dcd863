"""Adam with state of any type: against Keras's own, and by hand."""

import doctest
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src import testing

from ipu_addons.keras.optimizers import AdamIpuOptimizer, adam_ipu_optimizer


@pytest.mark.parametrize("amsgrad", [False, True])
def test_is_adam_of_keras_in_float32(trained_by, amsgrad):
    options = {"learning_rate": 0.01, "beta_1": 0.8, "epsilon": 1e-5, "amsgrad": amsgrad}
    found, expected = (
        trained_by(make(**options)) for make in (AdamIpuOptimizer, keras.optimizers.Adam)
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_two_steps_by_hand():
    weight = keras.Variable([1.0])
    optimizer = AdamIpuOptimizer(0.1, beta_1=0.5, beta_2=0.75, epsilon=1.0, debiasing=False)
    # m = 4 / 2, v = 16 / 4; then m = 2 / 2, v = 4 * 3 / 4.
    optimizer.apply([[4.0]], [weight])
    np.testing.assert_allclose(weight.numpy(), [1.0 - 0.1 * 2.0 / (2.0 + 1.0)], rtol=1e-6)
    before = weight.numpy()
    optimizer.apply([[0.0]])
    np.testing.assert_allclose(weight.numpy(), before - 0.1 / (np.sqrt(3.0) + 1.0), rtol=1e-6)


def test_debiasing_by_hand():
    weight = keras.Variable([1.0])
    # The first moments are g and g**2 after it, whatever the betas.
    AdamIpuOptimizer(0.1, epsilon=1e-12).apply([[-4.0]], [weight])
    np.testing.assert_allclose(weight.numpy(), [1.1], rtol=1e-5)


def test_types_of_the_state(trained_by):
    optimizer = AdamIpuOptimizer(
        0.01, amsgrad=True, m_dtype=tf.float16, v_dtype="float32", vhat_dtype=tf.bfloat16
    )
    rounded = trained_by(optimizer)
    kinds = {v.name.rpartition("_")[2]: v.dtype for v in optimizer.variables[2:]}
    assert kinds == {"momentum": "float16", "velocity": "float32", "hat": "bfloat16"}
    for one, other in zip(rounded, trained_by(AdamIpuOptimizer(0.01, amsgrad=True)), strict=True):
        np.testing.assert_allclose(one, other, rtol=0.05, atol=0.02)
        assert not np.array_equal(one, other)


def test_computes_weights_of_float16_in_float32():
    weight = keras.Variable([1.0], dtype="float16")
    optimizer = AdamIpuOptimizer(0.25, m_dtype="float32", v_dtype="float32", debiasing=False)
    # Its square, 1e-8, is zero in float16.
    optimizer.apply([tf.constant([1e-4], tf.float16)], [weight])
    gradient = float(np.float16(1e-4))
    m, v = 0.1 * gradient, 0.001 * gradient**2
    expected = np.float16(1.0 - 0.25 * m / (np.sqrt(v) + 1e-7))
    np.testing.assert_array_equal(weight.numpy(), [expected])
    np.testing.assert_allclose(optimizer.variables[3].numpy(), [v], rtol=1e-5)


def adam_by_numpy(weight, gradients, precisions):
    """With amsgrad, a rate of 0.125, and each operation rounded to the type of its stage."""
    first, second = map(np.dtype, precisions)
    m = v = vhat = np.zeros_like(weight)
    for t, gradient in enumerate(gradients, start=1):
        gradient = gradient.astype(first)
        m_now = m.astype(first) + (gradient - m.astype(first)) * first.type(1 - 0.75)
        v_now = v.astype(first) + (gradient**2 - v.astype(first)) * first.type(1 - 0.875)
        largest = np.maximum(vhat.astype(first), v_now)
        m, v, vhat = (kept.astype(np.float32) for kept in (m_now, v_now, largest))
        rate = second.type(0.125 * np.sqrt(1 - 0.875**t) / (1 - 0.75**t))
        root = np.sqrt(largest.astype(second)) + second.type(0.001)
        change = m_now.astype(second) * rate / root
        weight = (weight.astype(second) - change).astype(np.float32)
    return weight, m, v


@pytest.mark.parametrize("first", ["float16", "float32"])
@pytest.mark.parametrize("second", ["float16", "float32"])
def test_compute_precisions(first, second):
    random = np.random.default_rng(0)
    start = random.normal(size=(20, 30)).astype(np.float32)
    gradients = random.normal(size=(4, 20, 30)).astype(np.float32)
    weight = keras.Variable(start)
    optimizer = AdamIpuOptimizer(
        0.125,
        beta_1=0.75,
        beta_2=0.875,
        epsilon=0.001,
        amsgrad=True,
        optimizer_compute_precisions=(tf.as_dtype(first), second),
    )
    for gradient in gradients:
        optimizer.apply([gradient], [weight])
    expected = adam_by_numpy(start, gradients, (first, second))
    found = [v.numpy() for v in (weight, *optimizer.variables[2:4])]
    # Square roots and powers may differ in the last place.
    places = np.finfo(np.float16 if "float16" in (first, second) else np.float32).eps
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=8 * places, atol=2 * places)
    for stage, values in ((first, found[1:]), (second, found[:1])):
        rounded = [np.array_equal(x, np.float16(x)) for x in values]
        assert rounded == [stage == "float16"] * len(values)


def test_steps_that_float16_cannot_tell_apart():
    """The powers of the betas, and decayed rates, are those of the step in float32."""
    found = []
    for precision in ("float16", "float32"):
        weight = keras.Variable([1.0])
        optimizer = AdamIpuOptimizer(
            0.5, decay=0.25, optimizer_compute_precisions=(tf.float32, precision)
        )
        optimizer.build([weight])
        optimizer.iterations.assign(4099)
        optimizer.apply([[0.01]], [weight])
        found.append(1 - float(weight.numpy()[0]))
    np.testing.assert_allclose(found[0], found[1], rtol=2**-10 * 8, atol=2**-11)


def test_weights_of_float64_are_computed_in_it():
    weight = keras.Variable([1.0], dtype="float64")
    AdamIpuOptimizer(2.0**-40, epsilon=0.0, debiasing=False, beta_1=0.0, beta_2=0.0).apply(
        [tf.constant([1.0], tf.float64)], [weight]
    )
    assert weight.numpy()[0] == 1 - 2.0**-40


def test_gradients_of_lookups_add_up_for_a_row():
    tables = [keras.Variable(np.ones((3, 2))) for _ in range(2)]
    slices = tf.IndexedSlices(tf.ones([2, 2]), tf.constant([1, 1]), tf.constant([3, 2]))
    for table, gradient in zip(tables, (slices, tf.convert_to_tensor(slices)), strict=True):
        AdamIpuOptimizer(0.1, epsilon=1.0).apply([gradient], [table])
    np.testing.assert_array_equal(tables[0].numpy(), tables[1].numpy())
    assert tables[0].numpy()[1, 0] < 1.0
    np.testing.assert_array_equal(tables[0].numpy()[::2], 1.0)


def test_serialization():
    optimizer = AdamIpuOptimizer(
        0.1,
        0.8,
        0.9,
        1e-3,
        True,
        "mine",
        "float16",
        None,
        "float32",
        False,
        (tf.float16, "float32"),
    )
    testing.TestCase().run_class_serialization_test(optimizer)
    config = optimizer.get_config()
    assert (config["m_dtype"], config["v_dtype"], config["vhat_dtype"]) == (
        "float16",
        None,
        "float32",
    )
    assert config["optimizer_compute_precisions"] == ("float16", "float32")
    assert (config["name"], config["debiasing"], config["beta_2"]) == ("mine", False, 0.9)


def test_wrong_types():
    message = "`v_dtype` must be None or a floating point type such as tf.float16. Received: "
    with pytest.raises(TypeError, match=re.escape(f"{message}v_dtype=tf.int32")):
        AdamIpuOptimizer(v_dtype=tf.int32)
    with pytest.raises(TypeError, match=r"m_dtype='half precision'$"):
        AdamIpuOptimizer(m_dtype="half precision")
    message = "`optimizer_compute_precisions` must be a tuple of size 2: one type for the moments"
    with pytest.raises(ValueError, match=f"^{re.escape(message)} and one for the weights. Rec"):
        AdamIpuOptimizer(optimizer_compute_precisions=(tf.float32,))
    with pytest.raises(TypeError, match=r"^`optimizer_compute_precisions` must be"):
        AdamIpuOptimizer(optimizer_compute_precisions=(tf.float32, "int8"))


def test_examples_in_the_documentation():
    assert doctest.testmod(adam_ipu_optimizer).failed == 0
