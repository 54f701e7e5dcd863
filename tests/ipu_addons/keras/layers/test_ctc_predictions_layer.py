"""The best labels of the CTC beam search as a layer."""

import doctest

import keras
import numpy as np
import pytest
from keras.src.testing import TestCase

from ipu_addons.keras.layers import CTCInferenceLayer, CTCPredictionsLayer
from ipu_addons.keras.layers import ctc_predictions_layer as module

TIME, BATCH, CLASSES = 6, 4, 5
ARGUMENTS = {"beam_width": 7, "top_paths": 3, "from_logits": True}
LENGTHS = np.array([6, 4, 1, 0], "int32")


def logits():
    return np.random.default_rng(0).normal(size=(TIME, BATCH, CLASSES)).astype("float32")


def test_example_in_the_docstring():
    assert doctest.testmod(module).failed == 0


def test_battery():
    TestCase().run_layer_test(
        CTCPredictionsLayer,
        ARGUMENTS,
        input_shape={"data_shape": (TIME, BATCH, CLASSES), "data_length_shape": (BATCH,)},
        input_dtype={"data_shape": "float32", "data_length_shape": "int32"},
        expected_output_shape=(BATCH, TIME),
        expected_output_dtype="int32",
        expected_num_trainable_weights=0,
        # There is no gradient.
        run_training_check=False,
        run_mixed_precision_check=False,
    )


@pytest.mark.parametrize(("blank_index", "blank"), [(2, 2), (-1, 4)])
def test_the_best_path_with_blanks_after_it(blank_index, blank):
    arguments = {**ARGUMENTS, "blank_index": blank_index}
    _, lengths, labels = CTCInferenceLayer(**arguments)(logits(), LENGTHS)
    predictions = CTCPredictionsLayer(**arguments)(logits(), LENGTHS).numpy()
    assert predictions.shape == (BATCH, TIME)
    for row, length, path in zip(predictions, lengths[:, 0], labels[:, 0], strict=True):
        np.testing.assert_array_equal(row[:length], path[:length])
        np.testing.assert_array_equal(row[length:], blank)
        assert blank not in row[:length]
    assert np.all(predictions[LENGTHS == 0] == blank)
    assert np.any(predictions[0] != blank)


def test_shape_and_type_while_a_model_is_made():
    data = keras.Input(batch_shape=(TIME, None, CLASSES))
    predictions = CTCPredictionsLayer()(data, keras.Input((), dtype="int32"))
    assert predictions.shape == (None, TIME)
    assert predictions.dtype == "int32"


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_file(tmp_path):
    data = keras.Input(batch_shape=(TIME, BATCH, CLASSES))
    lengths = keras.Input((), batch_size=BATCH, dtype="int32")
    layer = CTCPredictionsLayer(blank_index=3, **ARGUMENTS)
    model = keras.Model((data, lengths), layer(data, lengths))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[-1].get_config() == layer.get_config()
    np.testing.assert_array_equal(loaded((logits(), LENGTHS)), layer(logits(), LENGTHS))
