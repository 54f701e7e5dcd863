import numpy as np
import pytest
import tensorflow as tf

from ipu_keras import popart
from ipu_keras.popart.optimizers import rules
from ipu_keras.popart.optimizers.rules import Factors, Scalar, clipped, loss_scaling, rule_of
from ipu_keras.popart.options.enumerations import AdamMode, AdaptiveMode
from ipu_keras.popart.options.settings import ClipNormSettings


def test_what_is_no_optimizer():
    with pytest.raises(TypeError, match=r"^An optimizer is one of PopART's\. Received: None$"):
        rule_of(None, Factors(), False)


@pytest.mark.parametrize("make", [popart.SGD, popart.Adam, popart.Adaptive])
def test_later_changes_of_the_optimizer_do_not_change_the_rule(make):
    optimizer = make({})
    rule = rule_of(optimizer, Factors(), False)
    before = rule.scalars("w")
    optimizer.insertSpecific("w", {"weightDecay": (0.5, True)})
    assert rule.scalars("w") == before != rule_of(optimizer, Factors(), False).scalars("w")


def test_the_scalar_of_the_loss():
    sgd = popart.SGD({"lossScaling": (0.1, False)})
    assert loss_scaling(sgd) == Scalar("lossScaling_FLOAT", float(np.float32(0.1)), False)
    assert loss_scaling(popart.Adam({})) == Scalar("lossScaling_FLOAT", 1.0, True)


def test_sessions_find_all_that_they_need():
    names = {"Factors", "Rule", "Scalar", "Slot", "clipped", "loss_scaling", "rule_of"}
    assert names <= set(vars(rules))


OPTIMIZERS = [
    popart.ConstSGD(0.1, 0.01),
    popart.SGD({"defaultMomentum": (0.9, False)}),
    popart.Adam({}, AdamMode.Lamb),
    popart.Adaptive({}, AdaptiveMode.CenteredRMSProp),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_updates_can_be_compiled(optimizer, shape):
    random = np.random.default_rng(3)
    weight = np.asarray(random.normal(size=shape), "float32")
    gradient = tf.constant(np.asarray(random.normal(size=shape), "float32"))
    rule = rule_of(optimizer, Factors(2), True)
    slots = {each.prefix: tf.constant(each.initial) for each in rule.slots("w", weight)}
    scalars = {kind: tf.constant(each.value) for kind, each in rule.scalars("w").items()}
    eager, _ = rule.updated(tf.constant(weight), gradient, slots, scalars)
    compiled, new = tf.function(rule.updated, jit_compile=True)(
        tf.constant(weight), gradient, slots, scalars
    )
    np.testing.assert_allclose(compiled, eager, rtol=1e-5)
    assert new.keys() >= slots.keys()
    # Weights may come with their axes in another order.
    turned = {key: tf.transpose(each) for key, each in slots.items()}
    other, _ = rule.updated(tf.transpose(weight), tf.transpose(gradient), turned, scalars)
    np.testing.assert_allclose(tf.transpose(other), eager, rtol=1e-5)


ONE = tf.constant(1.0)


def clipped_of(groups, gradients, *, loss_scaling=1.0, factors=Factors(), dtype=tf.float32):  # noqa: B008
    optimizer = popart.SGD({}, [ClipNormSettings(names, norm) for names, norm in groups])
    tensors = {name: tf.constant(each, dtype) for name, each in gradients.items()}
    result = clipped(optimizer, tensors, tf.constant(loss_scaling), factors)
    assert all(each.dtype == dtype for each in result.values())
    return {name: each.numpy().tolist() for name, each in result.items()}


def test_a_group_is_as_long_as_it_may_be():
    # Together they are 5 long.
    gradients = {"a": [[3.0]], "b": [0.0, 4.0], "c": [8.0]}
    assert clipped_of([(["a", "b"], 2.5)], gradients) == {"a": [[1.5]], "b": [0, 2], "c": [8]}
    assert clipped_of([(["a", "b"], 10.0)], gradients) == gradients
    two = [(["a"], 1.5), (["b", "c"], 100.0)]
    assert clipped_of(two, gradients) == {**gradients, "a": [[1.5]]}
    assert clipped_of([], gradients) == gradients


def test_the_norm_is_that_of_gradients_without_loss_scaling():
    gradients = {"a": [12.0], "b": [16.0]}
    groups = [(["a", "b"], 2.5)]
    assert clipped_of(groups, gradients, loss_scaling=4.0) == {"a": [6], "b": [8]}
    mean = Factors(accumulation=4, replicas=2, is_mean=True)
    assert clipped_of(groups, gradients, factors=mean) == {"a": [6], "b": [8]}
    assert clipped_of(groups, gradients, factors=Factors(4, 2)) == {"a": [1.5], "b": [2]}


def test_no_gradients_stay_none():
    assert clipped_of([(["a"], 1.0)], {"a": [0.0, 0.0]}) == {"a": [0, 0]}


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32])
def test_squares_may_be_too_large_for_the_gradients_type(dtype):
    size = 30000.0 if dtype == tf.float16 else 1e25
    result = clipped_of([(["a"], 1.0)], {"a": [size, size]}, loss_scaling=size / 10, dtype=dtype)
    np.testing.assert_allclose(result["a"], size / 10 / np.sqrt(2), rtol=2e-3)


def test_other_optimizers_have_groups_too():
    adam = popart.Adam({}, clip_norm_settings=[ClipNormSettings(["a"], 1.0)])
    result = clipped(adam, {"a": tf.constant([2.0])}, ONE, Factors())
    assert result["a"].numpy() == [1.0]
    assert popart.Adaptive({}).clip_norms == ()
