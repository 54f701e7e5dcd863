"""An IPU strategy, models with a stock twin, and a watch on threads."""

import os
import subprocess
import sys
import textwrap
import threading
import time

import keras
import numpy as np
import pytest
from comparison import classifier

from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER, device_for
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM


@pytest.fixture(scope="module")
def strategy():
    """A strategy on /device:IPU:0, of a system whose four devices have 1, 1, 2 and 4 IPUs."""
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = [1, 1, 2, 4]
    config.configure_ipu_system()
    yield IPUStrategy()
    SYSTEM.reset()


@pytest.fixture
def device(strategy):
    """The strategy's device, with fresh counters."""
    strategy.device.reset_counters()
    return strategy.device


@pytest.fixture
def executed(strategy):
    """A function: executions and steps of a program since the test began."""
    counters = device_for(0).engine.counters
    before = counters()

    def since(name):
        after = counters()
        return (
            after.num_executions.get(name, 0) - before.num_executions.get(name, 0),
            after.num_steps.get(name, 0) - before.num_steps.get(name, 0),
        )

    return since


@pytest.fixture(autouse=True)
def no_thread_left():
    """Fails a test that leaves a thread behind."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 5
    while (left := _started_since(before)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left


def _started_since(before):
    # Dummies stand for threads of TensorFlow that once ran Python.
    return [
        thread
        for thread in threading.enumerate()
        if thread not in before and not isinstance(thread, threading._DummyThread)
    ]


@pytest.fixture(scope="module")
def twins(strategy):
    """A function: the stock model and the IPU model, of equal weights, that `build` makes."""

    def make(build, *args, **kwargs):
        keras.utils.set_random_seed(1)
        stock = build(*args, **kwargs)
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = build(*args, **kwargs)
        return stock, model

    return make


@pytest.fixture(scope="module")
def trained_pair(twins, data):
    """Twins that have run, with two steps per execution."""
    pair = twins(classifier, steps_per_execution=2)
    for model in pair:
        model.fit(*data, batch_size=8, shuffle=False, verbose=0)
    return pair


@pytest.fixture
def pair(trained_pair):
    """`trained_pair` with equal weights, whatever the tests before have left."""
    stock, model = trained_pair
    model.set_weights(stock.get_weights())
    return trained_pair


@pytest.fixture
def model(pair):
    """The IPU model of `pair`; its weights must not change."""
    _, model = pair
    before, iterations = model.get_weights(), int(model.optimizer.iterations)
    yield model
    for weight, expected in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, expected)
    assert int(model.optimizer.iterations) == iterations


@pytest.fixture
def run_python():
    """Runs a script in a new interpreter and returns the finished process."""

    def run(script, *arguments, **options):
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
            **{"capture_output": True, "text": True, "timeout": 120, **options},
            env=environment(),
        )

    return run


@pytest.fixture
def start_python():
    """Starts a script in a new interpreter, which is killed if it outlives the test."""
    started = []

    def start(script, *arguments):
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment(),
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def environment():
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


@pytest.fixture(scope="session")
def data():
    """64 samples of 6 features in 3 classes, learnable, 8 batches of 8."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(64, 6)).astype("float32")
    y = np.argmax(x @ generator.normal(size=(6, 3)), axis=1).astype("int32")
    return x, y
