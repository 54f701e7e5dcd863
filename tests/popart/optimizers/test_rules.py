import numpy as np
import pytest
import tensorflow as tf

from ipu_keras import popart
from ipu_keras.popart.optimizers import rules
from ipu_keras.popart.optimizers.rules import Factors, Scalar, loss_scaling, rule_of
from ipu_keras.popart.options.enumerations import AdamMode, AdaptiveMode


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
