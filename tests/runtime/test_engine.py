"""The engine: what it runs, counts and refuses to do at once."""

import dataclasses
import gc
import threading
import time

import pytest

from ipu_keras.host.plan import HostExecution
from ipu_keras.ir import Graph, TensorSpec
from ipu_keras.program import Program
from ipu_keras.program.executable import CycleCount, Executable
from ipu_keras.runtime import Engine


class Host:
    """The computing side of an executable, which writes down what it is given."""

    execution = HostExecution.GRAPH_LOOP

    def __init__(self, run=lambda tensors: sum(tensors)):
        self._run = run
        self.received = []

    def __call__(self, tensors):
        self.received.append(tensors)
        return self._run(tensors)


def executable(name="train", repeat_count=1, host=None):
    program = Program(
        name=name,
        step=lambda element: element,
        infeed=(),
        unflatten=tuple,
        repeat_count=repeat_count,
    )
    return Executable(program=program, graph=Graph("step", ()), host=host or Host(), reason="")


def test_an_execution():
    host = Host()
    assert Engine().run(executable(host=host), [2, 3]) == 5
    assert host.received == [[2, 3]]


def test_the_last_executions_have_their_times():
    engine, sleeps = Engine(), executable(host=Host(time.sleep))
    for waited in range(70):
        engine.run(sleeps, 0.002 if waited > 67 else 0, waited)
    assert [one.waited for one in sleeps.executions] == [*range(6, 70)]
    first, last = list(sleeps.executions)[-2:]
    assert first.began + 2_000_000 <= first.ended <= last.began <= last.ended - 2_000_000


def test_counters():
    engine = Engine()
    assert engine.counters().num_executions == {}
    for _ in range(3):
        engine.run(executable("train", repeat_count=7), [])
    engine.run(executable("test", repeat_count=2), [])
    counters = engine.counters()
    assert counters.num_executions == {"train": 3, "test": 1}
    assert counters.num_steps == {"train": 21, "test": 2}


def test_a_function_that_ran_elsewhere(caplog):
    engine = Engine()
    cycles = CycleCount(tile=3, cycles=700)
    function = dataclasses.replace(executable("step"), host=None, cycle_count=cycles)
    for _ in range(2):
        engine.note_execution(function)
    assert engine.loaded is function
    assert engine.counters().num_executions == engine.counters().num_steps == {"step": 2}
    assert [record.getMessage() for record in caplog.records] == [
        "Cycle count: 700 (modelled, program 'step' of 1 steps, tile 3)"
    ] * 2


def test_compilations_are_counted():
    engine = Engine()
    for name in ("train", "test", "train"):
        engine.count_compilation(name)
    assert engine.counters().num_compilations == {"train": 2, "test": 1}


def test_cycles_are_logged(caplog):
    engine = Engine()
    counted = dataclasses.replace(
        executable("train", repeat_count=7), cycle_count=CycleCount(tile=3, cycles=700)
    )
    engine.run(counted, [])
    engine.run(executable("test"), [])
    with pytest.raises(ZeroDivisionError):
        engine.run(dataclasses.replace(counted, host=Host(lambda tensors: 1 / 0)), [])
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("ipu_keras", "WARNING")
    assert record.getMessage() == (
        "Cycle count: 700 (modelled, program 'train' of 7 steps, tile 3)"
    )


def test_counters_are_a_copy():
    engine = Engine()
    before = engine.counters()
    engine.run(executable(), [])
    assert before.num_executions == {}
    with pytest.raises(TypeError, match="does not support item assignment"):
        before.num_executions["train"] = 1


def test_the_loaded_executable_is_the_last_that_ran():
    engine = Engine()
    assert engine.loaded is None
    first, second = executable("train"), executable("test")
    for one in (first, second, first):
        engine.run(one, [])
        assert engine.loaded is one


def test_a_program_with_variables_goes_with_who_made_it():
    engine = Engine()
    with_variables = dataclasses.replace(executable(), variables=(TensorSpec((2,), "float32"),))
    engine.run(with_variables, [])
    assert engine.loaded is with_variables
    del with_variables
    assert engine.loaded is None
    assert engine.last_title == "train"


def test_a_program_without_variables_is_kept():
    engine = Engine()
    assert engine.last_title is None
    engine.run(executable("once"), [])
    gc.collect()
    assert engine.loaded.program.name == "once"


def test_an_execution_that_fails_is_not_counted():
    engine = Engine()
    with pytest.raises(ZeroDivisionError):
        engine.run(executable(host=Host(lambda tensors: 1 / 0)), [])
    assert engine.counters().num_executions == {}
    assert engine.run(executable(), [1]) == 1  # the engine is not stuck


def test_one_execution_at_a_time():
    running, overlaps = [], []

    def run(tensors):
        running.append(tensors)
        overlaps.append(len(running))
        time.sleep(0.01)
        running.pop()

    engine = Engine()
    one = executable(host=Host(run))
    threads = [threading.Thread(target=engine.run, args=(one, [k])) for k in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlaps == [1] * 5
    assert engine.counters().num_executions == {"train": 5}
