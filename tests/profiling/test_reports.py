"""Reports of what ran last on a device."""

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from image_classifier import IMAGES, LABELS, image_classifier

from ipu_keras import last_report, profile


def test_the_report_of_what_ran_last(strategy):
    with strategy.scope():
        model = image_classifier()
    images = np.zeros((64, 8, 8, 1), np.float32)
    labels = np.zeros(64, np.int32)
    model.compile("sgd", model.loss, steps_per_execution=2)
    model.fit(images, labels, batch_size=16, verbose=0)
    before = model.get_weights()
    report = last_report()
    assert report.name == f"{model.name}.train"
    assert report.model.options.steps_per_execution == 2
    assert report.samples_per_second == 16 / report.seconds_per_step
    assert len(report.executions) == 2
    assert all(one.waited > 0 and one.began < one.ended for one in report.executions)
    # The order is XLA's, and depends on the order in which variables were captured.
    expected = profile(model, IMAGES, LABELS, steps_per_execution=2)
    assert expected.name == report.name
    assert {row.name: row.cycles for row in report.rows} == {
        row.name: row.cycles for row in expected.rows
    }
    assert last_report("/device:IPU:0", target="bow").seconds_per_step < report.seconds_per_step
    for weight, same in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, same)

    model.predict(images, batch_size=16, verbose=0)
    assert last_report().name == f"{model.name}.predict"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"steps_per_execution": 3}, TypeError, "Unknown option `steps_per_execution`"),
        ({"name": "q"}, TypeError, "Unknown option `name`.*Received: name='q'"),
        ({"targets": "bow"}, TypeError, "Did you mean `target`.*The options are target, batch_"),
        ({"batch_size": 0}, ValueError, "`batch_size` must be a positive integer"),
        ({"batch_size": True}, ValueError, "Received: batch_size=True"),
        ({"target": 3}, ValueError, "Received: target=3"),
        ({"num_ipus": "2"}, ValueError, "Received: num_ipus='2'"),
    ],
)
def test_options_that_the_last_report_does_not_take(strategy, options, error, message):
    strategy.run(tf.function(lambda x: x + x), [tf.ones(3)])
    with pytest.raises(error, match=message):
        last_report(**options)
    assert last_report(batch_size=np.int64(3)).batch_size == 3


def fit(model):
    model.fit(np.zeros((4, 3)), np.zeros((4, 2)), batch_size=2, verbose=0)


def evaluate(model):
    model.evaluate(np.zeros((4, 3)), np.zeros((4, 2)), batch_size=2, verbose=0)


def predict(model):
    model.predict(np.zeros((4, 3)), batch_size=2, verbose=0)


@pytest.mark.parametrize(
    ("run", "mode"), [(fit, "train"), (evaluate, "test"), (predict, "predict")]
)
def test_a_deleted_model_is_freed_with_its_weights(strategy, run, mode):
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)], name="deleted")
        model.compile("sgd", "mse", steps_per_execution=2)
    run(model)
    # Of handles of variables, TensorFlow keeps those of a training itself, also in stock Keras.
    references = [weakref.ref(one) for one in (model, model.weights[0].value)]
    del model
    gc.collect()
    assert [one() for one in references] == [None] * 2
    with pytest.raises(ValueError, match=f"a reference to it.*program 'deleted.{mode}' was freed"):
        last_report()


def test_a_function_is_freed_with_the_variables_that_it_alone_had(strategy):
    def ran():
        with strategy.scope():
            weight = tf.Variable([1.0, 2.0])
        strategy.run(tf.function(lambda x: tf.reduce_sum(x * weight)), [3.0])
        return weakref.ref(weight)

    weight = ran()
    gc.collect()
    assert weight() is None


# Devices stay for as long as their process.
NOTHING_RAN = """
from ipu_keras import config, last_report

config.IPUConfig().configure_ipu_system()
try:
    last_report()
except ValueError as error:
    print(error)
"""


def test_a_device_that_has_run_nothing(run_forked):
    found = run_forked(NOTHING_RAN)
    assert "call `fit`, `evaluate` or `predict`" in found.stdout
    assert "Received: /device:IPU:0, which has run none" in found.stdout
