"""Two workers on this machine, against one process with all data, and their faults."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from processes.worker_training import NUM_STEPS, X, Y, made_model, step_of

from ipu_keras.processes.workers import Workers

_SECONDS = 150
# Workers exit within 3 seconds of their end on idle cores. Busy ones take longer; one that waited
# for the others would take as long as gRPC's limits, which are minutes.
_SECONDS_TO_EXIT = 30


def cluster_of_two():
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind(("localhost", 0))
        return {"worker": [f"localhost:{each.getsockname()[1]}" for each in sockets]}


def run_two(how):
    """Returns what both workers printed, their exit codes, and the seconds from end to exit."""
    cluster = cluster_of_two()
    script = os.path.join(os.path.dirname(__file__), "worker_training.py")
    started = []
    try:
        for index in range(2):
            task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
            started.append(
                subprocess.Popen(
                    [sys.executable, script, how],
                    env={**os.environ, "TF_CONFIG": json.dumps(task)},
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        texts = [each.communicate(timeout=_SECONDS)[0] for each in started]
        exited = time.time()
    finally:
        for each in started:
            each.kill()
            each.wait()
    found = [json.loads(text.splitlines()[-1]) if text.strip() else {} for text in texts]
    ends = [each["end"] for each in found if each]
    return found, [each.returncode for each in started], exited - max(ends)


def test_values_of_two_workers():
    found, codes, seconds = run_two("values")
    assert codes == [0, 0]
    assert seconds < _SECONDS_TO_EXIT
    keras.utils.set_random_seed(1)
    model, optimizer = made_model()
    step = tf.function(step_of(model, optimizer))
    losses = [float(step(X, Y)) for _ in range(2 * NUM_STEPS)]
    assert found[0]["weights"] == found[1]["weights"]
    for own, weight in zip(found[0]["weights"], model.weights, strict=True):
        np.testing.assert_allclose(own, weight.numpy(), atol=1e-6)
    for index, each in enumerate(found):
        np.testing.assert_allclose(each["losses"], losses, rtol=1e-5)
        assert each["mean"] == [0.5, 4.0]
        assert each["mean_of_axis"] == 3.0
        assert each["input"] == [2, index]
        assert each["replica"] == index
        assert "For them use an IPUMultiReplicaStrategy, under `poprun`" in each["fit"]
        assert each["session"].startswith("Several workers exchange values in functions only.")
        assert each["metric"].startswith("Variables that several workers synchronise when they")


def test_a_worker_that_is_killed():
    found, codes, seconds = run_two("killed")
    assert codes == [0, -9]
    message, waited = found[0]["error"]
    assert "/job:worker/replica:0/task:1 at localhost:" in message
    assert "has ended, while /job:worker/replica:0/task:0 waits for values of it" in message
    assert waited < 30
    assert seconds < _SECONDS_TO_EXIT


def test_other_shapes():
    found, codes, _ = run_two("shapes")
    assert codes == [0, 0]
    for index, each in enumerate(found):
        message, waited = each["error"]
        assert "exchange different values. All workers have to run the same program" in message
        assert f"Here these are float32[{2 + index}]" in message
        assert waited < 30


def resolver(jobs, job, index):
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(jobs), task_type=job, task_id=index
    )


def test_who_takes_part():
    jobs = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "evaluator": ["d:1"]}
    assert Workers(resolver(jobs, "worker", 1)).size == 3
    assert Workers(resolver(jobs, "evaluator", 0)).size == 1


@pytest.mark.parametrize(
    ("jobs", "job", "kind", "message"),
    [
        (
            {"ps": ["a:1"], "worker": ["b:1"]},
            "worker",
            NotImplementedError,
            "without parameter servers",
        ),
        (
            {"worker": ["a:1", "b:1"]},
            "",
            ValueError,
            "must say which of several workers this process is, as the `task` of TF_CONFIG does",
        ),
    ],
)
def test_wrong_clusters(jobs, job, kind, message):
    with pytest.raises(kind, match=message):
        Workers(resolver(jobs, job, 0))
