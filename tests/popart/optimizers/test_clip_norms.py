import numpy as np
import pytest
import tensorflow as tf

from ipu_keras import popart
from ipu_keras.popart.optimizers.clip_norms import clipped
from ipu_keras.popart.optimizers.rules import Factors
from ipu_keras.popart.options.settings import ClipNormSettings

ONE = tf.constant(1.0)


def of(groups, gradients, *, loss_scaling=1.0, factors=Factors(), dtype=tf.float32):  # noqa: B008
    optimizer = popart.SGD({}, [ClipNormSettings(names, norm) for names, norm in groups])
    tensors = {name: tf.constant(each, dtype) for name, each in gradients.items()}
    result = clipped(optimizer, tensors, tf.constant(loss_scaling), factors)
    assert all(each.dtype == dtype for each in result.values())
    return {name: each.numpy().tolist() for name, each in result.items()}


def test_a_group_is_as_long_as_it_may_be():
    # Together they are 5 long.
    gradients = {"a": [[3.0]], "b": [0.0, 4.0], "c": [8.0]}
    assert of([(["a", "b"], 2.5)], gradients) == {"a": [[1.5]], "b": [0, 2], "c": [8]}
    assert of([(["a", "b"], 10.0)], gradients) == gradients
    two = [(["a"], 1.5), (["b", "c"], 100.0)]
    assert of(two, gradients) == {**gradients, "a": [[1.5]]}
    assert of([], gradients) == gradients


def test_the_norm_is_that_of_gradients_without_loss_scaling():
    gradients = {"a": [12.0], "b": [16.0]}
    groups = [(["a", "b"], 2.5)]
    assert of(groups, gradients, loss_scaling=4.0) == {"a": [6], "b": [8]}
    mean = Factors(accumulation=4, replicas=2, is_mean=True)
    assert of(groups, gradients, factors=mean) == {"a": [6], "b": [8]}
    assert of(groups, gradients, factors=Factors(4, 2)) == {"a": [1.5], "b": [2]}


def test_no_gradients_stay_none():
    assert of([(["a"], 1.0)], {"a": [0.0, 0.0]}) == {"a": [0, 0]}


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32])
def test_squares_may_be_too_large_for_the_gradients_type(dtype):
    size = 30000.0 if dtype == tf.float16 else 1e25
    result = of([(["a"], 1.0)], {"a": [size, size]}, loss_scaling=size / 10, dtype=dtype)
    np.testing.assert_allclose(result["a"], size / 10 / np.sqrt(2), rtol=2e-3)


def test_other_optimizers_have_groups_too():
    adam = popart.Adam({}, clip_norm_settings=[ClipNormSettings(["a"], 1.0)])
    result = clipped(adam, {"a": tf.constant([2.0])}, ONE, Factors())
    assert result["a"].numpy() == [1.0]
    assert popart.Adaptive({}).clip_norms == ()
