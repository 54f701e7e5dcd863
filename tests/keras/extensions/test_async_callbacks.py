import threading
import time

import keras
import numpy as np
import pytest
from comparison import assert_same, classifier

from ipu_keras.keras.extensions.async_callbacks import AsyncCallbackList, StepLogs


class Recorder(keras.callbacks.Callback):
    """Every call, with the thread it was made on."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def _record(self, name, *arguments):
        self.calls.append((name, *arguments, threading.current_thread().name))

    def on_epoch_begin(self, epoch, logs=None):
        self._record("epoch_begin", epoch)

    def on_epoch_end(self, epoch, logs=None):
        self._record("epoch_end", epoch)

    def on_train_batch_begin(self, batch, logs=None):
        self._record("begin", batch)

    def on_train_batch_end(self, batch, logs=None):
        self._record("end", batch, logs["loss"])

    def on_test_begin(self, logs=None):
        self._record("test_begin")

    def on_test_batch_end(self, batch, logs=None):
        self._record("test", batch)

    def on_predict_batch_end(self, batch, logs=None):
        self._record("predict", batch, logs["outputs"].shape)


def logs_of(*losses):
    return StepLogs({"loss": np.array(losses, "float32")})


# Logs


def test_logs_are_those_of_the_last_step_and_of_each():
    logs = StepLogs({"loss": np.array([1.0, 2.0]), "both": [np.array([[1, 2], [3, 4]])]})
    assert logs["loss"] == 2
    np.testing.assert_array_equal(logs["both"][0], [3, 4])
    assert [step["loss"] for step in logs.steps] == [1, 2]
    np.testing.assert_array_equal(logs.steps[0]["both"][0], [1, 2])


# The list of callbacks


def test_each_step_is_told_in_order_from_another_thread():
    recorder = Recorder()
    callbacks = AsyncCallbackList([recorder])
    callbacks.on_epoch_begin(0)
    for last in (1, 3):
        callbacks.on_train_batch_begin(last - 1)
        callbacks.on_train_batch_end(last, logs_of(last - 1, last))
    callbacks.on_epoch_end(0)
    steps = [call for step in range(4) for call in (
        ("begin", step, "ipu-callbacks"), ("end", step, float(step), "ipu-callbacks")
    )]  # fmt: skip
    main = threading.current_thread().name
    assert recorder.calls == [("epoch_begin", 0, main), *steps, ("epoch_end", 0, main)]


def test_the_main_thread_does_not_wait_for_steps():
    go = threading.Event()
    callbacks = AsyncCallbackList(
        [keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: go.wait(60))]
    )
    start = time.monotonic()
    callbacks.on_train_batch_end(0, logs_of(0.0))
    callbacks.on_train_batch_end(1, logs_of(0.0))
    assert time.monotonic() - start < 30
    go.set()
    callbacks.wait()


def later_steps(callbacks):
    for batch in range(4, 1000):
        callbacks.on_train_batch_end(batch, logs_of(0.0))
        time.sleep(0.001)


@pytest.mark.parametrize("then", [later_steps, lambda callbacks: callbacks.on_epoch_end(0)])
def test_an_error_is_raised_on_the_main_thread_and_ends_the_calls(then):
    seen = []

    def fail(batch, logs):
        seen.append(batch)
        if batch == 1:
            raise ZeroDivisionError("in the callback")

    callbacks = AsyncCallbackList([keras.callbacks.LambdaCallback(on_train_batch_end=fail)])
    callbacks.on_train_batch_end(3, logs_of(0.0, 0.0, 0.0, 0.0))
    with pytest.raises(ZeroDivisionError, match="in the callback") as error:
        then(callbacks)
    assert "fail" in [entry.name for entry in error.traceback]
    callbacks.close()
    assert seen == [0, 1]


def test_close_drops_the_calls_that_have_not_begun():
    seen, begun, go = [], threading.Event(), threading.Event()

    def wait(batch, logs):
        seen.append(batch)
        begun.set()
        go.wait(10)

    callbacks = AsyncCallbackList([keras.callbacks.LambdaCallback(on_train_batch_end=wait)])
    callbacks.on_train_batch_end(3, logs_of(0.0, 0.0, 0.0, 0.0))
    assert begun.wait(10)
    threading.Timer(0.05, go.set).start()
    callbacks.close()
    assert seen == [0]
    callbacks.close()


# Models


@pytest.fixture(scope="module")
def asynchronous(strategy):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = classifier(steps_per_execution=4)
    model.set_asynchronous_callbacks(True)
    return model


def test_steps_of_fit_are_those_of_stock_one_by_one(asynchronous, data):
    stock = classifier(steps_per_execution=1)
    stock.set_weights(asynchronous.get_weights())
    recorders, histories = [Recorder(), Recorder()], []
    for model, recorder in zip((stock, asynchronous), recorders, strict=True):
        fit = model.fit(
            *data, batch_size=8, epochs=2, shuffle=False, verbose=0, validation_data=data,
            callbacks=[recorder],
        )  # fmt: skip
        histories.append(fit.history)
    assert_same(histories[1], histories[0])
    expected, actual = (recorder.calls for recorder in recorders)
    assert [call[:2] for call in actual] == [call[:2] for call in expected]
    losses = [[call[2] for call in calls if call[0] == "end"] for calls in (expected, actual)]
    assert_same(losses[1], losses[0])
    on_steps = {call[-1] for call in actual if call[0] in ("begin", "end", "test")}
    assert on_steps == {"ipu-callbacks"}
    others = {call[-1] for call in actual if call[0] not in ("begin", "end", "test")}
    assert others == {threading.current_thread().name}


def test_steps_of_evaluate_and_predict(asynchronous, data):
    recorder = Recorder()
    loss, _ = asynchronous.evaluate(*data, batch_size=8, verbose=0, callbacks=[recorder])
    outputs = asynchronous.predict(data[0], batch_size=8, verbose=0, callbacks=[recorder])
    assert loss > 0
    assert outputs.shape == (64, 3)
    main = threading.current_thread().name
    assert recorder.calls == [
        ("test_begin", main),
        *[("test", step, "ipu-callbacks") for step in range(8)],
        *[("predict", step, (8, 3), "ipu-callbacks") for step in range(8)],
    ]


def test_the_progress_bar_knows_the_steps(asynchronous, data, capsys):
    small = tuple(array[:32] for array in data)
    asynchronous.fit(*data, batch_size=8, epochs=2, validation_data=small, verbose=1)
    last_bars = [line.rsplit("\r")[-1] for line in capsys.readouterr().out.splitlines()]
    assert sum("8/8" in bar for bar in last_bars) == 2
    assert not any("4/4" in bar for bar in last_bars)


def test_stop_training_is_honoured(asynchronous, data, executed):
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = True

    history = asynchronous.fit(*data, batch_size=8, epochs=50, verbose=0, callbacks=[Stop()])
    assert len(history.history["loss"]) == 1
    assert executed("train")[1] <= 8


def test_an_error_in_a_callback_ends_fit(asynchronous, data):
    def fail(batch, logs):
        if batch == 5:
            raise ZeroDivisionError("at step 5")

    with pytest.raises(ZeroDivisionError, match="at step 5"):
        asynchronous.fit(
            *data, batch_size=8, epochs=3, verbose=0,
            callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=fail)],
        )  # fmt: skip


def test_a_list_of_the_users_own_is_called_once_per_execution(asynchronous, data):
    recorder = Recorder()
    callbacks = keras.callbacks.CallbackList([recorder], add_history=True, model=asynchronous)
    asynchronous.fit(*data, batch_size=8, verbose=0, callbacks=callbacks)
    assert [call[1] for call in recorder.calls if call[0] == "end"] == [3, 7]


def test_switching_back(asynchronous, data):
    asynchronous.set_asynchronous_callbacks(False)
    recorder = Recorder()
    try:
        asynchronous.fit(*data, batch_size=8, verbose=0, callbacks=[recorder])
    finally:
        asynchronous.set_asynchronous_callbacks(True)
    assert [call[1] for call in recorder.calls if call[0] == "end"] == [3, 7]
