"""Replicas of several processes are those of one application, and compute what one process does."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("global_replicas.py")


# By the IPUs of a replica and the number of all replicas, what processes do one after the other, as
# each takes seconds to start; and what one process does with as many replicas.
PARTS = {
    (1, 4): (["collectives", "session", "loop"], ["session", "loop"]),
    (1, 2): (["normalization", "popart"], ["popart"]),
    (2, 2): (["pipeline"], ["pipeline"]),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs a part of the script in so many processes with so many replicas, and what they find."""

    @functools.cache
    def found(num_instances, num_replicas, ipus_each):
        folder = tmp_path_factory.mktemp("of")
        options = {
            "--num-instances": num_instances,
            "--num-replicas": num_replicas,
            "--ipus-per-replica": ipus_each,
        }
        words = [str(word) for pair in options.items() for word in pair]
        several, one = PARTS[ipus_each, num_replicas]
        process = subprocess.run(
            [
                *(sys.executable, "-m", "ipu_keras_tools.poprun", *words),
                *(sys.executable, SCRIPT, folder, *(several if num_instances > 1 else one)),
            ],
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert process.returncode == 0, process.stderr
        return [json.loads(path.read_text()) for path in sorted(folder.iterdir())]

    def run(part, num_instances, num_replicas, ipus_each=1):
        return [process[part] for process in found(num_instances, num_replicas, ipus_each)]

    return run


def test_collectives_are_over_all_replicas(run):
    found = run("collectives", 2, 4)
    by_replica = [
        {name: value[replica] for name, value in process.items()}
        for process in found
        for replica in range(2)
    ]
    thirds = np.array([1, 2, 3, 4], np.float32) / 3
    for index, replica in enumerate(by_replica):
        assert replica == {
            "index": index,
            "sum": 10.0,
            "mean": 2.5,
            "pairs": [3.0, 3.0, 7.0, 7.0][index],
            "gathered": [-1.0, -2.0, -3.0, -4.0],
            "flags": [False, False, True, True],
            "halves": thirds.astype(np.float16).tolist(),
            "to_all": [10.0 + index, 20.0 + index, 30.0 + index, 40.0 + index],
            "scattered": [100.0 + 4 * index],
            "largest": [40.0 + index],
        }


def test_batches_of_processes_are_normalized_together(run):
    """Alone, ones and threes have no variance; together, their mean is 2 and their variance 1."""
    first, other = run("normalization", 2, 2)
    assert first == {"1": [0.25 * 1, 0.75], "2": [0.25 * 2, 0.75 + 0.25 * 1]}
    assert other == {"1": [0.25 * 3, 0.75], "2": [0.25 * 2, 0.75 + 0.25 * 1]}


def check_weights(one, several, bound):
    (reference,) = one
    assert all(process["weights"] == several[0]["weights"] for process in several)
    np.testing.assert_allclose(several[0]["weights"], reference["weights"], atol=bound, rtol=0)
    return reference


def test_a_session_trains_as_in_one_process(run):
    """Adam magnifies rounding, so the bound is relative to the largest weight."""
    one = run("session", 1, 4)
    largest = np.abs(one[0]["weights"]).max()
    check_weights(one, run("session", 2, 4), 1e-5 * largest)


def test_a_popart_session_trains_as_in_one_process(run):
    check_weights(run("popart", 1, 2), run("popart", 2, 2), 1e-6)


def test_a_loop_of_ones_own_trains_as_in_one_process(run):
    one = run("loop", 1, 4)
    check_weights(one, run("loop", 2, 4), 1e-5 * np.abs(one[0]["weights"]).max())


def test_a_pipeline_trains_as_in_one_process(run):
    one = run("pipeline", 1, 2, ipus_each=2)
    two = run("pipeline", 2, 2, ipus_each=2)
    check_weights(one, two, 1e-6)
    assert one[0]["losses"] == 2 * two[0]["losses"] == 32
