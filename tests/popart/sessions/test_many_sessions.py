"""Many sessions in one process, and many threads in one session."""

import gc
import threading
import weakref

import numpy as np
import pytest

from ipu_keras import popart
from ipu_keras.machine.system import SYSTEM

# More than the machine has IPUs.
MANY = 40


@pytest.fixture(autouse=True)
def nothing_acquired():
    for device in SYSTEM.acquired:
        SYSTEM.release(device)


def session_on(device, relu):
    session = popart.InferenceSession(relu.proto, popart.DataFlow(1, [relu.y]), device)
    session.prepareDevice()
    return session


def test_a_session_that_is_dropped_gives_up_its_ipu(relu):
    """At once, and not when Python next collects its garbage."""
    x = relu.data()
    for _ in range(MANY):
        device = popart.DeviceManager().acquireAvailableDevice(1)
        assert device is not None
        session = session_on(device, relu)
        arrays = session.initAnchorArrays()
        session.run(popart.PyStepIO({relu.x: x}, arrays))
        np.testing.assert_allclose(arrays[relu.y], relu.computed(x), rtol=1e-6, atol=1e-6)
        del session, device
        assert not SYSTEM.acquired


def test_a_session_that_is_dropped_leaves_nothing(relu):
    """The TensorFlow device of an IPU Model is used again, and keeps no program."""
    programs, names = [], set()
    for _ in range(3):
        device = popart.DeviceManager().createIpuModelDevice({})
        names.add(device.device.name)
        session = session_on(device, relu)
        session.run(popart.PyStepIO({relu.x: relu.data()}, session.initAnchorArrays()))
        programs.append(weakref.ref(session._executable))
        del session, device
    assert len(names) == 1
    SYSTEM.acquire_model(1)
    gc.collect()
    assert [each() for each in programs] == [None, None, None]


def test_threads_share_a_session(relu, ipu_model):
    session, wrong = session_on(ipu_model(), relu), []

    def run(seed):
        x, arrays = relu.data(seed=seed), session.initAnchorArrays()
        for _ in range(20):
            session.run(popart.PyStepIO({relu.x: x}, arrays))
            if not np.allclose(arrays[relu.y], relu.computed(x), rtol=1e-5, atol=1e-6):
                wrong.append(seed)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_session_that_is_dropped_while_it_runs(relu, ipu_model):
    sessions, began, goes_on = [session_on(ipu_model(), relu)], threading.Event(), threading.Event()
    x, found = relu.data(), np.empty((2, 4), np.float32)

    def wait(name, is_prefetch):
        began.set()
        goes_on.wait(10)
        return x

    step_io = popart.PyStepIOCallback(
        wait, lambda name: None, lambda name: found, lambda name: None
    )
    thread = threading.Thread(target=lambda: sessions.pop().run(step_io))
    thread.start()
    began.wait(10)
    assert not sessions
    goes_on.set()
    thread.join()
    np.testing.assert_allclose(found, relu.computed(x), rtol=1e-6, atol=1e-6)
