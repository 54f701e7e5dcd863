"""The line that says which phase something long is in, on terminals and elsewhere."""

import contextlib
import io
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_keras
from ipu_keras.cost.passes import MODEL_PASSES, model_graph
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.target import target_named
from ipu_keras.profiling.models import traced_graph
from ipu_keras.progress import phase, showing

# Nobody waits for so long unless something is broken.
PATIENCE = 120


class Stream(io.StringIO):
    """A stream whose readers can wait for what a thread writes."""

    def __init__(self, *, is_terminal: bool):
        super().__init__()
        self._is_terminal = is_terminal
        self._written = threading.Condition()

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        with self._written:
            self._written.notify_all()
            return super().write(text)

    def wait_for(self, text: str) -> None:
        with self._written:
            assert self._written.wait_for(lambda: text in self.getvalue(), PATIENCE), (
                self.getvalue()
            )


@pytest.fixture
def flag(monkeypatch):
    def set_flag(value: str) -> None:
        monkeypatch.setenv("TF_POPLAR_FLAGS", f"--show_progress_bar={value}")

    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return set_flag


@pytest.fixture
def terminal(flag):
    return Stream(is_terminal=True)


@pytest.fixture
def file(flag):
    return Stream(is_terminal=False)


@contextlib.contextmanager
def shown_on(stream: io.StringIO | None, title: str) -> Iterator[None]:
    """What is shown at once."""
    with contextlib.redirect_stderr(stream), showing(title, seconds_before=0):
        yield


def drawing_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ipu_keras progress"]


@pytest.mark.parametrize("value", ["auto", "true"])
def test_a_terminal_has_a_line_with_phase_and_seconds(terminal, flag, value):
    flag(value)
    with shown_on(terminal, "compile train"), phase("lower"):
        terminal.wait_for("compile train: lower ")
        with phase("fill tiles"):
            terminal.wait_for("compile train: fill tiles ")
            terminal.wait_for("s in all")
    # What was drawn is wiped out, and the cursor is back.
    assert terminal.getvalue().endswith("\n\x1b[?25h\r\x1b[1A\x1b[2K")
    assert terminal.getvalue().count("\n") == 1
    assert drawing_threads() == []


def test_a_terminal_obeys_no_name(terminal):
    with shown_on(terminal, "profile \x1b[5mnet"), phase("trace"):
        terminal.wait_for(r"profile \x1b[5mnet: trace ")
    assert "\x1b[5m" not in terminal.getvalue()


def test_a_phase_goes_on_after_the_one_within_it(terminal):
    with shown_on(terminal, "profile"), phase("look for what would fit"):
        with phase("trace"):
            terminal.wait_for("profile: trace")
        begun = len(terminal.getvalue())
        while "profile: look for what would fit" not in terminal.getvalue()[begun:]:
            terminal.wait_for("profile: look for what would fit")


def test_a_display_within_another_one_shows_its_phases_there(terminal):
    with shown_on(terminal, "profile"), shown_on(terminal, "compile train"):
        assert len(drawing_threads()) == 1
        with phase("trace"):
            terminal.wait_for("profile: trace")
    assert "compile train" not in terminal.getvalue()


def test_what_is_over_soon_draws_nothing(terminal):
    with contextlib.redirect_stderr(terminal), showing("compile train"), phase("trace"):
        assert len(drawing_threads()) == 1
    assert terminal.getvalue() == ""


def test_it_ends_with_an_error(terminal):
    def fail() -> None:
        terminal.wait_for("trace")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), shown_on(terminal, "profile"), phase("trace"):
        fail()
    assert drawing_threads() == []
    with shown_on(terminal, "next"), phase("lower"):
        terminal.wait_for("next: lower")


def test_each_thread_has_its_own(terminal):
    """One of two that compile at the same time has the line; neither has the phase of the other."""
    both = threading.Barrier(2, timeout=PATIENCE)

    def compile_program(name: str) -> None:
        with showing(f"compile {name}", seconds_before=0), phase(f"trace {name}"):
            both.wait()
            terminal.wait_for(": trace ")

    with contextlib.redirect_stderr(terminal), ThreadPoolExecutor(2) as pool:
        list(pool.map(compile_program, ["first", "second"]))
    assert drawing_threads() == []
    for title, other in (("first", "second"), ("second", "first")):
        assert f"compile {title}: trace {other}" not in terminal.getvalue()


@pytest.mark.parametrize("value", ["auto", "false"])
def test_no_terminal_has_no_line_and_no_thread(file, flag, value):
    flag(value)
    with shown_on(file, "compile train"), phase("trace"):
        assert drawing_threads() == []
    assert file.getvalue() == ""


def test_the_flag_switches_it_off_on_terminals(terminal, flag):
    flag("false")
    with shown_on(terminal, "compile train"), phase("trace"):
        assert drawing_threads() == []
    assert terminal.getvalue() == ""


def test_a_process_without_a_stream(flag):
    flag("true")
    with shown_on(None, "compile train"), phase("trace"):
        assert drawing_threads() == []


@pytest.mark.parametrize("term", ["dumb", None])
def test_asked_for_elsewhere_it_is_a_line_for_each_phase(monkeypatch, flag, term):
    """In a file, and on a terminal that cannot go back on a line."""
    flag("true")
    stream = Stream(is_terminal=term == "dumb")
    if term is not None:
        monkeypatch.setenv("TERM", term)
    with shown_on(stream, "compile train"):
        with phase("trace"):
            stream.wait_for("compile train: trace, after ")
        with phase("lower"):
            stream.wait_for("compile train: lower, after ")
    assert [line.partition(",")[0] for line in stream.getvalue().splitlines()] == [
        "compile train: trace",
        "compile train: lower",
    ]


class Patient(keras.layers.Layer):
    """Is traced for as long as nothing is shown."""

    waits = staticmethod(lambda: None)

    def call(self, x):
        self.waits()
        return x


def test_the_compilation_of_a_model_is_shown_after_two_seconds(terminal):
    with IPUStrategy().scope():
        patient = Patient()
        model = keras.Sequential([keras.Input((4,)), patient])
    patient.waits = lambda: terminal.wait_for("compile predict: trace ")
    with contextlib.redirect_stderr(terminal):
        model.predict(np.zeros((8, 4), np.float32), batch_size=4, verbose=0)


def test_a_profile_that_takes_long_is_shown(terminal):
    def step(x):
        terminal.wait_for("profile: trace ")
        return x * 2

    with contextlib.redirect_stderr(terminal):
        report = ipu_keras.profile(step, tf.TensorSpec((8,)))
    assert report.fits


def test_passes_say_their_names():
    """In words, in the order in which they run."""
    seen = []

    @contextlib.contextmanager
    def around(name: str) -> Iterator[None]:
        seen.append(name)
        yield

    graph = traced_graph(lambda x: x * 2, tf.TensorSpec((8,)))
    model_graph("double", graph, target_named("gc200"), around=around)
    assert seen[0] == "choose precision"
    assert {"estimate cycles", "fill tiles", "place on ipus"} < set(seen)
    assert len(seen) == len(MODEL_PASSES)
