"""Configured devices for the tests of the device room."""

import pytest

from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER, device_for
from ipu_keras.machine.system import SYSTEM


def configure(num_devices):
    """Configures that many devices with one IPU each, whatever was before."""
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = [1] * num_devices
    config.configure_ipu_system()


@pytest.fixture
def reconfigure():
    """The function `configure`; no device is configured before and after the test."""
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    yield configure
    SYSTEM.reset()


@pytest.fixture
def devices(reconfigure):
    """/device:IPU:0 and /device:IPU:1, with fresh counters."""
    reconfigure(2)
    pair = device_for(0), device_for(1)
    for device in pair:
        device.reset_counters()
    return pair
