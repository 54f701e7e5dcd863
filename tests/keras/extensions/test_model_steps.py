"""Which programs of a model may run their first steps before XLA compiles them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.config import disable_op_determinism

from ipu_keras.ipu_strategy import IPUStrategy


def embedded(strategy, **options):
    """A model of words of which there are three."""
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input([2], dtype="int32"), keras.layers.Embedding(3, 4), keras.layers.Flatten()]
        )
        model.add(keras.layers.Dense(1))
        model.compile("sgd", "mse", **options)
    return model


UNKNOWN = np.full([4, 2], 9, np.int32), np.zeros(4, np.float32)
REFUSED = pytest.raises(tf.errors.InvalidArgumentError, match="9 is not in")


def fit(model, data=UNKNOWN, **options):
    return model.fit(*data, batch_size=4, verbose=0, shuffle=False, **options)


def test_training_starts_as_tensorflow_computes(strategy):
    """As in stock Keras, which refuses such a word; weights stay as they were."""
    model = embedded(strategy)
    before = model.get_weights()
    with REFUSED:
        fit(model)
    for weight, unchanged in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, unchanged)


def known(num_batches=1):
    """Words that there are, for some batches."""
    return np.zeros([4 * num_batches, 2], np.int32), np.zeros(4 * num_batches, np.float32)


@pytest.fixture
def xla_after_40_steps(monkeypatch):
    monkeypatch.setenv("IPU_KERAS_FIRST_STEPS", "40")


@pytest.mark.usefixtures("xla_after_40_steps")
def test_training_goes_on_as_xla_computes(strategy):
    model = embedded(strategy)
    fit(model, known(), epochs=40)
    assert np.isfinite(fit(model).history["loss"][0])


@pytest.mark.usefixtures("xla_after_40_steps")
def test_training_of_known_length_changes_over_after_its_first_steps(strategy):
    """The 33rd step is XLA's, as more than 40 are to come; before, such a word is refused."""
    model = embedded(strategy)
    with REFUSED:
        fit(
            model, [np.concatenate(each) for each in zip(known(31), UNKNOWN, known(9), strict=True)]
        )
    model = embedded(strategy)
    fit(model, [np.concatenate(each) for each in zip(known(32), UNKNOWN, known(8), strict=True)])


@pytest.mark.usefixtures("xla_after_40_steps")
def test_training_that_is_too_short_never_changes_over(strategy):
    model = embedded(strategy)
    with REFUSED:
        fit(model, [np.concatenate(each) for each in zip(known(39), UNKNOWN, strict=True)])


@pytest.mark.parametrize("method", ["evaluate", "predict"])
@pytest.mark.usefixtures("xla_after_40_steps")
def test_inference_changes_over_once_a_weight_was_written(strategy, method):
    """Of 20 batches a call: after two calls, and not before a weight has another value."""

    def call(model, data):
        x, y = data
        arguments = (x, y) if method == "evaluate" else (x,)
        return getattr(model, method)(*arguments, batch_size=4, verbose=0)

    model = embedded(strategy)
    first, *others = (call(model, known(20)) for _ in range(5))
    for other in others:
        np.testing.assert_array_equal(other, first)
    with REFUSED:
        call(model, UNKNOWN)
    model.set_weights(model.get_weights())
    with REFUSED:
        call(model, UNKNOWN)
    model.set_weights([2 * weight + 1 for weight in model.get_weights()])
    assert np.all(np.isfinite(call(model, UNKNOWN)))


def test_a_long_inference_is_compiled_at_once(strategy, xla_after_40_steps):
    model = embedded(strategy)
    x, y = (np.concatenate([each] * 41) for each in UNKNOWN)
    assert np.isfinite(model.evaluate(x, y, batch_size=4, verbose=0))


def test_validation_changes_over_between_epochs(strategy, xla_after_40_steps):
    """Training writes weights before each, so that nothing has to stay."""
    model = embedded(strategy)
    x, y = (np.concatenate(each) for each in zip(known(19), UNKNOWN, strict=True))
    with REFUSED:
        fit(model, known(), validation_data=(x, y))
    history = fit(model, known(), epochs=6, validation_data=known(20)).history
    assert len(history["val_loss"]) == 6
    assert np.isfinite(fit(model, known(), validation_data=(x, y)).history["val_loss"][0])


def accumulate(model):
    model.set_gradient_accumulation_options(2)


def pipeline(model):
    model.set_pipeline_stage_assignment([0, 0, 1])
    model.set_pipelining_options(4, device_mapping=[0, 0])


@pytest.mark.parametrize(
    ("spread", "ordinal"),
    [(accumulate, 0), (pipeline, 0), (lambda model: None, 2)],
    ids=["accumulation", "pipeline", "replicas"],
)
def test_what_is_spread_starts_op_by_op_too(strategy, spread, ordinal):
    model = embedded(IPUStrategy(f"/device:IPU:{ordinal}"), steps_per_execution=4)
    spread(model)
    with REFUSED:
        fit(model, [np.concatenate([each] * 8) for each in UNKNOWN])


@pytest.mark.usefixtures("xla_after_40_steps")
def test_replicas_keep_what_they_have_when_xla_begins(strategy):
    """Moving averages and metrics of each go on: as if there had been one way all along."""

    def trained(jit_compile):
        keras.utils.set_random_seed(3)
        with IPUStrategy("/device:IPU:2").scope():
            model = keras.Sequential([keras.Input([3]), keras.layers.BatchNormalization()])
            model.add(keras.layers.Dense(1))
            model.compile("sgd", "mse", metrics=["mae"], jit_compile=jit_compile)
        random = np.random.default_rng(0)
        x = random.standard_normal((4 * 2 * 48, 3), np.float32)
        history = fit(model, (x, x[:, :1]))
        return [*history.history["mae"], *model.get_weights()]

    for found, expected in zip(trained("auto"), trained(True), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


class Evaluates(keras.callbacks.Callback):
    """Evaluates after each epoch, twice, and keeps what comes out."""

    def __init__(self, data):
        super().__init__()
        self.data, self.found = data, []

    def on_epoch_end(self, epoch, logs=None):
        pair = [self.model.evaluate(*self.data, batch_size=4, verbose=0) for _ in range(2)]
        assert pair[0] == pair[1]
        self.found.append(pair[0])


def test_the_change_amid_callbacks_early_stopping_and_other_shapes(strategy, monkeypatch):
    """Numbers are within a rounding of those of a training that never changes over."""
    random = np.random.default_rng(2)
    x = random.integers(0, 3, (48, 2)).astype(np.int32)
    data, smaller = (x, x[:, 0].astype(np.float32)), 40

    def trained(first_steps):
        monkeypatch.setenv("IPU_KERAS_FIRST_STEPS", first_steps)
        keras.utils.set_random_seed(4)
        model = embedded(strategy)
        evaluates = Evaluates(data)
        stops = keras.callbacks.EarlyStopping("loss", patience=2, min_delta=1.0)
        for epochs in (3, 2, 9):
            fit(model, data, epochs=epochs, callbacks=[evaluates, stops])
        # Batches of another size have a program of their own, which begins op by op as well.
        model.fit(*(each[:smaller] for each in data), batch_size=5, shuffle=False, verbose=0)
        assert len(model.train_function.executables) == 2
        return [*evaluates.found, *model.get_weights()]

    found, expected = trained("40"), trained("100000")
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_who_asks_for_xla_has_it_from_the_start(strategy):
    model = embedded(strategy, jit_compile=True)
    assert np.isfinite(fit(model).history["loss"][0])


def test_what_must_be_deterministic_is_computed_in_one_way(strategy):
    tf.random.set_seed(1)
    tf.config.experimental.enable_op_determinism()
    try:
        model = embedded(strategy)
        assert np.isfinite(fit(model).history["loss"][0])
    finally:
        disable_op_determinism()
