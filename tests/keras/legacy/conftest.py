"""An IPU system, and what these tests hold legacy models against."""

import keras
import pytest

from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM


@pytest.fixture(scope="module")
def strategies():
    """Strategies by the number of IPUs of their device: 1, 2 and 4."""
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = [1, 2, 4]
    config.configure_ipu_system()
    yield {1 << index: IPUStrategy(f"/device:IPU:{index}") for index in range(3)}
    SYSTEM.reset()


@pytest.fixture
def no_system():
    """No IPU system is configured, before and after."""
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    yield
    SYSTEM.reset()


class Steps(keras.callbacks.Callback):
    """Notes what callbacks of batches are told, and how many steps they expect."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_begin(self, batch, logs=None):
        self.seen.append(("begin", batch, self.params["steps"]))

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(("end", batch, self.params["steps"]))

    def on_test_batch_end(self, batch, logs=None):
        self.seen.append(("test", batch, self.params["steps"]))

    def on_predict_batch_end(self, batch, logs=None):
        self.seen.append(("predict", batch, self.params["steps"]))


@pytest.fixture
def steps():
    """A callback that notes what it is told in `seen`."""
    return Steps()
