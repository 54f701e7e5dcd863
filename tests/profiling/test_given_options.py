"""Options that users give to whatever models a program."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from image_classifier import IMAGES

from ipu_keras import last_report, profile, what_if

BAD_OPTIONS = [
    ({"target": "x"}, ValueError, "one of gc2, gc200, bow, c600. Received: target='x'"),
    ({"target": 3}, ValueError, "one of gc2, gc200, bow, c600, or a Target. Received: target=3"),
    ({"num_ipus": 3}, ValueError, "a power of two: .*Received: num_ipus=3"),
    ({"batch_size": -1}, ValueError, "`batch_size` must be a positive .*Received: batch_size=-1"),
    ({"batch_size": "abc"}, ValueError, "Received: batch_size='abc'"),
    ({"batch_size": True}, ValueError, "Received: batch_size=True"),
    ({"dtype": tf.int8}, ValueError, "one of float16, float32, .*Received: dtype='int8'"),
    ({"dtype": 1}, ValueError, "Received: dtype=1"),
    ({"pipeline": 3}, ValueError, "must be a Pipeline"),
    ({"convolution_options": 3}, TypeError, "must be a dictionary of Poplar options"),
    (
        {"num_ipu": 2},
        TypeError,
        r"Unknown option `num_ipu`\. Did you mean `num_ipus`\? Received: num_ipu=2\. "
        "The options are mode, .*batch_size, target, .*, pipeline",
    ),
    ({"foo": 1}, TypeError, r"Unknown option `foo`\. Received: foo=1\. The options are mode, "),
    ({"batchsize": 1}, TypeError, "Did you mean `batch_size`"),
    ({"mode": "fit"}, ValueError, "Received: mode='fit'"),
]


@pytest.mark.parametrize(
    ("function", "options", "error", "message"),
    [
        *((function, *bad) for function in (profile, what_if) for bad in BAD_OPTIONS),
        (profile, {"name": 3}, TypeError, "`name` must be a string. Received: name=3"),
        (what_if, {"name": ["a"]}, TypeError, "Unknown option `name`"),
        (what_if, {"num_ipus": [1, 3]}, ValueError, "Received: num_ipus=3"),
        (what_if, {"batch_size": [4, None]}, ValueError, "Received: batch_size=None"),
        (what_if, {"batch_size": []}, ValueError, "`batch_size` needs at least one value"),
    ],
)
def test_options_are_checked_before_a_model_is_built(function, options, error, message):
    model = keras.Sequential([keras.layers.Dense(3)])
    model.compile("adam", "mse")
    with pytest.raises(error, match=message):
        function(model, tf.TensorSpec((4, 4)), tf.TensorSpec((4, 3)), **options)
    assert not model.built
    assert not model.optimizer.built


@pytest.mark.parametrize("call", [profile, what_if, last_report])
def test_options_of_poplar_without_a_model(strategy, call):
    """In one warning, where the user called; those that have a model give none."""
    given = (lambda x: x @ x, tf.TensorSpec((8, 8)))
    if call is last_report:
        strategy.run(tf.function(lambda: tf.zeros((8, 8)) @ tf.ones((8, 8))))
        given = ()
    options = {"partialsType": "half", "availableMemoryProportion": "0.1"}
    call(*given, matmul_options=options, convolution_options=None)
    options = {**options, "partialType": "half", "cycleBackOff": 0.1}
    with pytest.warns(UserWarning, match="have no model") as warned:
        call(*given, matmul_options=options, convolution_options={"cycleBackOff": 0.1})
    assert [str(each.message) for each in warned] == [
        "These options of Poplar have no model, and no effect: 'cycleBackOff' in "
        "`convolution_options`, 'cycleBackOff' in `matmul_options`, 'partialType' (did you mean "
        "'partialsType'?) in `matmul_options`. Those that have one are availableMemoryProportion "
        "and partialsType."
    ]
    assert warned[0].filename == __file__


def test_choices_of_poplars_options_without_a_model():
    choices = [None, {"a": "1"}, {"b": "1", "partialsType": "half"}, {"a": "2"}]
    with pytest.warns(UserWarning, match="no effect: 'a' in `matmul_options`, 'b' in `matmul_op"):
        table = what_if(lambda x: x @ x, tf.TensorSpec((8, 8)), matmul_options=choices)
    assert len(table.rows) == 4


@pytest.mark.parametrize("dtype", [tf.float16, np.float16, np.dtype("float16"), "half"])
def test_other_names_of_a_precision(dtype):
    specs = tf.TensorSpec((16, 16), tf.float32)
    expected = profile(tf.nn.softmax, specs, dtype="float16")
    assert profile(tf.nn.softmax, specs, dtype=dtype).to_json() == expected.to_json()
    (row,) = what_if(tf.nn.softmax, specs, dtype=dtype).rows
    assert row.choices == {"batch_size": 16, "dtype": "float16"}


def test_sizes_of_numpy_are_as_those_of_python():
    report = profile(tf.abs, IMAGES, batch_size=np.int64(16))
    assert report.batch_size == 16
    assert type(report.batch_size) is int
