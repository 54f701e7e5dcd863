"""Reports and verdicts when a program is compiled, as the engine options ask for them."""

import json
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras import profile
from ipu_keras.auto_report import write_report
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
        "report.html",
        "report.json",
        "report.txt",
        "trace.json",
    ]
    assert "<h1>train on gc200</h1>" in (folder / "report.html").read_text("utf-8")
    report = json.loads((folder / "report.json").read_text())
    assert (report["name"], report["options"]["steps_per_execution"]) == ("train", 2)
    assert report["memory"]["fits"]
    assert "train on gc200" in (folder / "report.txt").read_text()
    assert json.loads((folder / "trace.json").read_text())["traceEvents"]


def test_pages_are_left_out_without_their_libraries(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    report = profile(lambda x: x + 1.0, tf.TensorSpec((8,)), name="sum")
    folder = write_report(report, tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == [
        "report.json",
        "report.txt",
        "trace.json",
    ]


def test_a_program_that_does_not_fit_is_refused(strategy, monkeypatch, tmp_path):
    options = {
        "debug.allowOutOfMemory": "false",
        "autoReport.all": "true",
        "autoReport.directory": str(tmp_path),
    }
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(options))
    fit(model_of(strategy, 8), 8)
    model = model_of(strategy, LARGE)
    before = float(tf.reduce_sum(model.layers[0].kernel))
    with pytest.raises(tf.errors.ResourceExhaustedError) as caught:
        fit(model, LARGE)
    message = caught.value.message
    assert message.startswith("Memory allocation error : Out of memory on tile ")
    assert "bytes used but tiles only have 638976 bytes of memory. Program 'train'" in message
    # The weights and two moments, each as 272,000 bytes on a tile.
    assert "the most bytes for variables 1,200" in message
    assert "values of variables" in message
    assert float(tf.reduce_sum(model.layers[0].kernel)) == before
    assert not json.loads((tmp_path / "train_1" / "report.json").read_text())["memory"]["fits"]


def test_by_default_nothing_is_modelled(strategy, monkeypatch):
    monkeypatch.setattr("ipu_keras.auto_report.report_compilation", None)
    fit(model_of(strategy, 8), 8)
