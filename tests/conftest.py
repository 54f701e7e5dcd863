"""What every test process needs, however it was started."""

import gc
import os
import signal
import sys

import pytest
from forked_python import ForkedPython
from hypothesis import settings

pytest_plugins = ["browser", "chosen_cases", "processor_times"]

# A shell that starts tests in the background has them ignore Ctrl-C, which
# Python and its subprocesses then never notice; several tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine that runs other tests meanwhile takes as long as it takes. What passes on a commit
# passes on it again, as examples are the same; `--hypothesis-profile=random` draws new ones.
settings.register_profile("random", deadline=None)
settings.register_profile("project", settings.get_profile("random"), derandomize=True)
settings.load_profile("project")


def pytest_collection_finish():
    """Spares collections of garbage the 400,000 objects of what was imported, which all stay."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def options_of_which_nobody_was_told():
    """A process is told of an option once, and each test stands for one."""
    if loaded := sys.modules.get("ipu_keras.settings.option_warnings"):
        loaded.OPTION_WARNINGS.forget()


@pytest.fixture(scope="module", autouse=True)
def a_file_leaves_where_processes_find_modules():
    """Processes that later tests start would find a folder of tests in place of a module."""
    before = os.getcwd(), os.environ.get("PYTHONPATH")
    yield
    assert (os.getcwd(), os.environ.get("PYTHONPATH")) == before


@pytest.fixture(scope="module", autouse=True)
def no_ipu_of_another_file():
    """The next file on this worker would be warned, when it configures, that it resets one.

    A strategy configures one IPU where a test has not done so itself.
    """
    yield
    if loaded := sys.modules.get("ipu_keras.machine.system"):
        loaded.SYSTEM.reset()


def forgets_gradients():
    """Frees the graphs of tests when they are over: in a whole run they take gigabytes.

    TensorFlow registers a gradient for each call of a `tf.custom_gradient` in a graph, as Keras
    and this package have them. It forgets none, and each keeps its graph.
    """
    before = set(_gradients())
    yield
    registered = _gradients()
    for name in set(registered) - before:
        if name.startswith("CustomGradient-"):
            del registered[name]


no_gradients_of_another_file = pytest.fixture(scope="module", autouse=True)(forgets_gradients)
# For tests of large models, of which one at a time has room.
no_gradients_of_another_test = pytest.fixture(forgets_gradients)


def _gradients():
    """TensorFlow's registered gradients by name, with those of operations."""
    loaded = sys.modules.get("tensorflow.python.framework.ops")
    return loaded.gradient_registry._registry if loaded else {}


@pytest.fixture
def xla_from_the_start(monkeypatch):
    """Has XLA compile programs for their first execution, where tests are of what it makes.

    All others run as programs do for users, and few of them long enough for XLA to begin.
    """
    monkeypatch.setenv("IPU_KERAS_FIRST_STEPS", "0")


@pytest.fixture(autouse=True)
def no_seed_of_another_test():
    """TensorFlow's seed is the process's, and whether it is set decides who draws what.

    So is the seed of each IPU device, which layers that draw for the first time begin with.

    Keras's counts, which `keras.utils.set_random_seed` starts again, need no such care: nothing
    depends on whether they were ever set.
    """
    yield
    context = sys.modules.get("tensorflow.python.eager.context")
    if context and context.global_seed() is not None:
        context.set_global_seed(None)
    devices = sys.modules.get("ipu_keras.device")
    if devices:
        for device in devices.DRIVER._devices.values():
            device.engine.seed = None


@pytest.fixture
def reset_afterwards():
    """Leaves no IPU configured to the next test."""
    yield
    sys.modules["ipu_keras.config"].reset_ipu_configuration()


@pytest.fixture(scope="session")
def run_forked(request):
    """Runs scripts in processes that have imported TensorFlow and `ipu_keras` already."""
    from processor_times import watch

    with ForkedPython() as python:
        watch(request.config, python.pid)
        python.run("")  # imports are no test's time
        yield python.run
