"""Callbacks of models in a strategy's scope, and what they print, against stock Keras."""

import re

import keras
import numpy as np
import pytest
from comparison import LOSS, assert_same, classifier, fit_same
from keras import tree

# Stock Keras reads a variable with np.array(), whose `copy` argument TensorFlow's
# __array__ does not know yet; it warns on the CPU as well.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


class Recorder(keras.callbacks.Callback):
    """Every call with its logs."""

    def __init__(self):
        super().__init__()
        self.calls = []


def _recording(name):
    def record(self, *arguments, logs=None):
        *steps, logs = (*arguments, logs) if logs is not None else (arguments or (None,))
        self.calls.append((name, steps, dict(logs or {})))

    return record


for _phase in ("train", "test", "predict"):
    for _name in (
        f"{_phase}_begin",
        f"{_phase}_end",
        f"{_phase}_batch_begin",
        f"{_phase}_batch_end",
    ):
        setattr(Recorder, f"on_{_name}", _recording(_name))
for _name in ("epoch_begin", "epoch_end"):
    setattr(Recorder, f"on_{_name}", _recording(_name))


def test_callbacks_are_called_as_in_stock(pair, data, tmp_path):
    calls, files, rates = [], [], []
    for number, model in enumerate(pair):
        folder = tmp_path / str(number)
        folder.mkdir()
        recorder = Recorder()
        model.fit(
            *data,
            batch_size=8,
            epochs=3,
            shuffle=False,
            verbose=0,
            validation_data=data,
            callbacks=[
                recorder,
                keras.callbacks.ModelCheckpoint(
                    folder / "{epoch}.weights.h5", save_weights_only=True, save_freq=4
                ),
                keras.callbacks.ModelCheckpoint(folder / "best.keras", save_best_only=True),
                keras.callbacks.CSVLogger(folder / "log.csv"),
                keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5),
                keras.callbacks.TerminateOnNaN(),
            ],
        )
        model.evaluate(*data, batch_size=8, verbose=0, callbacks=[recorder])
        model.predict(data[0], batch_size=8, verbose=0, callbacks=[recorder])
        calls.append(recorder.calls)
        files.append(sorted(path.name for path in folder.iterdir()))
        files.append((folder / "log.csv").read_text().count("\n"))
        rates.append(float(model.optimizer.learning_rate))
        model.optimizer.learning_rate = 0.01
    expected, actual = calls
    assert [call[:2] for call in actual] == [call[:2] for call in expected]
    for one, other in zip(actual, expected, strict=True):
        assert_same(one[2], other[2])
        assert tree.map_structure(type, one[2]) == tree.map_structure(type, other[2])
    assert files[:2] == files[2:]
    assert rates == pytest.approx([0.00125, 0.00125])
    ends = [call[1] for call in actual if call[0] == "train_batch_end"]
    assert ends == [[1], [3], [5], [7]] * 3


def test_a_callback_is_called_once_per_execution_with_the_logs_of_the_last_step(twins, data):
    stock, model = twins(classifier, steps_per_execution=1)
    model.compile("sgd", LOSS, metrics=["accuracy"], steps_per_execution=4, jit_compile=False)
    losses = []
    for one in (stock, model):
        losses.append([])
        one.fit(
            *data, batch_size=8, shuffle=False, verbose=0,
            callbacks=[keras.callbacks.LambdaCallback(
                on_train_batch_end=lambda step, logs: losses[-1].append((step, logs["loss"]))
            )],
        )  # fmt: skip
    assert [step for step, _ in losses[1]] == [3, 7]
    assert_same([losses[0][3], losses[0][7]], losses[1])


@pytest.mark.parametrize(
    ("callback", "epochs"),
    [
        (
            lambda: keras.callbacks.EarlyStopping(
                "loss", mode="max", patience=1, restore_best_weights=True
            ),
            2,
        ),
        (lambda: keras.callbacks.ReduceLROnPlateau("loss", mode="max", patience=1), 5),
    ],
    ids=["early_stopping", "plateau"],
)
def test_callbacks_that_change_the_training(pair, data, callback, epochs):
    histories = []
    for model in pair:
        fit = model.fit(
            *data, batch_size=8, epochs=5, shuffle=False, verbose=0, callbacks=[callback()]
        )
        histories.append(fit.history)
        model.optimizer.learning_rate = 0.01
    assert len(histories[1]["loss"]) == epochs
    assert_same(histories[1], histories[0])
    assert_same(pair[1].get_weights(), pair[0].get_weights())


def test_stopping_in_the_middle_of_an_epoch(pair, data, executed):
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch >= 3

        def on_test_batch_end(self, batch, logs=None):
            self.model.stop_evaluating = True

        def on_predict_batch_end(self, batch, logs=None):
            self.model.stop_predicting = True

    fit_same(*pair, *data, batch_size=8, epochs=5, callbacks=[Stop()])
    assert executed("train") == (2, 4)
    model = pair[1]
    model.evaluate(*data, batch_size=8, verbose=0, callbacks=[Stop()])
    assert executed("test") == (1, 2)
    outputs = model.predict(data[0], batch_size=8, verbose=0, callbacks=[Stop()])
    assert outputs.shape == (16, 3)


def test_training_ends_on_nan(strategy, data):
    # Without a hidden layer: for oneDNN, which some machines have, relu(NaN) is 0.
    with strategy.scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(3)])
    model.compile("sgd", LOSS, steps_per_execution=2, jit_compile=False)
    history = model.fit(
        np.full_like(data[0], np.nan), data[1], batch_size=8, epochs=3, verbose=0,
        callbacks=[keras.callbacks.TerminateOnNaN()],
    )  # fmt: skip
    assert len(history.history["loss"]) == 1


def test_a_callback_may_evaluate_and_predict(pair, data):
    x, y = data
    results = []
    for model in pair:
        seen = []

        class Look(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None, seen=seen):
                seen.append(self.model.predict(x, batch_size=8, verbose=0))
                seen.append(self.model.evaluate(x[:32], y[:32], batch_size=8, verbose=0))

        fit = model.fit(
            x, y, batch_size=8, epochs=3, shuffle=False, verbose=0, validation_data=data,
            callbacks=[Look()],
        )  # fmt: skip
        results.append((seen, fit.history))
    assert_same(results[1], results[0])


def test_tensorboard(model, data, tmp_path):
    model.evaluate(
        *data, batch_size=8, verbose=0, callbacks=[keras.callbacks.TensorBoard(tmp_path)]
    )
    assert any(tmp_path.iterdir())


@pytest.mark.parametrize("verbose", [1, 2])
def test_the_progress_bar_is_that_of_stock(pair, data, capsys, verbose):
    printed = []
    for model in pair:
        capsys.readouterr()
        model.fit(
            *data, batch_size=8, epochs=2, shuffle=False, verbose=verbose,
            validation_data=(data[0][:32], data[1][:32]),
        )  # fmt: skip
        model.evaluate(*data, batch_size=8, verbose=verbose)
        model.predict(data[0], batch_size=8, verbose=verbose)
        # Neither times, nor how often the bar was drawn.
        lines = [line.rsplit("\r")[-1] for line in capsys.readouterr().out.split("\n")]
        bars = [line.rsplit("\x08")[-1] for line in lines]
        printed.append([re.sub(r"\d+(ms|s|us)(/step|/epoch)?| +", "", bar) for bar in bars])
    assert printed[1] == printed[0]
    assert any("8/8" in line for line in printed[1])
