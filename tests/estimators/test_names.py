"""The names of `tf.estimator`, which TensorFlow has dropped."""

import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from project_imports import PROJECT

from ipu_keras import estimators
from ipu_keras.estimators.run_config import EstimatorRunConfig


def test_both_ways_to_them():
    assert tf.estimator is tf.compat.v1.estimator is estimators
    assert tf.estimator.RunConfig is EstimatorRunConfig
    assert tf.estimator.SessionRunHook is tf.compat.v1.train.SessionRunHook
    assert (tf.estimator.ModeKeys.TRAIN, tf.estimator.ModeKeys.PREDICT) == ("train", "infer")
    assert issubclass(tf.estimator.export.PredictOutput, tf.estimator.export.ExportOutput)


def test_importing_the_first_version_later_keeps_them():
    script = """
import tensorflow as tf
from tensorflow.python import ipu
import tensorflow.compat.v1 as first
assert tf.compat.v1.estimator is first.estimator is tf.estimator
"""
    # In a process in which nothing has imported the first version before.
    subprocess.run([sys.executable, "-c", script], check=True)


def test_what_is_not_there_says_what_is():
    with pytest.raises(AttributeError, match=r"no 'Estimator' here: .* `ipu\.ipu_estimator\.IPUEs"):
        _ = tf.estimator.Estimator


def test_the_how_to_has_all_names():
    text = Path(PROJECT, "docs", "how-to", "estimators.md").read_text()
    public = {name for name in vars(estimators) if name[0].isupper() and name != "Any"}
    assert {name for name in public if f"`{name}`" not in text} == set()
