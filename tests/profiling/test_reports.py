"""Reports of what ran last on a device."""

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
