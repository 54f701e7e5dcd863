"""Each layer of Keras can be profiled, in training and in prediction."""

import pytest
import tensorflow as tf
from keras_layers import CASES, LEFT_OUT, missing

from ipu_keras import profile


def test_no_layer_is_missing():
    assert missing() == []
    assert not LEFT_OUT.keys() & CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_each_has_a_model(name):
    case = CASES[name]
    trained = profile(case.model(), case.specs, tf.TensorSpec((4, 1)), mode="train")
    predicted = profile(case.model(), case.specs, mode="predict")
    for report in (trained, predicted):
        assert report.cycles_per_step > 0
        assert min(row.cycles for row in report.rows) >= 0
    # It has a weight, whose gradient needs what the layer computes.
    assert len(trained.rows) > len(predicted.rows)


@pytest.mark.parametrize(
    ("name", "not_lowered"),
    [
        ("CategoryEncoding count", ("DenseBincount",)),
        ("IntegerLookup", ("LookupTableFindV2",)),
        ("StringLookup", ("AsString", "LookupTableFindV2")),
    ],
)
def test_what_has_none_of_its_own_is_named(name, not_lowered):
    case = CASES[name]
    report = profile(case.model(), case.specs, mode="predict")
    assert report.not_lowered == not_lowered
    (remark,) = (remark for remark in report.remarks if remark.startswith("Guessed"))
    assert remark == f"Guessed, because XLA cannot lower them: {', '.join(not_lowered)}"
