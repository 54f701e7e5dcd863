import itertools

import numpy as np
import pytest

from ipu_keras import popart
from ipu_keras.popart.optimizers.rules import Factors, Scalar, rule_of
from ipu_keras.popart.options.enumerations import AdamMode, DataType, WeightDecayMode

DECAY, L2 = WeightDecayMode
ONE = np.ones((1,), "float32")
KEYS = {
    "lr": "defaultLearningRate",
    "wd": "defaultWeightDecay",
    "b1": "defaultBeta1",
    "b2": "defaultBeta2",
    "eps": "defaultEps",
    "mwn": "defaultMaxWeightNorm",
    "ls": "lossScaling",
}
PLAIN = {"lr": 0.1, "wd": 0.0, "b1": 0.9, "b2": 0.999, "eps": 1e-6, "mwn": 10.0, "ls": 1.0}
LAMBS = (AdamMode.Lamb, AdamMode.LambNoBias)
WITHOUT_BIAS = (AdamMode.AdamNoBias, AdamMode.LambNoBias)


def adam(mode=AdamMode.Adam, decay=DECAY, *, values=None, **settings):
    given = {KEYS[key]: (value, True) for key, value in (values or {}).items()}
    return popart.Adam(given, mode, decay, **settings)


def expected(weight, gradients, mode, decay, *, mean=False, **values):
    """A weight and its averages by the documented formulas, in float64."""
    lr, wd, b1, b2, eps, mwn, _ = (float(np.float32(each)) for each in {**PLAIN, **values}.values())
    weight = weight.astype(np.float64)
    m, v = np.zeros(weight.shape), np.zeros(weight.shape)
    for t, update in enumerate(gradients, start=1):
        g = update.mean(axis=(0, 1)) if mean else update.sum(axis=(0, 1))
        g = g + wd * weight if decay is L2 else g
        m = b1 * m + (1 - b1) * g
        v = np.maximum(b2 * v, abs(g)) if mode is AdamMode.AdaMax else b2 * v + (1 - b2) * g**2
        corrected = (1, 1) if mode in WITHOUT_BIAS else (1 - b1**t, 1 - b2**t)
        u = m / corrected[0] / (np.sqrt(v / corrected[1]) + eps)
        u = u + wd * weight if decay is DECAY else u
        trust = 1.0
        if mode in LAMBS and 0 not in (mwn, np.linalg.norm(weight), np.linalg.norm(u)):
            trust = min(np.linalg.norm(weight), mwn) / np.linalg.norm(u)
        weight = weight - trust * lr * u
    return weight, m, v


def test_by_hand(trained):
    # m = 0.5 * 3 = 1.5, v = 0.25 * 9 = 2.25; corrected, 3 and 9; u = 3 / (3 + 1) + 0.5 = 1.25.
    values = {"lr": 0.5, "wd": 0.5, "b1": 0.5, "b2": 0.75, "eps": 1.0, "ls": 2}
    gradients = np.full((1, 1, 1, 1), 3.0)
    weight, slots = trained(adam(values=values), ONE, gradients)
    np.testing.assert_allclose(weight, [0.375], rtol=1e-6)
    assert slots == {"Accl1___": [1.5], "Accl2___": [2.25], "Step___": 1}
    # Not corrected, u = 1.5 / (1.5 + 1) + 0.5 = 1.1, and there are no steps.
    weight, slots = trained(adam(AdamMode.AdamNoBias, values=values), ONE, gradients)
    np.testing.assert_allclose(weight, [0.45], rtol=1e-6)
    assert slots == {"Accl1___": [1.5], "Accl2___": [2.25]}


def test_lamb_by_hand(trained):
    # u = 3 / (3 + 1) = 0.75 each, |u| = 1.5, and |w| = 2, of which 1.5 or 10 are taken at most.
    gradients = np.full((1, 1, 1, 4), 3.0)
    for largest, learned in ((1.5, 0.375), (10, 0.5)):
        values = {"lr": 0.5, "b1": 0.5, "b2": 0.75, "eps": 1.0, "mwn": largest}
        weight, _ = trained(adam(AdamMode.Lamb, values=values), np.ones(4, "float32"), gradients)
        np.testing.assert_allclose(weight, np.full(4, 1 - learned), rtol=1e-6)


def test_adamax_by_hand(trained):
    # Two updates: m = 0.5 * 4 = 2, then 1; v = max(0, 4), then max(0.25 * 4, 0) = 1.
    values = {"lr": 0.5, "b1": 0.5, "b2": 0.25, "eps": 1.0}
    gradients = np.array([4.0, 0.0]).reshape(2, 1, 1, 1)
    _, slots = trained(adam(AdamMode.AdaMax, values=values), ONE, gradients)
    assert slots == {"Accl1___": [1.0], "Accl2___": [1.0], "Step___": 2}


@pytest.mark.parametrize("decay", [DECAY, L2])
@pytest.mark.parametrize("mode", list(AdamMode))
@pytest.mark.parametrize(("mean", "scaled"), [(False, False), (True, False), (True, True)])
def test_it_is_what_is_documented(trained, close, problem, mode, decay, mean, scaled):
    numbers = (3, 2) if mean else (1, 1)
    weight, gradients = problem(*numbers)
    # The norm of the weight is about 3.5.
    values = {"lr": 0.01, "wd": 0.02, "ls": 100.0, "mwn": 3.0}
    result, slots = trained(
        adam(mode, decay, values=values, scaled_optimizer_state=scaled),
        weight,
        gradients,
        factors=Factors(is_mean=mean),
    )
    golden, m, v = expected(weight, gradients, mode, decay, mean=mean, **values)
    close(result, golden)
    scale = 100.0 if scaled else 1.0
    close(slots["Accl1___"], m * scale, 2e-6)
    close(slots["Accl2___"], v * (scale if mode is AdamMode.AdaMax else scale**2), 5e-6)
    if mode in WITHOUT_BIAS:
        assert set(slots) == {"Accl1___", "Accl2___"}
    else:
        assert slots["Step___"] == 50
        assert slots["Step___"].dtype == np.float32


def test_the_first_updates_are_as_exact_as_later_ones(trained, close, problem):
    # Of weights that begin with 0 they are all that there is.
    weight, gradients = problem(updates=3)
    weight[...] = 0
    values = {"lr": 1.0, "b2": 0.9999}
    result, _ = trained(adam(values=values), weight, gradients)
    close(result, expected(weight, gradients, AdamMode.Adam, DECAY, **values)[0])


def test_sums_of_micro_batches_and_replicas(trained, close, problem):
    weight, gradients = problem(4, 2)
    result, _ = trained(adam(values={"lr": 0.01}), weight, gradients)
    close(result, expected(weight, gradients, AdamMode.Adam, DECAY, lr=0.01)[0])


def test_a_weight_with_its_own_values(trained, close, problem):
    weight, gradients = problem()
    optimizer = adam(values={"lr": 0.01, "wd": 0.02})
    own = {"weightDecay": (0, True), "beta1": (0.5, True), "beta2": (0.75, True)}
    optimizer.insertSpecific("bias", {**own, "eps": (0.5, True)})
    changed = {"wd": 0.0, "b1": 0.5, "b2": 0.75, "eps": 0.5}
    for name, values in (("w", {"wd": 0.02}), ("bias", changed)):
        result, _ = trained(optimizer, weight, gradients, name=name)
        close(result, expected(weight, gradients, AdamMode.Adam, DECAY, lr=0.01, **values)[0])


@pytest.mark.parametrize(
    ("weight", "gradient", "mwn", "learned"),
    [(2.0, 3.0, 10, 1.0), (2.0, 3.0, 0, 0.5), (0.0, 3.0, 10, 0.5), (2.0, 0.0, 10, 0.0)],
)
def test_lamb_trusts_where_a_norm_is_0(trained, weight, gradient, mwn, learned):
    values = {"lr": 0.5, "b1": 0.5, "b2": 0.75, "eps": 1e-9, "mwn": mwn}
    result, _ = trained(
        adam(AdamMode.Lamb, values=values), ONE * weight, np.full((1, 1, 1, 1), gradient)
    )
    np.testing.assert_allclose(result, [weight - learned], rtol=1e-6, atol=1e-12)


def test_names_values_and_constness_of_scalars():
    optimizer = popart.Adam(
        {"defaultLearningRate": (0.5, False), "lossScaling": (8, False)}, AdamMode.Lamb
    )
    optimizer.insertSpecific("b", {"beta1": (0.5, True), "maxWeightNorm": (2, False)})
    rule = rule_of(optimizer, Factors(4, 2, is_mean=True), True)
    named = {kind: (each.tensor, each.is_const) for kind, each in rule.scalars("w").items()}
    assert named == {
        "learningRate": ("learningRate___default___FLOAT", False),
        "weightDecay": ("weightDecay___default___FLOAT", True),
        "lossScaling": ("lossScaling___default___FLOAT", False),
        "adamBeta1": ("adamBeta1___default___FLOAT", True),
        "adamBeta2": ("adamBeta2___default___FLOAT", True),
        "adamEps": ("adamEps___default___FLOAT", True),
        "maxWeightNorm": ("maxWeightNorm___default___FLOAT", True),
    }
    own = rule.scalars("b")
    assert own["adamBeta1"] == Scalar("adamBeta1___specific___b", 0.5, True)
    assert own["maxWeightNorm"] == Scalar("maxWeightNorm___specific___b", 2.0, False)
    assert own["lossScaling"] == Scalar("lossScaling___default___FLOAT", 32.0, False)
    assert "maxWeightNorm" not in rule_of(adam(), Factors(), False).scalars("w")


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("mode", [AdamMode.Adam, AdamMode.AdaMax])
def test_the_sign_of_the_loss_scaling_does_not_matter(trained, close, problem, mode, sign):
    weight, gradients = problem(updates=5)
    values = {"lr": 0.01, "wd": 0.02, "ls": sign * 64.0}
    optimizer = adam(mode, L2, values=values, scaled_optimizer_state=True)
    close(
        trained(optimizer, weight, gradients)[0], expected(weight, gradients, mode, L2, **values)[0]
    )


TYPES = list(itertools.product((DataType.FLOAT, DataType.FLOAT16, DataType.UNDEFINED), repeat=2))
NUMPY = {
    DataType.FLOAT: np.dtype("float32"),
    DataType.FLOAT16: np.dtype("float16"),
    DataType.UNDEFINED: np.dtype("float16"),
}


@pytest.mark.parametrize(("first", "second"), TYPES)
def test_float16(trained, close, problem, first, second):
    weight, gradients = problem(updates=10)
    half = weight.astype("float16")
    optimizer = adam(values={"lr": 0.01}, accl1_type=first, accl2_type=second)
    result, slots = trained(optimizer, half, gradients)
    assert result.dtype == np.float16
    assert slots["Accl1___"].dtype == NUMPY[first]
    assert slots["Accl2___"].dtype == NUMPY[second]
    golden, m, _ = expected(half, gradients, AdamMode.Adam, DECAY, lr=0.01)
    close(result, golden, 4e-3)
    close(slots["Accl1___"], m, 4e-3)


def test_accumulated_gradients_have_their_type(trained):
    optimizer = adam(accum_type=DataType.FLOAT16)
    rule = rule_of(optimizer, Factors(2), True)
    assert rule.accumulator.dtype(np.dtype("float32")) == np.float16
    weight, _ = trained(optimizer, ONE, np.full((1, 2, 1, 1), 60000.0))
    assert np.isnan(weight)
    weight, _ = trained(optimizer, ONE, np.full((1, 1, 1, 1), 120000.0))
    assert np.isfinite(weight)
