"""Configured devices and fresh interpreters for the tests of the device room."""

import os
import subprocess
import sys
import textwrap

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


@pytest.fixture
def run_python():
    """Runs a script in a new interpreter and returns what it printed, stripped."""

    def run(script):
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        result = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            capture_output=True,
            text=True,
            env=environment,
            timeout=120,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    return run
