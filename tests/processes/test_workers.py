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

from ipu_keras.processes.workers import Exchange, Rounds, Workers

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


def run_two(*how):
    """Returns what both workers printed, their exit codes, and the seconds from end to exit."""
    cluster = cluster_of_two()
    script = os.path.join(os.path.dirname(__file__), "worker_training.py")
    started = []
    try:
        for index in range(2):
            task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
            started.append(
                subprocess.Popen(
                    [sys.executable, script, *how],
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


def check_ended(error):
    """An error says which worker has ended, soon enough."""
    message, waited = error
    assert "/job:worker/replica:0/task:1 at localhost:" in message
    assert "has ended, while /job:worker/replica:0/task:0 waits for values of it" in message
    assert waited < 30


def check_shapes(error, shape):
    message, waited = error
    assert "exchange different values. All workers have to run the same program" in message
    assert f"Here these are float32[{shape}]" in message
    assert waited < 30


@pytest.fixture(scope="module")
def in_functions():
    """What two workers found in functions, of which the second one ends before the first."""
    found, codes, seconds = run_two("functions")
    assert codes == [0, 0]
    assert seconds < _SECONDS_TO_EXIT
    return found


@pytest.fixture(scope="module")
def in_sessions(tmp_path_factory):
    """What the first of two workers of two replicas found in sessions; the other one is killed."""
    found, codes, seconds = run_two("sessions", str(tmp_path_factory.mktemp("checkpoints")))
    assert codes == [0, -9]
    assert seconds < _SECONDS_TO_EXIT
    return found[0]


def test_values_of_two_workers(in_functions):
    keras.utils.set_random_seed(1)
    model, optimizer = made_model()
    step = tf.function(step_of(model, optimizer))
    losses = [float(step(X, Y)) for _ in range(2 * NUM_STEPS)]
    assert in_functions[0]["weights"] == in_functions[1]["weights"]
    for own, weight in zip(in_functions[0]["weights"], model.weights, strict=True):
        np.testing.assert_allclose(own, weight.numpy(), atol=1e-6)
    for index, each in enumerate(in_functions):
        np.testing.assert_allclose(each["losses"], losses, rtol=1e-5)
        assert each["mean"] == [0.5, 4.0]
        assert each["mean_of_axis"] == 3.0
        assert each["input"] == [2, index]
        assert each["replica"] == index
        assert "For them use an IPUMultiReplicaStrategy, under `poprun`" in each["fit"]
        assert each["assigned"] == [13.0, 11.5, 11.0 + index]


def test_variables_that_workers_read_together(in_functions):
    for index, each in enumerate(in_functions):
        variables = each["variables"]
        assert variables["own"] == [index + 2.0] * 4
        # Of 2 and 3: sum, mean, and what the first worker has.
        assert variables["read"][:3] == [5.0, 2.5, 2.0]
        assert "needs an aggregation: SUM, MEAN or ONLY_FIRST_REPLICA" in variables["read"][3]
        assert variables["metric"] == 1.5
        assert variables["assigned"] == [2.5, 5.0]


def test_values_of_two_replicas_each_in_a_session(in_sessions):
    # What momentum makes of the gradients, averaged over replicas and added up over workers.
    kernel, velocity = np.full((4, 1), 0.5), 0.0
    for turn in range(2 * (NUM_STEPS + 1)):
        x, y = (array[turn % 2 * 4 : turn % 2 * 4 + 4] for array in (X, Y))
        velocity = 0.5 * velocity + 2 * x.T @ (x @ kernel - y) / 2
        kernel -= 0.1 * velocity
    np.testing.assert_allclose(in_sessions["weights"]["kernel:0"], kernel, atol=1e-6)
    # Each turn adds 1 in the first worker, and 3 in the second one.
    assert in_sessions["weights"]["seen:0"] == 4.0 * 2 * (NUM_STEPS + 1) == in_sessions["restored"]
    assert in_sessions["sums"] == [2.0, 1.0]
    assert in_sessions["plain"].startswith("Several workers exchange values in sessions of a ser")
    assert "Received: a session of target=''" in in_sessions["plain"]


def test_estimators_train_together(tmp_path):
    (found, _), codes, _ = run_two("estimators", str(tmp_path))
    assert codes == [0, 0]
    kernel, velocity = np.full((4, 1), 0.5), 0.0
    for x, y in zip(X.reshape(4, 2, 4), Y.reshape(4, 2, 1), strict=True):
        velocity = 0.5 * velocity + 2 * x.T @ (x @ kernel - y)
        kernel -= 0.1 * velocity
    for name in ("on_the_ipu", "on_the_host"):
        np.testing.assert_allclose(found[name]["kernel"], kernel, atol=1e-6)
        assert found[name]["global_step"] == 4
        # The first worker alone writes there.
        assert len(list((tmp_path / name).glob("events.*"))) == 1
    assert found["on_the_ipu"]["seen"] == 4 * (1 + 3)


def test_a_worker_that_is_killed(in_sessions):
    check_ended(in_sessions["killed"])


def test_a_worker_that_has_fewer_batches(in_functions):
    check_ended(in_functions[0]["fewer"])


def test_other_shapes(in_functions, in_sessions):
    check_shapes(in_sessions["shapes"], 2)
    for index, each in enumerate(in_functions):
        check_shapes(each["shapes"], 2 + index)


@pytest.fixture
def both():
    """Both workers of a cluster, in this process."""
    jobs = cluster_of_two()
    return [Workers(resolver(jobs, "worker", index), seconds_to_agree=0.2) for index in range(2)]


def test_exchanges_that_workers_begin_in_another_order(both):
    first, second = both
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    ended = []
    begun = [
        first.begin("a", [numbers, np.int32([7])], lambda: ended.append("a")),
        second.begin("b", [np.float32([1.0])]),
        second.begin("a", [10 * numbers, np.int32([-3])]),
        first.begin("b", [np.float32([2.0])]),
        second.begin("b", [np.float32([5.0])]),  # waits for the one before
        first.begin("b", [np.float32([6.0])]),
    ]
    found = [exchange.totals() for exchange in begun]
    for place in (0, 2):
        floats, integers = found[place]
        np.testing.assert_array_equal(floats, 11 * numbers)
        assert integers.tolist() == [4]
    assert [each[0].tolist() for each in found[1::2]] == [[3.0], [3.0], [11.0]]
    assert found[4][0].tolist() == [11.0]
    assert ended == ["a"]


def test_workers_that_wait_with_different_exchanges(both):
    first, second = both
    begun = [first.begin("train", [np.ones(1)]), second.begin("evaluate", [np.ones(1)])]
    for exchange, rank in zip(begun, range(2), strict=True):
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            exchange.totals()
        assert raised.value.message == (
            "The workers wait with different exchanges: one has run something else, or fewer "
            "batches. All workers have to run the same program, equally often. "
            f"/job:worker/replica:0/task:{rank} waits with ['{exchange.name}']"
        )


def test_rounds_of_replicas():
    """Two replicas share each exchange, though the second one is late to end the first."""
    begun = []

    def begin(arrays):
        begun.append(Exchange("a", arrays, lambda: None))
        return begun[-1]

    rounds = Rounds(begin, 2)
    own = np.float32([1.0, np.nan])  # gradients of float16 may overflow
    numbers = [int(rounds.begin(own)) for _ in range(3)]
    assert numbers == [1, 1, 2]
    begun[0].end([np.float32([8.0])])
    begun[1].end([np.float32([9.0])])
    assert [rounds.end(number)[0].tolist() for number in numbers] == [[8.0], [8.0], [9.0]]
    # The one that no second replica has begun is not joined with other values.
    assert int(rounds.begin(own + 1.0)) == 3


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
