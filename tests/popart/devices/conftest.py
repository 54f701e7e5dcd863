import pytest

from ipu_keras.machine.system import SYSTEM


@pytest.fixture(autouse=True)
def nothing_acquired():
    """What sessions of other tests hold until Python's garbage is collected is given up."""
    for device in SYSTEM.acquired:
        SYSTEM.release(device)
