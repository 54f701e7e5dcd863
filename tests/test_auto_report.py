"""Reports and verdicts when a program is compiled, as the engine options ask for them."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.config import IPUConfig
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.system import SYSTEM

# 400 MB of weights and as much of their gradients: more than an IPU has with Adam's moments.
LARGE = 10_000


@pytest.fixture
def strategy():
    SYSTEM.reset()
    IPUConfig().configure_ipu_system()
    yield IPUStrategy()
    SYSTEM.reset()


def model_of(strategy, units):
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((units,)), keras.layers.Dense(units, name="wide")], name="model"
        )
    model.compile("adam", "mse", steps_per_execution=2)
    return model


def data(units):
    return np.ones((8, units), np.float32), np.zeros((8, units), np.float32)


def sums(model):
    return [float(tf.reduce_sum(tf.cast(v, tf.float64))) for v in model.optimizer.variables] + [
        float(tf.reduce_sum(weight)) for weight in model.weights
    ]


def fit(model, units):
    model.fit(*data(units), batch_size=4, verbose=0)


def test_each_program_is_reported_once(strategy, monkeypatch, tmp_path):
    options = {"autoReport.all": "true", "autoReport.directory": str(tmp_path / "reports")}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(options))
    model = model_of(strategy, 8)
    fit(model, 8)
    fit(model, 8)
    model.predict(data(8)[0], batch_size=4, verbose=0)
    fit(model_of(strategy, 8), 8)
    folders = sorted(path.name for path in (tmp_path / "reports").iterdir())
    assert folders == ["predict", "train", "train_1"]
    folder = tmp_path / "reports" / "train"
    assert sorted(path.name for path in folder.iterdir()) == [
        "report.json",
        "report.txt",
        "trace.json",
    ]
    report = json.loads((folder / "report.json").read_text())
    assert (report["name"], report["options"]["steps_per_execution"]) == ("train", 2)
    assert report["memory"]["fits"]
    assert "train on gc200" in (folder / "report.txt").read_text()
    assert json.loads((folder / "trace.json").read_text())["traceEvents"]


def test_a_program_that_does_not_fit_is_refused(strategy, monkeypatch, tmp_path):
    options = {
        "debug.allowOutOfMemory": "false",
        "autoReport.all": "true",
        "autoReport.directory": str(tmp_path),
    }
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(options))
    fit(model_of(strategy, 8), 8)
    model = model_of(strategy, LARGE)
    with strategy.scope():
        model.optimizer.build(model.trainable_variables)
    before = sums(model)
    with pytest.raises(tf.errors.ResourceExhaustedError) as caught:
        fit(model, LARGE)
    message = caught.value.message
    assert message.startswith("Memory allocation error : Out of memory on tile ")
    assert "bytes used but tiles only have 638976 bytes of memory. Program 'train'" in message
    # The weights and two moments, each as 272,000 bytes on a tile.
    assert "the most bytes for variables 1,200" in message
    assert "values of variables" in message
    # Not enough; one layer is never divided, and the batch is not the problem.
    assert "\n- float16: does not fit either, " in message
    assert "IPUs" not in message
    assert "batch size" not in message
    # Nothing is lost.
    assert sums(model) == before
    assert int(model.optimizer.iterations) == 0
    report = json.loads((tmp_path / "train_1" / "report.json").read_text())
    assert not report["memory"]["fits"]
    assert {"dtype": "float16"} in [fix["changes"] for fix in report["fixes"]]


def test_a_smaller_batch_is_suggested(strategy, monkeypatch):
    """Activations of 2.2 GB, and more for products."""
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"debug.allowOutOfMemory": "false"}')
    with strategy.scope():
        layers = [keras.layers.Dense(1024, activation="tanh", name=f"l{k}") for k in range(8)]
        model = keras.Sequential([keras.Input((1024,)), *layers], name="model")
    model.compile("sgd", "mse")
    with pytest.raises(tf.errors.ResourceExhaustedError) as caught:
        model.fit(*(np.zeros((65536, 1024), np.float32),) * 2, batch_size=65536, verbose=0)
    lines = caught.value.message.splitlines()
    assert lines[0].startswith("Memory allocation error : Out of memory on tile ")
    (line,) = (line for line in lines if "batch size" in line)
    assert line.startswith("- batch size 2048: fits, ")
    assert lines.index(line) == 1
    assert lines[0].endswith("Changes that need less memory, by the model:")
    # What is refused can be run with what was suggested.
    model.fit(*(np.zeros((2048, 1024), np.float32),) * 2, batch_size=2048, verbose=0)
    assert int(model.optimizer.iterations) == 1


def test_by_default_nothing_is_modelled(strategy, monkeypatch):
    monkeypatch.setattr("ipu_keras.auto_report.report_compilation", None)
    fit(model_of(strategy, 8), 8)
