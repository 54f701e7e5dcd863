"""What happens when a program is compiled: why again, the verdict, and what is counted."""

import json

import pytest
import tensorflow as tf

from ipu_keras.config import IPUConfig
from ipu_keras.device import device_for
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.system import SYSTEM
from ipu_keras.profiling.compilation import compiled
from ipu_keras.program import OutfeedMode, Program
from ipu_keras.program.compilation_history import CompilationHistory, Signature
from ipu_keras.program.executable import Executable
from ipu_keras.tracing import graph_of


@pytest.fixture
def device():
    SYSTEM.reset()
    IPUConfig().configure_ipu_system()
    yield device_for(0)
    SYSTEM.reset()


def executable(size):
    spec = TensorSpec((size,), "float32")
    program = Program(
        name="sum",
        step=lambda x: x + 1.0,
        infeed=(spec,),
        unflatten=lambda tensors: tensors[0],
        repeat_count=1,
    )
    concrete = tf.function(program.step).get_concrete_function(tf.TensorSpec((size,)))
    return Executable(
        program=program,
        graph=graph_of(concrete),
        host=None,
        reason="",
        as_written=lambda: concrete,
    )


def signature(size):
    return Signature(
        tensors=(("x", TensorSpec((size,), "float32")),),
        repeat_count=1,
        outfeed_mode=OutfeedMode.LAST,
        compiled=None,
    )


def compile_one(size, history, device):
    return compiled("sum", signature(size), history, device, lambda: executable(size))


def count(device):
    return device.engine.counters().num_compilations.get("sum", 0)


def test_compiled_once_and_again(device, caplog):
    history, before = CompilationHistory(), count(device)
    found = compile_one(4, history, device)
    assert found.graph.kinds >= {"AddV2"}
    assert found.cycle_count is None
    assert not caplog.records
    assert found.history is history
    assert (count(device), history.recompilations("sum")) == (before + 1, ())
    compile_one(8, history, device)
    (record,) = caplog.records
    assert record.getMessage() == (
        "Program 'sum' is compiled again: x has the shape (8,) instead of (4,)."
    )
    assert count(device) == before + 2
    assert [one.reasons for one in history.recompilations("sum")] == [
        ("x has the shape (8,) instead of (4,)",)
    ]
    # Another function of that name is compiled for the first time.
    compile_one(8, other := CompilationHistory(), device)
    assert other.recompilations("sum") == ()
    assert len(caplog.records) == 1


def test_cycles_are_known_if_they_are_to_be_logged(device, monkeypatch):
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--log_cycle_count=5")
    found = compile_one(4, CompilationHistory(), device)
    assert found.cycle_count.tile == 5
    assert found.cycle_count.cycles > 0


# That many numbers and as many results are more than 897 MB.
TOO_MANY = 300_000_000


def refuse_one(size, history, device):
    with pytest.raises(tf.errors.ResourceExhaustedError, match="Out of memory on tile"):
        compile_one(size, history, device)


def test_what_was_refused_was_not_compiled(device, caplog):
    history, before = CompilationHistory(), count(device)
    for size in (TOO_MANY, TOO_MANY, 2 * TOO_MANY):
        refuse_one(size, history, device)
    assert count(device) == before
    assert history.recompilations("sum") == ()
    # What fits then is compiled for the first time.
    compile_one(4, history, device)
    assert count(device) == before + 1
    assert not caplog.records


def test_what_is_refused_between_two_compilations_is_not_named(device, caplog):
    """Nor is an attempt itself called a compilation, however often it is made."""
    history = CompilationHistory()
    compile_one(4, history, device)
    for size in (TOO_MANY, TOO_MANY, 2 * TOO_MANY):
        refuse_one(size, history, device)
    assert not caplog.records
    compile_one(8, history, device)
    (record,) = caplog.records
    assert record.getMessage() == (
        "Program 'sum' is compiled again: x has the shape (8,) instead of (4,)."
    )
    assert len(history.recompilations("sum")) == 1


def test_files_of_what_was_refused_say_what_was_compiled(device, monkeypatch, tmp_path):
    options = {"autoReport.all": "true", "autoReport.directory": str(tmp_path)}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(options))
    history = CompilationHistory()
    compile_one(4, history, device)
    compile_one(8, history, device)
    refuse_one(TOO_MANY, history, device)
    compile_one(16, history, device)
    to_8, to_16 = (
        ["x has the shape (8,) instead of (4,)"],
        ["x has the shape (16,) instead of (8,)"],
    )
    for folder, expected in (
        ("sum", []),
        ("sum_1", [to_8]),
        ("sum_2", [to_8]),  # the refused one
        ("sum_3", [to_8, to_16]),
    ):
        written = json.loads((tmp_path / folder / "report.json").read_text())
        assert written["memory"]["fits"] is (folder != "sum_2")
        assert written["recompilations"] == expected


def test_a_program_that_cannot_be_built_is_not_compiled_again(device, caplog):
    history = CompilationHistory()
    compile_one(4, history, device)

    def build():
        raise ValueError("no step")

    with pytest.raises(ValueError, match="no step"):
        compiled("sum", signature(8), history, device, build)
    assert not caplog.records
    assert history.recompilations("sum") == ()


def test_what_does_not_fit_is_reported_if_it_may_run(device, monkeypatch, caplog):
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"debug.allowOutOfMemory": "true"}')
    before = count(device)
    compile_one(TOO_MANY, CompilationHistory(), device)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "Out of memory on tile" in record.getMessage()
    assert count(device) == before + 1
