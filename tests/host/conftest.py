"""The device that programs of the host run on."""

import pytest

from ipu_keras.config import IPUConfig
from ipu_keras.device import device_for
from ipu_keras.machine.system import SYSTEM


@pytest.fixture
def device():
    """/device:IPU:0 with fresh counters."""
    SYSTEM.reset()
    IPUConfig().configure_ipu_system()
    device = device_for(0)
    device.reset_counters()
    yield device
    SYSTEM.reset()
