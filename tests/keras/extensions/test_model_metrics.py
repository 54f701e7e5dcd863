"""Metrics are reset, and looked up, as in stock Keras."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from comparison import fit_same

from ipu_keras.keras.extensions.model_extension import ModelExtension
from ipu_keras.keras.extensions.model_metrics import ModelMetrics

# Of classes that need arguments.
ARGUMENTS = {
    "fn": lambda y_true, y_pred: y_true,
    "specificity": 0.5,
    "sensitivity": 0.5,
    "precision": 0.5,
    "recall": 0.5,
    "num_classes": 2,
    "target_class_ids": [0],
    "target_class_id": 0,
}


def metric_classes():
    classes = [cls for cls in vars(keras.metrics).values() if inspect.isclass(cls)]
    return sorted({cls for cls in classes if issubclass(cls, keras.Metric)}, key=str)


@pytest.mark.parametrize("cls", metric_classes(), ids=lambda cls: cls.__name__)
def test_resetting_a_metric_of_keras_sets_all_its_variables_to_zero(cls):
    """Which is what is relied on."""
    needed = [
        parameter.name
        for parameter in inspect.signature(cls).parameters.values()
        if parameter.default is parameter.empty and parameter.name in ARGUMENTS
    ]
    metric = cls(**{name: ARGUMENTS[name] for name in needed})
    if cls in (keras.metrics.FBetaScore, keras.metrics.F1Score, keras.metrics.R2Score):
        metric.update_state(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32))
    for variable in metric.variables:
        variable.assign(tf.ones(variable.shape, variable.dtype))
    metric.reset_state()
    assert len(metric.variables) or cls is keras.Metric
    assert all(not np.any(variable.numpy()) for variable in metric.variables)


class KeepsCount(keras.metrics.Mean):
    """A mean with a variable more, which is not reset."""

    def __init__(self):
        super().__init__(name="keeps_count")
        self.updates = self.add_weight(name="updates", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.updates.assign_add(1.0)
        super().update_state(tf.reduce_mean(y_pred) + self.updates)


class Resetting(keras.callbacks.Callback):
    """Changes a metric after the last execution."""

    def on_train_batch_end(self, batch, logs=None):
        self.model.metrics[0].reset_state()


def built(twins, metrics):
    def make():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(3)])
        model.compile("sgd", "mse", metrics=metrics(), jit_compile=False)
        return model

    return twins(make)


def test_metrics_of_users_are_reset_by_their_own_method(twins, data):
    pair = built(twins, lambda: ["mae", KeepsCount(), keras.metrics.AUC(5, name="auc")])
    y = np.eye(3, dtype=np.float32)[data[1]]
    fitted = fit_same(*pair, data[0], y, batch_size=16, epochs=2)
    # The second epoch begins with the updates of the first one.
    assert fitted.history["keeps_count"][1] > fitted.history["keeps_count"][0] + 3


def test_a_reset_takes_effect_where_keras_would_only_note_it(twins, data):
    _, model = built(twins, lambda: ["mae"])
    model.fit(data[0], data[0][:, :3], batch_size=16, verbose=0)
    metrics, loss = ModelMetrics(model, ModelExtension), model.metrics[0]
    count = loss.count.numpy()
    with keras.StatelessScope() as scope:
        metrics.reset()
    assert scope.get_current_value(loss.count).numpy() == 0
    assert loss.count.numpy() == count == 64
    tf.function(metrics.reset)()
    assert [float(variable) for metric in model.metrics for variable in metric.variables] == [0] * 4


@pytest.mark.parametrize("is_list", [True, False])
def test_callbacks_that_change_metrics(pair, data, is_list):
    for model in pair:
        callbacks = [Resetting()]
        if not is_list:
            callbacks = keras.callbacks.CallbackList(callbacks, model=model, add_history=True)
        fitted = model.fit(*data, batch_size=8, callbacks=callbacks, shuffle=False, verbose=0)
        assert fitted.history["loss"] == [0.0]


def test_what_a_step_logs_is_not_computed_again(pair, data, monkeypatch):
    _, model = pair
    mean = model.metrics[0]
    calls = []
    monkeypatch.setattr(type(mean), "result", lambda self: calls.append(1) or 7.0)
    fitted = model.fit(*data, batch_size=8, verbose=0, callbacks=[keras.callbacks.TerminateOnNaN()])
    assert not calls
    assert fitted.history["loss"] != [7.0]
    mean.result = lambda: 5.0
    fitted = model.fit(*data, batch_size=8, verbose=0)
    del mean.result
    assert fitted.history["loss"] == [5.0]


@pytest.mark.parametrize("dtype", ["float16", "mixed_float16"])
def test_metrics_of_halves_are_float32(strategy, dtype):
    """The square of 400 is no half. A mask is kept: the second number of each sample is none."""
    with strategy.scope():
        layers = [keras.layers.Masking(), keras.layers.Dense(1, dtype=dtype, use_bias=False)]
        model = keras.Sequential([keras.Input([2, 1], dtype="float16"), *layers])
        model.compile(metrics=["mse", "mae"], loss="mae")
    layers[1].kernel.assign([[1.0]])
    data = np.float16([[[400], [0]]] * 4)
    logs = model.evaluate(data, np.full_like(data, 2), batch_size=2, verbose=0, return_dict=True)
    assert logs["mse"] == 398**2
    assert logs["mae"] == 398
