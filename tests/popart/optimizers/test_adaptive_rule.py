import numpy as np
import pytest

from ipu_keras import popart
from ipu_keras.popart.optimizers.rules import Factors, Scalar, rule_of
from ipu_keras.popart.options.enumerations import AdaptiveMode, DataType, WeightDecayMode

DECAY, L2 = WeightDecayMode
AdaGrad, RMSProp, Centered, AdaDelta = AdaptiveMode
ONE = np.ones((1,), "float32")
KEYS = {
    "lr": "defaultLearningRate",
    "wd": "defaultWeightDecay",
    "alpha": "defaultAlpha",
    "mm": "defaultMomentum",
    "eps": "defaultEps",
    "ls": "lossScaling",
}
PLAIN = {"lr": 0.1, "wd": 0.0, "alpha": 0.99, "mm": 0.0, "eps": 1e-6, "ls": 1.0}


def adaptive(mode=RMSProp, decay=DECAY, *, values=None, **settings):
    given = {KEYS[key]: (value, True) for key, value in (values or {}).items()}
    return popart.Adaptive(given, mode, decay, **settings)


def expected(weight, gradients, mode, decay, *, mean=False, tensorflow=False, **values):
    """A weight by the documented formulas, in float64."""
    lr, wd, alpha, mm, eps, _ = (float(np.float32(each)) for each in {**PLAIN, **values}.values())
    weight = weight.astype(np.float64)
    v = np.full(weight.shape, float(tensorflow))
    c, d, b = np.zeros((3, *weight.shape))
    for update in gradients:
        g = update.mean(axis=(0, 1)) if mean else update.sum(axis=(0, 1))
        g = g + wd * weight if decay is L2 else g
        v = v + g**2 if mode is AdaGrad else alpha * v + (1 - alpha) * g**2
        spread = v
        if mode is Centered:
            c = alpha * c + (1 - alpha) * g
            spread = v - c**2
        u = g / (np.sqrt(spread + eps) if tensorflow else np.sqrt(spread) + eps)
        if mode is AdaDelta:
            u = g * np.sqrt(d + eps) / np.sqrt(v + eps)
            d = alpha * d + (1 - alpha) * u**2
        b = mm * b + (lr * u if tensorflow else u)
        decayed = lr * wd * weight if decay is DECAY else 0
        weight = weight - (b if tensorflow else lr * b) - decayed
    return weight


def test_adagrad_by_hand(trained):
    # v = 9, u = 3 / (3 + 1) = 0.75, w = 1 - 0.5 * (0.75 + 0.25 * 1) = 0.5.
    values = {"lr": 0.5, "wd": 0.25, "eps": 1.0, "ls": 4}
    gradients = np.full((1, 1, 1, 1), 3.0)
    assert trained(adaptive(AdaGrad, values=values), ONE, gradients) == ([0.5], {"Accl1___": [9]})


def test_rmsprop_by_hand(trained):
    # v = 0.25 * 16 = 4, u = 4 / (2 + 2) = 1, b = 1: w = 0.5; then, without a gradient, v = 3,
    # u = 0, b = 0.5: w = 0.25.
    values = {"lr": 0.5, "alpha": 0.75, "mm": 0.5, "eps": 2.0}
    gradients = np.array([4.0, 0.0]).reshape(2, 1, 1, 1)
    weight, slots = trained(adaptive(values=values), ONE, gradients)
    assert (weight, slots) == ([0.25], {"Accl1___": [3], "Accl3___": [0.5]})


def test_centered_rmsprop_by_hand(trained):
    # v = 0.25 * 64 = 16, c = 0.25 * 8 = 2, u = 8 / (sqrt(16 - 4) + 2).
    values = {"lr": 0.5, "alpha": 0.75, "eps": 2.0}
    gradients = np.full((1, 1, 1, 1), 8.0)
    weight, slots = trained(adaptive(Centered, values=values), ONE, gradients)
    np.testing.assert_allclose(weight, [1 - 4 / (np.sqrt(12) + 2)], rtol=1e-6)
    assert slots == {"Accl1___": [16], "Accl2___": [2]}


def test_adadelta_by_hand(trained):
    # v = 0.25 * 12 = 3, u = sqrt(12) * sqrt(0 + 1) / sqrt(3 + 1), d = 0.25 * 12 / 4 = 0.75.
    values = {"lr": 0.5, "alpha": 0.75, "eps": 1.0}
    gradients = np.full((1, 1, 1, 1), np.sqrt(12))
    weight, slots = trained(adaptive(AdaDelta, values=values), ONE, gradients)
    np.testing.assert_allclose(weight, [1 - np.sqrt(3) / 2], rtol=1e-6)
    np.testing.assert_allclose(slots["Accl1___"], [3], rtol=1e-6)
    np.testing.assert_allclose(slots["Accl2___"], [0.75], rtol=1e-6)


def test_tensorflows_rmsprop_by_hand(trained):
    # v = 0.75 * 1 + 0.25 * 5 = 2, u = sqrt(5) / sqrt(2 + 3) = 1, and 0.5 of it is kept.
    values = {"lr": 0.5, "alpha": 0.75, "mm": 0.5, "eps": 3.0}
    gradients = np.full((1, 1, 1, 1), np.sqrt(5))
    optimizer = adaptive(values=values, rmsprop_tf_variant=True)
    assert rule_of(optimizer, Factors(), False).slots("w", ONE)[0].initial == [1]
    weight, slots = trained(optimizer, ONE, gradients)
    np.testing.assert_allclose(weight, [0.5], rtol=1e-6)
    np.testing.assert_allclose(slots["Accl3___"], [0.5], rtol=1e-6)


MODES = [(mode, False) for mode in AdaptiveMode] + [(RMSProp, True), (Centered, True)]


@pytest.mark.parametrize(("mode", "tensorflow"), MODES)
@pytest.mark.parametrize("decay", [DECAY, L2])
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("mm", [0.0, 0.5])
def test_it_is_what_is_documented(trained, close, problem, mode, tensorflow, decay, mean, mm):
    numbers = (3, 2) if mean else (1, 1)
    weight, gradients = problem(*numbers)
    values = {"lr": 0.01, "wd": 0.02, "mm": mm, "ls": 100.0}
    optimizer = adaptive(mode, decay, values=values, rmsprop_tf_variant=tensorflow)
    result, slots = trained(optimizer, weight, gradients, factors=Factors(is_mean=mean))
    golden = expected(weight, gradients, mode, decay, mean=mean, tensorflow=tensorflow, **values)
    close(result, golden)
    second = {"Accl2___"} if mode in (Centered, AdaDelta) else set()
    assert set(slots) == {"Accl1___"} | second | ({"Accl3___"} if mm else set())


def test_sums_of_micro_batches_and_replicas(trained, close, problem):
    weight, gradients = problem(4, 2)
    result, _ = trained(adaptive(values={"lr": 0.01}), weight, gradients)
    close(result, expected(weight, gradients, RMSProp, DECAY, lr=0.01))


def test_a_weight_with_its_own_values(trained, close, problem):
    weight, gradients = problem()
    optimizer = adaptive(values={"lr": 0.01, "wd": 0.02})
    own = {"weightDecay": (0, True), "alpha": (0.5, True), "momentum": (0.5, True)}
    optimizer.insertSpecific("bias", {**own, "eps": (0.5, True)})
    changed = {"wd": 0.0, "alpha": 0.5, "mm": 0.5, "eps": 0.5}
    for name, values in (("w", {"wd": 0.02}), ("bias", changed)):
        result, slots = trained(optimizer, weight, gradients, name=name)
        close(result, expected(weight, gradients, RMSProp, DECAY, lr=0.01, **values))
        assert ("Accl3___" in slots) == (name == "bias")


def test_gradients_that_are_always_the_same_leave_numbers(trained):
    # Rounding makes the square of some means larger than the mean of squares.
    gradients = np.tile(np.linspace(0.1, 1, 100), (50, 1, 1, 1))
    values = {"alpha": 0.5, "lr": 1e-6}
    weight, _ = trained(adaptive(Centered, values=values), np.ones(100, "float32"), gradients)
    assert np.isfinite(weight).all()


def test_names_values_and_constness_of_scalars():
    optimizer = popart.Adaptive(
        {"defaultMomentum": (0.5, False), "lossScaling": (8, False)}, RMSProp
    )
    optimizer.insertSpecific("b", {"alpha": (0.5, True), "momentum": (0, True)})
    rule = rule_of(optimizer, Factors(4, 2, is_mean=True), True)
    named = {kind: (each.tensor, each.is_const) for kind, each in rule.scalars("w").items()}
    assert named == {
        "learningRate": ("learningRate___default___FLOAT", True),
        "weightDecay": ("weightDecay___default___FLOAT", True),
        "lossScaling": ("lossScaling___default___FLOAT", False),
        "adaptiveAlpha": ("adaptiveAlpha___default___FLOAT", True),
        "adaptiveMomentum": ("adaptiveMomentum___default___FLOAT", False),
        "adaptiveEps": ("adaptiveEps___default___FLOAT", True),
    }
    own = rule.scalars("b")
    assert own["adaptiveAlpha"] == Scalar("adaptiveAlpha___specific___b", 0.5, True)
    assert own["lossScaling"] == Scalar("lossScaling___default___FLOAT", 32.0, False)
    assert "adaptiveMomentum" not in own
    assert "adaptiveAlpha" not in rule_of(adaptive(AdaGrad), Factors(), False).scalars("w")


def test_float16(trained, close, problem):
    weight, gradients = problem(2, updates=10)
    half = weight.astype("float16")
    types = {
        "accl1_type": DataType.FLOAT,
        "accl2_type": DataType.FLOAT16,
        "accl3_type": DataType.UNDEFINED,
    }
    values = {"lr": 0.01, "mm": 0.5}
    optimizer = adaptive(Centered, values=values, **types)
    result, slots = trained(optimizer, half, gradients)
    assert [each.dtype.name for each in (result, *slots.values())] == [
        *("float16", "float32", "float16", "float16")
    ]
    close(result, expected(half, gradients, Centered, DECAY, **values), 1e-2)


def test_accumulated_gradients_have_their_type(trained):
    optimizer = adaptive(accum_type=DataType.FLOAT16)
    rule = rule_of(optimizer, Factors(2), True)
    assert rule.accumulator.dtype(np.dtype("float32")) == np.float16
    weight, _ = trained(optimizer, ONE, np.full((1, 2, 1, 1), 60000.0))
    assert np.isnan(weight)
