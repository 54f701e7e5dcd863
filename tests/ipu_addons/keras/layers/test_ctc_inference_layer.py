"""The CTC beam search as a layer: Keras's battery, and on the IPU."""

import doctest

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.testing import TestCase

from ipu_addons.keras.layers import CTCInferenceLayer
from ipu_addons.keras.layers import ctc_inference_layer as module
from ipu_keras import nn_ops
from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM

TIME, BATCH, CLASSES = 6, 4, 5
ARGUMENTS = {"blank_index": 1, "beam_width": 7, "top_paths": 3, "from_logits": True}
LENGTHS = np.array([6, 4, 1, 0], "int32")


def logits():
    return np.random.default_rng(0).normal(size=(TIME, BATCH, CLASSES)).astype("float32")


def test_example_in_the_docstring():
    assert doctest.testmod(module).failed == 0


def test_battery():
    TestCase().run_layer_test(
        CTCInferenceLayer,
        ARGUMENTS,
        input_shape={"data_shape": (TIME, BATCH, CLASSES), "data_length_shape": (BATCH,)},
        input_dtype={"data_shape": "float32", "data_length_shape": "int32"},
        expected_output_shape=((BATCH, 3), (BATCH, 3), (BATCH, 3, TIME)),
        expected_num_trainable_weights=0,
        # There is no gradient.
        run_training_check=False,
        run_mixed_precision_check=False,
    )


@pytest.mark.parametrize("from_logits", [True, False])
def test_is_the_operation(from_logits):
    arguments = {**ARGUMENTS, "from_logits": from_logits}
    data = logits() if from_logits else tf.nn.log_softmax(logits())
    operation = (
        nn_ops.ctc_beam_search_decoder
        if from_logits
        else nn_ops.ctc_beam_search_decoder_with_log_probs
    )
    expected = operation(data, LENGTHS, 7, 3, 1)
    actual = CTCInferenceLayer(**arguments)(data, LENGTHS)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_defaults():
    config = CTCInferenceLayer().get_config()
    names = ("blank_index", "beam_width", "top_paths", "from_logits")
    assert tuple(config[name] for name in names) == (0, 100, 1, False)


@pytest.mark.parametrize(("dtype", "expected"), [("float32",) * 2, ("mixed_float16", "float16")])
def test_types_of_symbolic_and_real_results(dtype, expected):
    layer = CTCInferenceLayer(**ARGUMENTS, dtype=dtype)
    data = keras.Input(batch_shape=(TIME, None, CLASSES))
    lengths = keras.Input((), dtype="int32")
    symbolic, real = layer(data, lengths), layer(logits(), LENGTHS)
    for results in (symbolic, real):
        types = [keras.backend.standardize_dtype(tensor.dtype) for tensor in results]
        assert types == [expected, "int32", "int32"]
    assert [tensor.shape for tensor in symbolic] == [(None, 3), (None, 3), (None, 3, TIME)]


def test_predicts_on_the_ipu():
    def build():
        steps = keras.Input((TIME, CLASSES), batch_size=BATCH)
        lengths = keras.Input((), batch_size=BATCH, dtype="int32")
        data = keras.ops.transpose(steps, (1, 0, 2))
        return keras.Model((steps, lengths), CTCInferenceLayer(**ARGUMENTS)(data, lengths))

    SYSTEM.connect(DRIVER)
    config = IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    try:
        with IPUStrategy().scope():
            model = build()
            model.compile()
        x = np.concatenate([logits().transpose(1, 0, 2)] * 2), np.concatenate([LENGTHS] * 2)
        results = model.predict(x, batch_size=BATCH, verbose=0)
    finally:
        SYSTEM.reset()
    expected = nn_ops.ctc_beam_search_decoder(logits(), LENGTHS, 7, 3, 1)
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(one, np.concatenate([other] * 2), rtol=1e-5)


@pytest.mark.parametrize("top_paths", [0, 101])
def test_more_paths_than_the_beam_has(top_paths):
    message = f"^`top_paths` must be .* Received: top_paths={top_paths}(, beam_width=100)?$"
    with pytest.raises(ValueError, match=message):
        CTCInferenceLayer(top_paths=top_paths)


def test_blank_that_is_no_class():
    with pytest.raises(ValueError, match=r"one of the 5 classes .* blank_index=7"):
        CTCInferenceLayer(blank_index=7)(logits(), LENGTHS)


def test_misspelt_argument_of_a_call():
    with pytest.raises(TypeError, match=r"`CTCInferenceLayer` has no argument `beam`.* beam=1"):
        CTCInferenceLayer()(logits(), LENGTHS, beam=1)
