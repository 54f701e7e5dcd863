import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipu_keras import popart
from ipu_keras.popart.optimizers.rules import Factors, Scalar, rule_of
from ipu_keras.popart.options.enumerations import DataType, SGDAccumulatorAndMomentum

COMBINED, SEPARATE = SGDAccumulatorAndMomentum
ONE = np.ones((1,), "float32")
KEYS = {
    "lr": "defaultLearningRate",
    "wd": "defaultWeightDecay",
    "mm": "defaultMomentum",
    "dm": "defaultDampening",
    "vs": "defaultVelocityScaling",
    "ls": "lossScaling",
}
PLAIN = {"lr": 0.1, "wd": 0.0, "mm": 0.0, "dm": 0.0, "vs": 1.0, "ls": 1.0}


def sgd(form=COMBINED, *, is_const=True, **values):
    return popart.SGD(
        {KEYS[key]: (value, is_const) for key, value in values.items()},
        accumulatorAndMomentum=form,
    )


def expected(weight, gradients, *, mean=False, **values):
    """A weight and its velocity by the documented formulas, in float64."""
    given = {key: float(np.float32(value)) for key, value in {**PLAIN, **values}.items()}
    lr, wd, mm, dm = (given[key] for key in ("lr", "wd", "mm", "dm"))
    weight, velocity = weight.astype(np.float64), np.zeros(weight.shape)
    for update in gradients:
        gradient = update.mean(axis=(0, 1)) if mean else update.sum(axis=(0, 1))
        velocity = mm * velocity + (1 - dm) * (gradient + wd * weight)
        weight = weight - lr * velocity
    return weight, velocity


def test_by_hand_without_state(trained):
    # w = 1 - 0.5 * (1 - 0.25) * (2 + 0.5 * 1) = 0.0625
    gradients = np.full((1, 1, 1, 1), 2.0)
    weight, slots = trained(sgd(lr=0.5, dm=0.25, wd=0.5, ls=4), ONE, gradients)
    assert (weight, slots) == ([0.0625], {})


def test_by_hand_combined(trained):
    # It begins with 0.5 * 0.25 * 2 * 1 = 0.25, and 0.5 * 2 * 3 is added: 3.25.
    # w = 1 - 0.5 / 2 * 3.25 = 0.1875, and 0.5 * 3.25 + 0.25 * 0.1875 is kept.
    optimizer = sgd(lr=0.5, mm=0.5, dm=0.5, wd=0.25, vs=2)
    assert rule_of(optimizer, Factors(), False).slots("w", ONE)[0].initial == [0.25]
    weight, slots = trained(optimizer, ONE, np.full((1, 1, 1, 1), 3.0))
    assert (weight, slots) == ([0.1875], {"Accl___": [1.671875]})


def test_by_hand_separate(trained):
    # v = 0.5 * 2 * (3 + 0.25) = 3.25, and w = 1 - 0.5 / 2 * 3.25 = 0.1875.
    optimizer = sgd(SEPARATE, lr=0.5, mm=0.5, dm=0.5, wd=0.25, vs=2)
    weight, slots = trained(optimizer, ONE, np.full((1, 1, 1, 1), 3.0))
    assert (weight, slots) == ([0.1875], {"Accl1___": [3.25]})


FORMS = list(itertools.product((COMBINED, SEPARATE), ((1, 1), (4, 1), (1, 2), (3, 4))))


@pytest.mark.parametrize(("form", "numbers"), FORMS)
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("mm", [0.0, 0.9])
def test_it_is_what_is_documented(trained, close, problem, form, numbers, mean, mm):
    weight, gradients = problem(*numbers)
    values = {"lr": 0.01, "wd": 0.02, "mm": mm, "dm": 0.1, "vs": 0.5, "ls": 100.0}
    result, slots = trained(sgd(form, **values), weight, gradients, factors=Factors(is_mean=mean))
    golden, velocity = expected(weight, gradients, mean=mean, **values)
    close(result, golden)
    vs, kept = 0.5, 1 - np.float64(np.float32(0.1))
    if mm == 0 and numbers[0] == 1:
        assert not slots
    elif form is SEPARATE:
        close(slots["Accl1___"], vs * velocity, 2e-6)
    else:
        mm32, wd32 = np.float64(np.float32(mm)), np.float64(np.float32(0.02))
        close(slots["Accl___"], vs * (mm32 * velocity + kept * wd32 * golden), 2e-6)


def test_a_weight_with_its_own_values(trained, close, problem):
    weight, gradients = problem()
    optimizer = sgd(lr=0.01, mm=0.9, wd=0.02)
    optimizer.insertSpecific("bias", {"weightDecay": (0, True), "momentum": (0, True)})
    for name, values in (("w", {"mm": 0.9, "wd": 0.02}), ("bias", {})):
        result, slots = trained(optimizer, weight, gradients, name=name)
        close(result, expected(weight, gradients, lr=0.01, **values)[0])
        # Without momentum of its own it has no state either.
        assert bool(slots) == (name == "w")


def test_changes_come_at_once_or_one_update_late(trained, close, problem):
    weight, gradients = problem(updates=4)
    first = {"lr": 0.1, "mm": 0.5, "wd": 0.25, "dm": 0.25}
    second = {"lr": 0.2, "mm": 0.75, "wd": 0.125, "dm": 0.5}
    for form in (COMBINED, SEPARATE):
        golden, velocity = weight.astype(np.float64), np.zeros(weight.shape)
        for update, gradient in enumerate(gradients[:, 0, 0]):
            now = first if update < 2 else second
            late = first if form is COMBINED and update < 3 else now
            decay = (1 - late["dm"]) * late["wd"] * golden
            velocity = late["mm"] * velocity + decay + (1 - now["dm"]) * gradient
            golden = golden - np.float64(np.float32(now["lr"])) * velocity
        result, _ = trained(
            sgd(form, is_const=False, **first),
            weight,
            gradients,
            later={2: sgd(form, is_const=False, **second)},
        )
        close(result, golden)


def test_names_values_and_constness_of_scalars():
    optimizer = popart.SGD(
        {
            "defaultLearningRate": (0.5, False),
            "defaultDampening": (0.25, True),
            "lossScaling": (8, True),
        }
    )
    optimizer.insertSpecific("b", {"weightDecay": (0.5, True), "momentum": (0.5, True)})
    factors = Factors(accumulation=4, replicas=2, is_mean=True)
    rule = rule_of(optimizer, factors, False)
    assert rule.scalars("w") == {
        "scaledLearningRate0": Scalar("scaledLearningRate0___default___FLOAT", 0.046875, False),
        "weightDecayScaleFactor0": Scalar("weightDecayScaleFactor0___default___FLOAT", 1.0, False),
    }
    assert rule.scalars("b") == {
        "scaledLearningRate1": Scalar("scaledLearningRate1___specific___b", 0.25, False),
        "dampeningScaleFactor1": Scalar("dampeningScaleFactor1___specific___b", 0.046875, True),
        "scaledMomentum1": Scalar("scaledMomentum1___specific___b", 0.25, True),
        "scaledWeightDecay1": Scalar("scaledWeightDecay1___specific___b", 0.375, True),
    }
    # With accumulation all weights have state.
    assert "scaledMomentum1" in rule_of(optimizer, factors, True).scalars("w")
    # Apart from accumulated gradients, momentum is not summed over replicas.
    separate = rule_of(sgd(SEPARATE, lr=0.5, mm=0.5), factors, True).scalars("w")
    assert separate["scaledLearningRate1"].value == separate["scaledMomentum1"].value == 0.5


@pytest.mark.parametrize("form", [COMBINED, SEPARATE])
def test_float16(trained, close, problem, form):
    weight, gradients = problem(2, updates=10)
    values = {"lr": 0.01, "mm": 0.9, "wd": 0.02}
    half = weight.astype("float16")
    golden, _ = expected(half, gradients, **values)
    result, slots = trained(sgd(form, **values), half, gradients)
    assert {each.dtype for each in (result, *slots.values())} == {np.dtype("float16")}
    close(result, golden, 4e-3)
    wide = popart.SGD(
        {KEYS[key]: (value, True) for key, value in values.items()},
        accumulatorAndMomentum=form,
        accl1Type=DataType.FLOAT,
    )
    _, slots = trained(wide, half, gradients)
    assert [each.dtype for each in slots.values()] == [np.dtype("float32")]


def test_accumulated_gradients_have_their_type():
    types = {"accumType": DataType.FLOAT16, "accl1Type": DataType.FLOAT}
    optimizer = popart.SGD({}, accumulatorAndMomentum=SEPARATE, **types)
    half, single = np.dtype("float16"), np.dtype("float32")
    assert rule_of(optimizer, Factors(2), True).accumulator.dtype(single) == half
    assert rule_of(popart.SGD({}), Factors(2), True).accumulator.dtype(single) == single
    combined = popart.SGD({}, accl1Type=DataType.FLOAT16)
    assert rule_of(combined, Factors(2), True).accumulator.dtype(single) == half


def test_accumulated_float16_gradients_overflow(trained):
    optimizer = popart.SGD({}, accumulatorAndMomentum=SEPARATE, accumType=DataType.FLOAT16)
    weight, _ = trained(optimizer, ONE, np.full((1, 2, 1, 1), 60000.0))
    assert weight == [-np.inf]
    # Without accumulation there is no such tensor.
    optimizer = popart.SGD(
        {"defaultMomentum": (0.5, True)},
        accumulatorAndMomentum=SEPARATE,
        accumType=DataType.FLOAT16,
    )
    weight, _ = trained(optimizer, ONE, np.full((1, 1, 1, 1), 120000.0))
    assert np.isfinite(weight)


NUMBERS = st.floats(0, 1, width=32)


# The fixture is a function without state.
@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(lr=st.floats(0.0625, 1), wd=NUMBERS, mm=NUMBERS, dm=NUMBERS, vs=st.floats(0.125, 8))
def test_all_forms_agree(trained, lr, wd, mm, dm, vs):
    weight = np.array([1.0, -0.5, 0.25], "float32")
    gradients = np.array([[0.5, 1, -1], [2, 0, 1], [0, -1, 0.5]]).reshape(3, 1, 1, 3)
    values = {"lr": lr, "wd": wd, "mm": mm, "dm": dm, "vs": vs}
    golden, _ = expected(weight, gradients, **values)
    for form in (COMBINED, SEPARATE):
        result, _ = trained(sgd(form, **values), weight, gradients, accumulates=True)
        np.testing.assert_allclose(result, golden, rtol=0, atol=1e-5 * (1 + abs(golden).max()))
