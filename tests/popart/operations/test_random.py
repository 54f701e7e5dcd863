from itertools import count

import numpy as np
import pytest
import tensorflow as tf
from popart_nodes import Case, case, check

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.graph import AI_ONNX
from ipu_keras.popart.operations.evaluation import Evaluation, outputs_of
from ipu_keras.popart.operations.values import value_of

HALF = np.float16
CASES = (
    Case("RandomNormal", [], 0, {"shape": [50, 40], "mean": 3.0, "scale": 0.5}),
    Case("RandomNormalLike", [np.zeros((50, 40), HALF)], 0, {"mean": 3.0, "scale": 0.5}),
    Case("RandomUniform", [], 0, {"shape": [50, 40], "low": 2.0, "high": 4.0, "dtype": 10}),
    Case("RandomUniformLike", [np.zeros((50, 40))], 0, {"low": 2.0, "high": 4.0, "dtype": 1}),
)


def drawn(case, first_seed=0):
    """Its result in a session whose seeds are counted."""
    seeds = count(first_seed)
    environment = {name: value_of(tf.constant(value)) for name, value in case.given.items()}
    model = case.model()
    evaluation = Evaluation({AI_ONNX: 11}, seed=lambda: tf.constant([next(seeds), 7]))
    evaluation.run(model.graph, environment)
    return environment["y0"].tensor.numpy()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)
def test_numbers_follow_their_distribution_and_the_seed(case):
    numbers = drawn(case)
    assert numbers.shape == (50, 40)
    assert abs(numbers.astype(float).mean() - 3) < 0.05
    deviation = 0.5 if "Normal" in case.kind else 2 / np.sqrt(12)
    assert abs(numbers.astype(float).std() - deviation) < 0.03
    np.testing.assert_array_equal(numbers, drawn(case))
    assert (numbers != drawn(case, first_seed=1)).any()


def test_types_are_those_asked_for_or_given():
    assert [drawn(case).dtype for case in CASES] == [np.float32, HALF, HALF, np.float32]


def test_classes_are_drawn_by_their_logarithms():
    case = Case("Multinomial", [np.log([[1e-9, 0.25, 0.75]])], 0, {"sample_size": 4000, "dtype": 7})
    classes = drawn(case)
    assert classes.shape == (1, 4000)
    assert classes.dtype == np.int64
    assert set(classes.flat) == {1, 2}
    assert abs((classes == 2).mean() - 0.75) < 0.03


def test_a_seed_of_its_own_is_refused():
    case = Case("RandomNormal", [], 0, {"shape": [2], "seed": 1.0})
    with pytest.raises(popart_exception, match=r"`seed` is not supported.*setRandomSeed instead"):
        drawn(case)


def test_functions_have_no_random_numbers():
    with pytest.raises(popart_exception, match=r"In RandomNormal 'y0': .* in sessions only"):
        outputs_of(CASES[0].model(), {})


X = np.float32([[1, -2], [3, 4]])


@pytest.mark.parametrize(
    "one",
    [
        case("Dropout", [X], X),
        case("Dropout", [X], (X, np.ones((2, 2), bool)), ratio=0.9),
        case("Dropout", [X], (X, np.ones((2, 2), np.float32)), version=7),
        case("Dropout", [X], (X, np.ones((2, 2), np.float32)), version=6, is_test=0),
    ],
)
def test_nothing_is_dropped_unless_in_training(one):
    check(one)


def dropped(x, version=11, **attributes):
    """The results in training, of which each has a seed of its own."""
    model = Case("Dropout", [x], (None, None), attributes, version).model()
    seeds = count(1)
    environment = {"x0": value_of(tf.constant(x))}
    evaluation = Evaluation(
        model.opsets, is_training=True, seed=lambda: tf.constant([next(seeds), 0])
    )
    evaluation.run(model.graph, environment)
    return [environment[name].tensor.numpy() for name in model.graph.outputs], next(seeds)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("version", "mask_dtype"), [(6, None), (7, None), (10, bool)])
def test_what_dropout_keeps_is_scaled_up(version, mask_dtype, dtype):
    x = np.full((200, 50), 3, dtype)
    (result, mask), seed = dropped(x, version, ratio=0.25)
    assert (result.dtype, mask.dtype) == (dtype, mask_dtype or dtype)
    np.testing.assert_allclose(result, np.where(mask, 4, 0), rtol=1e-3)
    # Four standard deviations.
    assert abs(mask.astype(float).mean() - 0.75) < 0.02
    assert seed == 2


def test_dropout_of_nothing_draws_nothing():
    (result, mask), seed = dropped(X, ratio=0.0)
    np.testing.assert_array_equal(result, X)
    assert mask.all()
    assert seed == 1
    (result, _), seed = dropped(X, 6, is_test=1)
    np.testing.assert_array_equal(result, X)
    assert seed == 1


@pytest.mark.parametrize("ratio", [1.0, -0.5])
def test_other_ratios_of_dropout_are_refused(ratio):
    one = Case("Dropout", [X], None, {"ratio": ratio})
    text = rf"In Dropout 'y0': `ratio` must be at least 0 and less than 1. Received: {ratio}"
    with pytest.raises(popart_exception, match=text):
        outputs_of(one.model(), one.given)
