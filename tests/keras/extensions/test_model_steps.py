"""Which programs of a model may run their first steps before XLA compiles them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.config import disable_op_determinism

pytestmark = pytest.mark.usefixtures("op_by_op_first")


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


def test_it_goes_on_as_xla_computes(strategy):
    model = embedded(strategy)
    fit(model, (UNKNOWN[0] * 0, UNKNOWN[1]), epochs=32)
    assert np.isfinite(fit(model).history["loss"][0])


def test_inference_is_computed_in_one_way(strategy):
    model = embedded(strategy)
    model.evaluate(*UNKNOWN, batch_size=4, verbose=0)
    assert model.predict(UNKNOWN[0], batch_size=4, verbose=0).shape == (4, 1)
    for function in (model.test_function, model.predict_function):
        [executable] = function.executables
        assert not executable.program.starts_op_by_op


def test_accumulated_gradients_are_computed_in_one_way(strategy):
    model = embedded(strategy, steps_per_execution=2)
    model.set_gradient_accumulation_options(2)
    fit(model, [np.concatenate([each, each]) for each in UNKNOWN])
    [executable] = model.train_function.executables
    assert not executable.program.starts_op_by_op


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
