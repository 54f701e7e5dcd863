"""Files, logs and verdicts when a program is compiled, as options and flags ask for them."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from models_made import models_made

from ipu_keras import last_report
from ipu_keras.config import IPUConfig
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.tracing.lowering import LoweringError

pytestmark = pytest.mark.usefixtures("no_gradients_of_another_test")

# 400 MB of weights and as much of their gradients: more than an IPU has with Adam's moments.
LARGE = 10_000


def model_of(strategy, units):
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((units,)), keras.layers.Dense(units, name="wide")], name="model"
        )
        # Keras would number a second one, and reports have its name.
        optimizer = keras.optimizers.Adam(name="adam")
    model.compile(optimizer, "mse", steps_per_execution=2)
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
    assert folders == ["model.predict", "model.train", "model.train_1"]
    folder = tmp_path / "reports" / "model.train"
    assert sorted(path.name for path in folder.iterdir()) == [
        "report.html",
        "report.json",
        "report.txt",
        "trace.json",
    ]
    assert "<h1>model.train on gc200</h1>" in (folder / "report.html").read_text("utf-8")
    report = json.loads((folder / "report.json").read_text())
    assert (report["name"], report["options"]["steps_per_execution"]) == ("model.train", 2)
    assert report["memory"]["fits"]
    assert "model.train on gc200" in (folder / "report.txt").read_text()
    assert json.loads((folder / "trace.json").read_text())["traceEvents"]


def test_recompilations_are_reported(strategy, monkeypatch, caplog, tmp_path):
    options = {"autoReport.all": "true", "autoReport.directory": str(tmp_path)}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(options))
    model = model_of(strategy, 8)
    fit(model, 8)
    model.train_on_batch(*data(8))
    model.compile("sgd", "mse", steps_per_execution=2)
    fit(model, 8)
    reasons = [
        [
            "data[0] has the shape (8, 8) instead of (4, 8)",
            "data[1] has the shape (8, 8) instead of (4, 8)",
            "`steps_per_execution` is 1 instead of 2",
        ],
        [
            "its step was made anew: `compile` was called, options were set, the system was "
            "configured otherwise, or another method runs it"
        ],
    ]
    assert [record.getMessage() for record in caplog.records] == [
        f"Program 'train' is compiled again: {'; '.join(each)}." for each in reasons
    ]
    report = last_report()
    assert [list(one.reasons) for one in report.recompilations] == reasons
    written = json.loads((tmp_path / "model.train_2" / "report.json").read_text())
    assert written["recompilations"] == reasons
    assert "Compiled again 2 times, last because its step was" in str(report)
    fit(model_of(strategy, 8), 8)
    assert last_report().recompilations == ()  # another model


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
    assert "bytes used but tiles only have 638976 bytes of memory. Program 'model.train'" in message
    # The weights and two moments, each as 272,000 bytes on a tile.
    assert "the most bytes for variables 1,200" in message
    # The kernel and its gradient, and the moments.
    assert "on that tile, values of adam 543,608, model/wide 543,608" in message
    # Not enough; one layer is never divided, and the batch is not the problem.
    assert "\n- float16 and availableMemoryProportion 0.3: does not fit either, " in message
    assert "IPUs" not in message
    assert "batch size" not in message
    # Nothing is lost.
    assert sums(model) == before
    assert int(model.optimizer.iterations) == 0
    report = json.loads((tmp_path / "model.train_1" / "report.json").read_text())
    assert not report["memory"]["fits"]
    together = {"dtype": "float16", "available_memory_proportion": 0.3}
    assert together in [fix["changes"] for fix in report["fixes"]]


def test_what_is_large_is_refused_unasked(strategy, monkeypatch, caplog):
    with models_made() as made:
        fit(model_of(strategy, 8), 8)
    assert made.count == 0  # it is small: there is nothing to find out
    model = model_of(strategy, LARGE)
    with pytest.raises(tf.errors.ResourceExhaustedError, match=r"Out of memory on tile \d+: "):
        fit(model, LARGE)
    assert int(model.optimizer.iterations) == 0

    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"debug.allowOutOfMemory": "true"}')
    fit(model, LARGE)
    assert int(model.optimizer.iterations) == 2
    (record,) = caplog.records
    assert record.getMessage().startswith("Memory allocation error : Out of memory on tile ")


def test_what_is_allowed_and_modelled_is_told(strategy, monkeypatch, caplog, tmp_path):
    options = {
        "debug.allowOutOfMemory": "true",
        "autoReport.all": "true",
        "autoReport.directory": str(tmp_path),
    }
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(options))
    model = model_of(strategy, LARGE)
    fit(model, LARGE)
    assert int(model.optimizer.iterations) == 2
    (record,) = caplog.records
    assert record.getMessage().startswith("Memory allocation error : Out of memory on tile ")
    assert (
        json.loads((tmp_path / "model.train" / "report.json").read_text())["memory"]["fits"]
        is False
    )


class Counting(keras.losses.Loss):
    """Python gives as many values as it likes, so no operation of the IPU can."""

    def call(self, y_true, y_pred):
        return tf.reduce_mean(y_pred) * tf.reduce_sum(as_many_as_it_likes(y_pred))


def as_many_as_it_likes(y):
    values = tf.numpy_function(lambda y: np.ones(y.size, np.float32), [y], tf.float32)
    values.set_shape([None])
    return values


def test_what_is_of_no_known_size_within_a_step_is_guessed(strategy, monkeypatch, caplog):
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"debug.allowOutOfMemory": "false"}')
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)], name="model")
    model.compile("sgd", Counting(), jit_compile=False)
    batches = np.ones((8, 3), np.float32), np.ones((8, 1), np.float32)
    model.fit(*batches, batch_size=4, verbose=0)
    assert int(model.optimizer.iterations) == 2
    assert last_report().not_lowered == ("PyFunc", "Shape", "Sum")


def test_what_cannot_be_modelled(strategy, monkeypatch, caplog):
    caplog.set_level("INFO", "ipu_keras")
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", "{}")
    step = tf.function(as_many_as_it_likes)
    assert strategy.run(step, (tf.ones((4, 3)),)).shape == (12,)
    (record,) = caplog.records
    assert record.levelname == "INFO"
    assert record.getMessage().startswith(
        "Whether program 'as_many_as_it_likes' fits is not known. XLA cannot lower PyFunc, "
    )

    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"debug.allowOutOfMemory": "false"}')
    with pytest.raises(LoweringError, match="PyFunc"):
        strategy.run(tf.function(as_many_as_it_likes), (tf.ones((4, 3)),))


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
    assert line.startswith("- batch size 4096: fits, ")
    assert lines.index(line) == 1
    assert lines[0].endswith("Changes that need less memory, by the model:")
    # What is refused can be run with what was suggested.
    model.fit(*(np.zeros((2048, 1024), np.float32),) * 2, batch_size=2048, verbose=0)
    assert int(model.optimizer.iterations) == 1


def flags(monkeypatch, text):
    monkeypatch.setenv("TF_POPLAR_FLAGS", text)


def test_cycles_are_logged_after_each_execution(strategy, monkeypatch, caplog):
    flags(monkeypatch, "--log_cycle_count=1471")
    model = model_of(strategy, 8)
    fit(model, 8)
    fit(model, 8)
    cycles = 2 * last_report().cycles_per_step
    line = f"Cycle count: {cycles} (modelled, program 'train' of 2 steps, tile 1471)"
    assert [(r.name, r.levelname, r.getMessage()) for r in caplog.records] == [
        ("ipu_keras", "WARNING", line)
    ] * 2


def test_a_tile_that_does_not_exist_is_refused(strategy, monkeypatch):
    flags(monkeypatch, "--log_cycle_count=1472")
    with pytest.raises(ValueError, match=r"must name a tile of gc200, 0 to 1471\. Received: 1472"):
        fit(model_of(strategy, 8), 8)


def test_equal_models_are_modelled_once(strategy, monkeypatch):
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"debug.allowOutOfMemory": "false"}')
    fit(model_of(strategy, 12), 12)
    with models_made() as made:
        fit(model_of(strategy, 12), 12)
        assert made.count == 0
        fit(model_of(strategy, 13), 13)
    assert made.count == 2  # the graph and its model


def test_tensor_maps_and_schedules(strategy, monkeypatch, tmp_path):
    flags(monkeypatch, f"--tensor_map_file_path={tmp_path / 'maps'} --dump_schedule_as_dot")
    options = {"autoReport.directory": str(tmp_path / "reports")}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(options))
    model = model_of(strategy, 8)
    fit(model, 8)
    model.predict(data(8)[0], batch_size=4, verbose=0)
    fit(model_of(strategy, 9), 9)
    names = ["model.predict", "model.train", "model.train_1"]
    assert sorted(path.name for path in (tmp_path / "maps").iterdir()) == [
        f"{name}.tensor_map.json" for name in names
    ]
    assert sorted(path.name for path in (tmp_path / "reports").iterdir()) == [
        f"{name}.schedule.dot" for name in names
    ]
    mappings = json.loads((tmp_path / "maps" / "model.train_1.tensor_map.json").read_text())[
        "mappings"
    ]
    shapes = [row[2] for row in mappings["model.train"] if row[3] == "float32"]
    assert shapes.count([9, 9]) >= 3  # the kernel and its two moments
    for row in mappings["model.train"]:
        assert sum(count for _, count in row[7]) == row[6]
    assert (
        (tmp_path / "reports" / "model.train.schedule.dot")
        .read_text()
        .startswith('digraph "model.train" {')
    )


def test_executables_are_exported(monkeypatch, tmp_path):
    SYSTEM.reset()
    config = IPUConfig()
    config.serialization_output_folder = str(tmp_path / "executables")
    config.configure_ipu_system()
    model = model_of(IPUStrategy(), 10)
    fit(model, 10)
    with models_made() as made:
        last_report()
    SYSTEM.reset()
    assert made.count == 0
    (path,) = (tmp_path / "executables").glob("*.ipu_executable.json")
    content = json.loads(path.read_text())["content"]
    assert content["options"]["steps_per_execution"] == 2
    assert content["memory"]["tile_bytes"] == 638_976


def test_by_default_nothing_small_is_modelled(strategy):
    units = 15  # of no other test, whose model would still be in memory
    with models_made() as made:
        fit(model_of(strategy, units), units)
        assert made.count == 0
        last_report()
    assert made.count == 2  # a graph and a model


def test_a_verdict_takes_no_report(run_forked):
    script = "import sys, ipu_keras.profiling.verdict; print('ipu_keras.report' in sys.modules)"
    assert run_forked(script).stdout == "False\n"


@pytest.mark.parametrize("name", ["../../evil", "a/b", "[/x] :fire:", "n" * 300])
def test_functions_may_have_any_name(strategy, monkeypatch, tmp_path, name):
    def double(x):
        return 2.0 * x

    double.__name__ = name
    here = tmp_path / "a" / "b"
    flags(monkeypatch, f"--tensor_map_file_path={here} --dump_schedule_as_dot")
    options = {"autoReport.all": "true", "autoReport.directory": str(here)}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(options))
    assert strategy.run(tf.function(double), (tf.constant([1.0, 2.0]),)).numpy().tolist() == [2, 4]
    (text,) = tmp_path.rglob("report.txt")
    assert text.parent.parent == here
    assert text.read_text("utf-8").replace("\n", "").startswith(f"{name} on gc200")
    stem = text.parent.name
    assert sorted(path.name for path in here.iterdir()) == [
        stem,
        f"{stem}.schedule.dot",
        f"{stem}.tensor_map.json",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_directories_that_cannot_be_used_end_no_run(strategy, monkeypatch):
    flags(monkeypatch, "--tensor_map_file_path=/dev/null/maps")
    options = {"autoReport.all": "true", "autoReport.directory": "/dev/null/reports"}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(options))
    model = model_of(strategy, 8)
    with pytest.warns(UserWarning, match="of program 'model.train'.*Not a directory") as warned:
        fit(model, 8)
    assert int(model.optimizer.iterations) == 2
    starts = [str(one.message).split(" of program")[0] for one in warned]
    assert starts == [
        "The directory '/dev/null/reports' cannot be used for the report",
        "The directory '/dev/null/maps' cannot be used for the tensor map",
    ]
