"""What fit's lines say of an IPU is what reports of the same programs say."""

import doctest
import math
import re
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from comparison import LOSS, classifier

import ipu_keras
from ipu_keras import EstimatedCycles, last_report
from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM


def raises(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}")


@pytest.fixture(scope="module", autouse=True)
def devices():
    """/device:IPU:0 and 1 with one and two IPUs."""
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = [1, 2]
    config.configure_ipu_system()
    yield
    SYSTEM.reset()


def classifier_on(device, **options):
    with IPUStrategy(f"/device:IPU:{device}").scope():
        return classifier(**options)


def of_report(device=0, **options):
    report = last_report(device, **options)
    return report.cycles_per_step, report.seconds_per_step * 1e3


def of_logs(history, per="step"):
    found = history.history
    return found[f"ipu_cycles_per_{per}"], found[f"ipu_ms_per_{per}"]


def test_the_line_of_each_epoch_ends_with_what_a_step_takes(data, capsys):
    model = classifier_on(0, steps_per_execution=4)
    # Its program runs after that of training.
    validation = {"validation_data": data, "validation_batch_size": 16}
    history = model.fit(*data, 8, epochs=2, verbose=2, callbacks=[EstimatedCycles()], **validation)
    lines = [line for line in capsys.readouterr().out.splitlines() if " - loss: " in line]
    model.fit(*data, 8, verbose=0)
    cycles, ms = of_report()
    assert of_logs(history) == ([cycles, cycles], [pytest.approx(ms)] * 2)
    assert len(lines) == 2
    for line in lines:
        assert re.search(
            rf" - ipu_cycles_per_step: {cycles}\.0000 - ipu_ms_per_step: {ms:.4f}", line
        )


def test_an_epoch_has_all_that_ran_in_it_and_no_more(data):
    x, y = data
    model = classifier_on(0, steps_per_execution=2)
    callback = EstimatedCycles(per="epoch")
    of_epochs = {}
    for size in (8, 16, 8):
        history = model.fit(x, y, size, epochs=2, verbose=0, callbacks=[callback])
        cycles, ms = of_report()
        steps = len(x) // size
        assert of_logs(history, "epoch") == ([cycles * steps] * 2, [pytest.approx(ms * steps)] * 2)
        of_epochs[size] = cycles * steps
    assert len(model.train_function.executables) == 2
    assert of_epochs[8] > of_epochs[16]


def test_of_replicas_with_asynchronous_callbacks(data):
    model = classifier_on(1, steps_per_execution=2)
    model.set_asynchronous_callbacks(True)
    seen = []
    each = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: seen.append(step))
    history = model.fit(*data, 8, verbose=0, callbacks=[each, EstimatedCycles()])
    report = last_report(1)
    assert report.model.options.num_replicas == 2
    assert seen == [0, 0, 1, 1, 2, 2, 3, 3]
    assert of_logs(history) == (
        [report.cycles_per_step],
        [pytest.approx(report.seconds_per_step * 1e3)],
    )


@pytest.mark.parametrize("asynchronous", [False, True])
def test_of_a_pipeline(data, asynchronous):
    with IPUStrategy("/device:IPU:1").scope():
        model = keras.Sequential(
            [keras.Input([6]), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)]
        )
    model.set_pipeline_stage_assignment([0, 1])
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
    model.set_asynchronous_callbacks(asynchronous)
    model.compile("sgd", LOSS, steps_per_execution=8)
    callback = EstimatedCycles(per="epoch")
    history = model.fit(*data, 8, verbose=0, callbacks=[callback])
    report = last_report(1)
    assert report.pipeline is not None
    assert of_logs(history, "epoch")[0] == [report.cycles_per_execution]


def test_the_target_is_that_of_the_configuration_or_another(data):
    model = classifier_on(0, steps_per_execution=8)
    callbacks = [EstimatedCycles(), EstimatedCycles(target="bow", per="epoch")]
    history = model.fit(*data, 8, verbose=0, callbacks=callbacks)
    (cycles,), (ms,) = of_logs(history)
    assert (cycles, ms) == (of_report()[0], pytest.approx(of_report()[1]))
    (cycles_of_bow,), (ms_of_bow,) = of_logs(history, "epoch")
    expected, expected_ms = of_report(target="bow")
    assert (cycles_of_bow, ms_of_bow) == (expected * 8, pytest.approx(expected_ms * 8))
    assert ms_of_bow < ms * 8  # the clock is faster


class LogsOfTests(keras.callbacks.Callback):
    """Keeps the logs of all evaluations."""

    def __init__(self):
        super().__init__()
        self.found = []

    def on_test_end(self, logs=None):
        self.found.append(dict(logs))


def test_an_evaluation_has_what_its_program_takes(data, capsys):
    model = classifier_on(0, steps_per_execution=4)
    callback, logs = EstimatedCycles(per="epoch"), LogsOfTests()
    with_validation = {"validation_data": data, "validation_batch_size": 8}
    history = model.fit(*data, 8, verbose=0, callbacks=[callback, logs], **with_validation)
    found = model.evaluate(*data, 16, verbose=2, return_dict=True, callbacks=[callback, logs])
    cycles, ms = of_report()
    steps = len(data[0]) // 16
    of_validation, of_evaluation = logs.found
    assert of_evaluation["ipu_cycles_per_epoch"] == cycles * steps
    assert of_evaluation["ipu_ms_per_epoch"] == pytest.approx(ms * steps)
    assert cycles * steps != history.history["ipu_cycles_per_epoch"][0]
    assert f" - ipu_cycles_per_epoch: {cycles * steps}.0000" in capsys.readouterr().out
    # Results and validation are as without it.
    assert set(of_validation) == set(found) == {"accuracy", "loss"}


def test_an_evaluation_after_a_training_that_was_interrupted(data):
    model = classifier_on(0, steps_per_execution=4)
    callback, logs = EstimatedCycles(), LogsOfTests()

    def interrupt(epoch, logs):
        raise KeyboardInterrupt

    end = keras.callbacks.LambdaCallback(on_epoch_end=interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*data, 8, verbose=0, callbacks=[callback, end])
    model.evaluate(*data, 8, verbose=0, callbacks=[callback, logs])
    assert logs.found[0]["ipu_cycles_per_step"] == of_report()[0]


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize(("per", "of_nothing"), [("step", math.nan), ("epoch", 0)])
def test_an_epoch_without_data_has_no_steps(data, per, of_nothing):
    model = classifier_on(0, steps_per_execution=4)
    x, y = (array[:32] for array in data)
    spec = tuple(tf.TensorSpec((8, *array.shape[1:]), array.dtype) for array in (x, y))

    def batches():
        for start in range(0, 32, 8):
            yield x[start : start + 8], y[start : start + 8]

    dataset = tf.data.Dataset.from_generator(batches, output_signature=spec)
    callbacks = [EstimatedCycles(per=per)]
    history = model.fit(
        dataset, epochs=2, steps_per_epoch=4, shuffle=False, verbose=0, callbacks=callbacks
    )
    for first, second in of_logs(history, per):
        assert first > 0
        assert second == pytest.approx(of_nothing, nan_ok=True)


def test_a_model_of_another_strategy_is_refused_before_it_is_trained(data):
    model = classifier()
    before = model.get_weights()
    message = (
        "EstimatedCycles is for models that run as programs of an IPU. Make the model in the scope "
        "of an IPUStrategy: `with strategy.scope():`; `ipu_keras.profile` models any other. "
        f"Received: {model.name!r}, of strategy _DefaultDistributionStrategy"
    )
    with raises(ValueError, message):
        model.fit(*data, verbose=0, callbacks=[EstimatedCycles()])
    for weight, expected in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, expected)


def test_arguments_are_checked():
    with raises(ValueError, "`per` must be one of step, epoch. Received: per='batch'"):
        EstimatedCycles(per="batch")
    with pytest.raises(ValueError, match="gc200"):
        EstimatedCycles(target="gc3000")
    assert "EstimatedCycles" in dir(ipu_keras)


def test_its_example_runs():
    assert doctest.testmod(sys.modules[EstimatedCycles.__module__]).failed == 0
