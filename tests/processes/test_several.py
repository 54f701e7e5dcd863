"""Processes that MPI joins compute what one process does, and end together."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("training.py")
MPIRUN = [Path(sys.executable).with_name("mpirun"), "-n"]
POPRUN = [sys.executable, "-m", "ipu_keras_tools.poprun", "--num-instances"]


def run(count, folder, what, fails=False, launcher=MPIRUN):
    """What each process finds, by rank, and what all of them say on the other output."""
    folder.mkdir()
    process = subprocess.run(
        [*launcher, str(count), sys.executable, SCRIPT, folder, what],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (process.returncode != 0) is fails, process.stderr
    return [json.loads(path.read_text()) for path in sorted(folder.iterdir())], process.stderr


def test_operations_of_three_processes(tmp_path):
    found, _ = run(3, tmp_path / "of", "operations")
    reduced = [[2.0, 0.5], [1.0, 0.5, 2.0, 0.5, 3.0, 0.5], [3.0, 0.5]]
    assert [one["eager"] for one in found] == [reduced] * 3
    assert [one["graph"] for one in found] == [reduced] * 3
    assert [one["ragged"] for one in found] == [[[0, 1, 1, 2, 2, 2], [7.5]]] * 3
    assert [one["independent"] for one in found] == [[[0.0], [0.0]]] * 3


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What two processes find that do one thing after the other, as each takes seconds to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPU_KERAS_PROCESS_SECONDS", "60")
        return run(2, tmp_path_factory.mktemp("together") / "of", "together")[0]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """How one process trains."""
    (found,), _ = run(1, tmp_path_factory.mktemp("alone") / "of", "trained")
    return found


@pytest.mark.parametrize("num_ipus", [1, 2])
def test_weights_are_those_of_one_process(together, alone, num_ipus):
    one, *two = (each[num_ipus - 1] for each in (alone, *(one["trained"] for one in together)))
    assert two[0]["weights"] == two[1]["weights"]
    np.testing.assert_allclose(two[0]["weights"], one["weights"], atol=1e-6, rtol=0)
    assert two[0]["loss"] == two[1]["loss"]
    if num_ipus == 1:  # else one process shows the loss of one of its replicas
        assert two[0]["loss"] == pytest.approx(one["loss"], rel=1e-5)
    assert [each["sum"] for each in two] == [4.0, 4.0]
    assert two[0]["in_sync"] == 2 * num_ipus


def test_variables_are_assigned_to_together(together):
    one, other = (each["assigned"] for each in together)
    assert one[0] == [13.0, 11.5, 11.0]
    assert other[0] == [13.0, 11.5, 12.0]
    assert "processes of one replica each" in one[1]


def test_halves_are_rounded_alike(together):
    one, other = (each["rounded"] for each in together)
    assert one == other


def test_an_update_is_skipped_by_all_processes(together):
    assert [each["scaled"] for each in together] == [[0.5, 4.0]] * 2


def test_replicas_average_and_datasets_know_their_process(together):
    assert [each["told"] for each in together] == [[1.5, [0, 2]], [1.5, [1, 3]]]


def test_sums_of_a_session_that_do_more_than_they_need_say_so(together):
    for totals, warned in (each["in_session"] for each in together):
        assert totals == [10.0, 12.0, -12.0, 12.0]
        (message,) = warned
        assert "do, too: AssignAddVariableOp. If it is to run without that" in message


def test_an_error_that_nobody_handles_ends_all_processes(tmp_path):
    _, said = run(2, tmp_path / "of", "fails", fails=True)
    assert "rank 1 of 2 failed: ValueError: bad sample 17; all processes end" in said
    assert "was killed" not in said


@pytest.mark.parametrize(("on_host", "device"), [(0, "IPU:0"), (1, "CPU:0")])
def test_loops_of_ones_own_add_gradients_up(together, on_host, device):
    """Both begin with process 0's value; the gradients are [2, 10], the second update 1.5 times."""
    found = [each["loops"][on_host] for each in together]
    assert [one["device"] for one in found] == [device] * 2
    expected = [1 - 0.1 * 2 * 2.5, 2 - 0.1 * 10 * 2.5]
    np.testing.assert_allclose([one["variable"] for one in found], [expected] * 2, rtol=1e-6)


def test_processes_agree_on_what_they_execute(together):
    """One that is late is waited for; all hear of one that does something else, and may go on."""
    first, other = (each["disagreements"] for each in together)
    assert first["late"] == other["late"] == ""
    train = "train [0-9a-f]{8}, {} step(s) of 1 replica(s), accumulated 1, fed float32[{}, 2], "
    train += "float32[{}, 4]; seed {}."
    for name, ours, theirs in (
        ("rows", (2, 4, 4, None), (2, 8, 8, None)),
        ("steps", (2, 4, 4, None), (4, 4, 4, None)),
        ("seed", (2, 4, 4, 0), (2, 4, 4, 1)),
    ):
        pair = [of_program(train, *ours), of_program(train, *theirs)]
        words = "processes do different things. Rank {}: {} Rank {}: {}"
        assert re.fullmatch(words.format(0, pair[0], 1, pair[1]), first[name].strip()), first
        assert re.fullmatch(words.format(1, pair[1], 0, pair[0]), other[name].strip()), other
    assert "Rank 1: a message of float32, rows of [], to all." in first["alone"]


def of_program(text, *values):
    head, _, tail = text.partition("[0-9a-f]{8}")
    return re.escape(head) + "[0-9a-f]{8}" + re.escape(tail.format(*values))


def test_a_process_that_has_ended_ends_the_others(tmp_path, monkeypatch):
    monkeypatch.setenv("IPU_KERAS_PROCESS_SECONDS", "100")
    start = time.monotonic()
    _, said = run(2, tmp_path / "of", "ends", fails=True)
    assert "rank 1 has ended while rank 0 is at: a message of float32" in said
    assert "rank 0 of 2 failed: " in said
    assert time.monotonic() - start < 80


def test_a_process_that_is_stuck_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("IPU_KERAS_PROCESS_SECONDS", "2")
    _, said = run(2, tmp_path / "of", "stuck", fails=True)
    assert "no word from rank(s) 1 for 2 s, while rank 0 is at: a message of float32" in said
    assert "IPU_KERAS_PROCESS_SECONDS says how long is waited" in said


def test_a_process_that_is_killed_is_named_by_poprun(tmp_path):
    _, said = run(2, tmp_path / "of", "killed", fails=True, launcher=POPRUN)
    assert "poprun: instance 1 was killed by signal 9" in said
    found = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True)
    assert found.stdout == ""  # nobody is left


def test_a_process_that_is_killed_is_named_without_poprun(tmp_path):
    _, said = run(2, tmp_path / "of", "killed", fails=True)
    assert "rank 1 of 2 was killed, or has ended without a word; all end" in said
    assert "rank 0 of 2" not in said


def test_it_is_said_without_poprun_that_nobody_reads_the_output(tmp_path):
    command = [*MPIRUN, "2", sys.executable, SCRIPT, tmp_path, "prints"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
    assert " of 2 and all others end, as their launcher has ended: nobody reads its output" in said
    found = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True)
    assert found.stdout == ""
