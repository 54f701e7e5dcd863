"""Functions, pipelines and Keras models as a server finds them in a SavedModel."""

import doctest

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from ipu_keras import serving
from ipu_keras.device import DRIVER
from ipu_keras.machine.system import SYSTEM

SPEC = tf.TensorSpec((2, 3), tf.float32)
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True, scope="module")
def one_ipu():
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    yield
    SYSTEM.reset()


def served(folder, **inputs):
    """What a server computes, in a graph of its own."""
    loaded = tf.saved_model.load(str(folder)).signatures["serving_default"]
    return {name: value.numpy() for name, value in loaded(**inputs).items()}


def test_examples():
    assert doctest.testmod(serving).failed == 0


def test_a_function_with_names(tmp_path):
    function = ipu.serving.export_single_step(
        lambda x, other: (x + other, x * other), tmp_path, 4, [SPEC, SPEC], output_names=["s", "p"]
    )
    found = served(tmp_path, x=X, other=X)
    np.testing.assert_array_equal(found["s"], X + X)
    np.testing.assert_array_equal(found["p"], X * X)
    np.testing.assert_array_equal(function(X, X)["p"], X * X)


@pytest.mark.parametrize("element", [{"x": X}, X])
def test_signatures_of_datasets_and_variables(tmp_path, element):
    dataset = tf.data.Dataset.from_tensors(element)
    scale = tf.Variable(3.0)
    serving.export_single_step(lambda x: scale * x, tmp_path / "new", 1, input_dataset=dataset)
    np.testing.assert_array_equal(served(tmp_path / "new", x=X)["output_0"], 3 * X)


def test_steps_before_and_after(tmp_path):
    serving.export_single_step(
        lambda x: 2.0 * x,
        tmp_path,
        8,
        [SPEC],
        preprocessing_step=lambda text: tf.reshape(tf.strings.to_number(text), (2, 3)),
        preprocessing_step_signature=[tf.TensorSpec([None], tf.string)],
        postprocessing_step=lambda y: {"total": tf.reduce_sum(y)},
        postprocessing_step_signature=[SPEC],
    )
    assert served(tmp_path, text=tf.constant(list("012345")))["total"] == 30.0


def test_pipelines(tmp_path):
    stages = [lambda rate, x: (rate * x, x), lambda scaled, x: scaled + x]
    serving.export_pipeline(
        stages, tmp_path, 4, inputs=[10.0], device_mapping=[0, 0], predict_step_signature=[SPEC]
    )
    np.testing.assert_array_equal(served(tmp_path, x=X)["output_0"], 11 * X)


def test_models_of_a_strategy(tmp_path):
    with ipu.ipu_strategy.IPUStrategy().scope():
        first, second = keras.Input((3,), name="a"), keras.Input((3,), name="b")
        dropped = keras.layers.Dropout(0.9)(keras.layers.Dense(2)(first + second))
        model = keras.Model({"a": first, "b": second}, dropped)
    serving.export_keras(model, tmp_path, batch_size=2, output_names="y")
    expected = model.predict({"a": X, "b": X}, batch_size=2, verbose=0)
    np.testing.assert_allclose(served(tmp_path, a=X, b=X)["y"], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({}, ValueError, "`predict_step_signature` is needed, or `input_dataset`"),
        (
            {"predict_step_signature": [SPEC], "input_dataset": tf.data.Dataset.range(2)},
            ValueError,
            "Received: predict_step_signature, input_dataset",
        ),
        ({"input_dataset": [X]}, TypeError, "`input_dataset` must be a tf.data.Dataset"),
        ({"predict_step_signature": [X]}, TypeError, "a list or tuple of tf.TensorSpec. Received"),
        (
            {"predict_step_signature": [tf.TensorSpec([None])]},
            ValueError,
            r"must have fully defined shapes.*shape \(None,\) at index 0",
        ),
        (
            {"predict_step_signature": [SPEC], "output_names": ["a", "b"]},
            ValueError,
            "a name for each of the 1 outputs",
        ),
        (
            {
                "predict_step_signature": [SPEC],
                "postprocessing_step": lambda y: y,
                "postprocessing_step_signature": [tf.TensorSpec((2, 4))],
            },
            ValueError,
            "`postprocessing_step_signature` must fit what the predict step returns",
        ),
    ],
)
def test_what_is_refused(tmp_path, options, error, text):
    with pytest.raises(error, match=text):
        serving.export_single_step(lambda x: x, tmp_path / "new", 1, **options)
    assert not (tmp_path / "new").exists()


def test_files_are_deleted_only_if_asked_for(tmp_path):
    (tmp_path / "kept").write_text("")
    with pytest.raises(ValueError, match="`export_dir` must be an empty directory"):
        serving.export_single_step(lambda x: x, tmp_path, 1, [SPEC])
    assert (tmp_path / "kept").exists()
    serving.export_single_step(lambda x: x, tmp_path, 1, [SPEC], purge_export_dir=True)
    assert not (tmp_path / "kept").exists()


def test_models_need_a_batch_size(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="`batch_size` is needed for a model"):
        serving.export_keras(model, tmp_path)
