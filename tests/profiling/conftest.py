"""A strategy on one emulated IPU."""

import pytest

from ipu_keras.config import IPUConfig
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM


@pytest.fixture
def strategy():
    SYSTEM.reset()
    IPUConfig().configure_ipu_system()
    yield IPUStrategy()
    SYSTEM.reset()
