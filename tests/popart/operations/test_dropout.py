import itertools

import numpy as np
import pytest
import tensorflow as tf
from popart_nodes import Case, case, check

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.evaluation import Evaluation, outputs_of
from ipu_keras.popart.operations.values import value_of

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


def in_training(x, version=11, **attributes):
    """The results in training, of which each has a seed of its own."""
    model = Case("Dropout", [x], (None, None), attributes, version).model()
    seeds = itertools.count(1)
    environment = {"x0": value_of(tf.constant(x))}
    evaluation = Evaluation(
        model.opsets, is_training=True, seed=lambda: tf.constant([next(seeds), 0])
    )
    evaluation.run(model.graph, environment)
    return [environment[name].tensor.numpy() for name in model.graph.outputs], next(seeds)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("version", "mask_dtype"), [(6, None), (7, None), (10, bool)])
def test_what_is_kept_is_scaled_up(version, mask_dtype, dtype):
    x = np.full((200, 50), 3, dtype)
    (result, mask), seed = in_training(x, version, ratio=0.25)
    assert (result.dtype, mask.dtype) == (dtype, mask_dtype or dtype)
    np.testing.assert_allclose(result, np.where(mask, 4, 0), rtol=1e-3)
    # Four standard deviations.
    assert abs(mask.astype(float).mean() - 0.75) < 0.02
    assert seed == 2


def test_nothing_is_drawn_for_nothing():
    (result, mask), seed = in_training(X, ratio=0.0)
    np.testing.assert_array_equal(result, X)
    assert mask.all()
    assert seed == 1
    (result, _), seed = in_training(X, 6, is_test=1)
    np.testing.assert_array_equal(result, X)
    assert seed == 1


@pytest.mark.parametrize("ratio", [1.0, -0.5])
def test_other_ratios_are_refused(ratio):
    one = Case("Dropout", [X], None, {"ratio": ratio})
    text = rf"In Dropout 'y0': `ratio` must be at least 0 and less than 1. Received: {ratio}"
    with pytest.raises(popart_exception, match=text):
        outputs_of(one.model(), one.given)
