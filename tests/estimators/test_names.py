"""The names of `tf.estimator`, which TensorFlow has dropped."""

import pytest
import tensorflow as tf

from ipu_keras import estimators
from ipu_keras.estimators.run_config import EstimatorRunConfig


def test_both_ways_to_them():
    assert tf.estimator is tf.compat.v1.estimator is estimators
    assert tf.estimator.RunConfig is EstimatorRunConfig
    assert tf.estimator.SessionRunHook is tf.compat.v1.train.SessionRunHook
    assert (tf.estimator.ModeKeys.TRAIN, tf.estimator.ModeKeys.PREDICT) == ("train", "infer")
    assert issubclass(tf.estimator.export.PredictOutput, tf.estimator.export.ExportOutput)


def test_what_is_not_there_says_what_is():
    with pytest.raises(AttributeError, match=r"no 'Estimator' here: .* `ipu\.ipu_estimator\.IPUEs"):
        _ = tf.estimator.Estimator
