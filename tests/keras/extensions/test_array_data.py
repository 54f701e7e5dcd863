"""Arrays make no pipeline, and train as in stock Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from comparison import assert_same, classifier, fit_same
from tensorflow.python.framework.config import disable_op_determinism

from ipu_keras.keras.extensions.array_data import ArrayData, ArraySource, with_array_data


@pytest.fixture
def no_pipeline(monkeypatch):
    """Fails a test in which a `tf.data` pipeline of arrays is made."""

    def refuse(*args, **kwargs):
        pytest.fail("a pipeline was made")

    monkeypatch.setattr(tf.data.Dataset, "range", refuse)
    monkeypatch.setattr(tf.data.Dataset, "from_tensors", refuse)


@pytest.mark.parametrize("shuffle", [True, "batch"])
def test_seeded_shuffles_are_those_of_stock_keras(pair, data, shuffle):
    histories = []
    for model in pair:
        keras.utils.set_random_seed(4)
        fitted = model.fit(*data, batch_size=8, epochs=2, shuffle=shuffle, verbose=0)
        histories.append(fitted.history)
    assert_same(histories[1], histories[0])
    assert_same(pair[1].get_weights(), pair[0].get_weights())


@pytest.mark.parametrize(
    "options",
    [
        {"class_weight": {0: 1.0, 1: 0.5, 2: 3.0}},
        {"sample_weight": np.linspace(0, 2, 64, dtype=np.float32)},
        {"validation_split": 0.25},
        {"steps_per_epoch": 4, "epochs": 2},
        {"steps_per_epoch": 4, "batch_size": None},
        {"epochs": 3, "initial_epoch": 1},
    ],
    ids=lambda options: ", ".join(options),
)
def test_options_of_fit(pair, data, options):
    fit_same(*pair, *data, **{"batch_size": 8, **options})


def test_limits_of_keras_for_debugging(pair, data):
    keras.config.set_max_steps_per_epoch(2)
    try:
        with pytest.warns(UserWarning, match="^Limiting steps_per_epoch to 2"):
            fit_same(*pair, *data, batch_size=8)
        # Keras takes the limit for the number of batches, which have half of the samples each.
        with pytest.warns(UserWarning, match="^Limiting steps_per_epoch to 2"):
            fit_same(*pair, *data)
    finally:
        keras.config.set_max_steps_per_epoch(None)


@pytest.mark.usefixtures("no_pipeline")
def test_no_pipeline_is_made(pair, data):
    _, model = pair
    model.fit(*data, batch_size=8, epochs=2, validation_data=data, verbose=0)
    model.evaluate(*data, batch_size=8, verbose=0)
    assert model.predict(data[0], batch_size=8, verbose=0).shape == (64, 3)


def test_kinds_of_arrays(strategy, pair, data):
    x, y = data
    with tf.device(strategy.device.name):
        on_device = tf.constant(x)
    kinds = [x.astype(np.float64), tf.constant(x), tf.Variable(x), on_device, x.astype(np.float16)]
    for kind in kinds:
        stock = x if kind is on_device else kind
        expected, predicted = (
            model.predict(given, batch_size=8, verbose=0)
            for model, given in zip(pair, (stock, kind), strict=True)
        )
        assert_same(predicted, expected)
    fit_same(*pair, kinds[0], tf.constant(y), batch_size=8)


def test_arrays_that_change(model, data):
    """Between calls that is seen; in a call, by a callback, it is not, as in stock Keras."""
    x = data[0].copy()
    before = model.predict(x, batch_size=8, verbose=0)

    class Change(keras.callbacks.Callback):
        def on_predict_batch_begin(self, batch, logs=None):
            x[:] = 0

    same = model.predict(x, batch_size=8, verbose=0, callbacks=[Change()])
    np.testing.assert_array_equal(same, before)
    after = model.predict(x, batch_size=8, verbose=0)
    # Without AVX-512, products round the last rows of a batch in another way than the others.
    np.testing.assert_allclose(after, np.repeat(after[:1], 64, axis=0), rtol=1e-6)


def call_of(x, **options):
    return {"x": x, "batch_size": 4, **options}


def test_structures_and_formats():
    x = {"b": np.zeros((8, 2)), "a": [np.arange(8, dtype=np.int32), None]}
    adapter = with_array_data(call_of(x, y=np.ones(8, np.float32)), None)["x"]
    source = adapter.get_tf_dataset()
    assert isinstance(source, ArraySource)
    assert source.element.structure == ({"a": (0, None), "b": 1}, 2)
    assert [(spec.shape, spec.dtype) for spec in source.element.specs] == [
        ((4,), "int32"), ((4, 2), "float32"), ((4,), "float32")
    ]  # fmt: skip


def test_what_is_left_to_keras():
    dataset = tf.data.Dataset.range(4)
    assert with_array_data(call_of(dataset), None)["x"] is dataset
    adapter = ArrayData(np.arange(4))
    assert with_array_data(call_of(adapter), None)["x"] is adapter
    for others in (tf.sparse.eye(4), np.array(["a", "b", "c", "d"], object)):
        adapter = with_array_data(call_of(others), None)["x"]
        assert isinstance(adapter.get_tf_dataset(), tf.data.Dataset)


def test_errors_are_those_of_keras(pair, data):
    x, y = data
    calls = [
        lambda model: model.fit(x, y[:32], batch_size=8),
        lambda model: model.evaluate(x, y, sample_weight=y[:8]),
        lambda model: model.fit(x, y, sample_weight=y, class_weight={0: 1.0}),
        lambda model: model.predict((x, x[:8])),
    ]
    for call in calls:
        messages = []
        for model in pair:
            with pytest.raises(ValueError) as error:
                call(model)
            messages.append(str(error.value))
        assert messages[0] == messages[1]


def test_a_model_that_is_not_compiled(strategy, data):
    with strategy.scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(3)])
    for call in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match=r"^You must call `compile\(\)` before"):
            call(data[0], data[1][:3], batch_size=8)


def test_operations_that_must_be_deterministic_need_a_seed(model, data):
    tf.random.set_seed(None)
    tf.config.experimental.enable_op_determinism()
    try:
        with pytest.raises(RuntimeError, match=r"^Random ops require a seed to be set"):
            model.fit(*data, batch_size=8, verbose=0)
    finally:
        disable_op_determinism()


def test_two_models_in_turns(twins, pair, data):
    others = twins(classifier, optimizer="adam")
    for _ in range(2):
        fit_same(*pair, *data, batch_size=8)
        fit_same(*others, *data, batch_size=16)
