"""Sessions of devices that are not there."""

import json

import numpy as np
import pytest

from ipu_keras import popart

OFFLINE = "^Offline IPU device is not configured for execution"


@pytest.fixture
def offline():
    def make(**options):
        return popart.DeviceManager().createOfflineIPUDevice({"ipuVersion": "ipu2", **options})

    return make


def session_on(device, relu, **options):
    chosen = popart.SessionOptions()
    for name, value in options.items():
        setattr(chosen, name, value)
    return popart.InferenceSession(
        relu.proto, popart.DataFlow(3, [relu.y]), device, userOptions=chosen
    )


@pytest.mark.parametrize(
    "options", [{}, {"constantWeights": False, "enableFloatingPointChecks": True}]
)
def test_what_is_compiled_is_reported_and_never_runs(relu, offline, ipu_model, options):
    session = session_on(offline(), relu, **options)
    arrays = session.initAnchorArrays()
    assert arrays[relu.y].shape == (3, 2, 4)
    session.prepareDevice(loadEngine=False)
    step_io = popart.PyStepIO({relu.x: relu.data(3)}, arrays)
    for call in (lambda: session.run(step_io), session.loadEngineAndConnectStreams):
        with pytest.raises(popart.popart_exception, match=OFFLINE):
            call()
    # As of a device that is there, and has as many tiles.
    there = session_on(ipu_model(), relu, **options)
    there.prepareDevice()
    cycles = [each.getReport().model.cycles_per_step for each in (session, there)]
    assert cycles[0] == cycles[1] > 0
    assert json.loads(session.getSerializedGraph()) == json.loads(there.getSerializedGraph())
    assert session.getInfo(relu.product).shape() == [2, 4]
    session.weightsFromHost()


def test_what_is_to_run_is_refused(relu, offline):
    session = session_on(offline(), relu)
    with pytest.raises(popart.popart_exception, match=OFFLINE):
        session.prepareDevice()
    with pytest.raises(popart.popart_exception, match="Must call prepareDevice before run"):
        session.run(popart.PyStepIO({}, {}))


def test_what_does_not_fit(offline):
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 1024])
    y = builder.aiOnnx.matmul(
        [x, builder.addInitializedInputTensor(np.zeros((1024, 1024), np.float32))]
    )
    device = offline(tilesPerIPU=4)
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device)
    with pytest.raises(popart.OutOfMemoryException, match="Out of memory on tile"):
        session.prepareDevice(loadEngine=False)


def on_demand(timeout=0):
    manager = popart.DeviceManager()
    manager.setOnDemandAttachTimeout(timeout)
    return manager.acquireAvailableDevice(
        connectionType=popart.DeviceConnectionType.OnDemand
    ), manager


def test_a_device_is_attached_as_soon_as_a_program_is_loaded(relu):
    with on_demand()[0] as device:
        session = session_on(device, relu)
        arrays = session.initAnchorArrays()
        assert not device.isAttached
        session.prepareDevice()
        assert device.isAttached
        x = relu.data(3)
        session.run(popart.PyStepIO({relu.x: x}, arrays))
        np.testing.assert_allclose(arrays[relu.y], relu.computed(x), rtol=1e-5)


def test_programs_for_a_device_that_is_attached_later(relu):
    device, manager = on_demand()
    builder = popart.Builder(relu.proto)
    loss = builder.aiGraphcore.identityloss([relu.y])
    session = popart.TrainingSession(
        builder.getModelProto(), popart.DataFlow(1, [loss]), loss, popart.ConstSGD(0.5), device
    )
    session.prepareDevice(loadEngine=False)
    assert not device.isAttached
    assert session.getReport().model.cycles_per_step > 0
    text = "^Failed to attach to the device: others have its IPUs"
    with manager.acquireDeviceById(device.id), pytest.raises(popart.popart_exception, match=text):
        session.loadEngineAndConnectStreams()
    session.loadEngineAndConnectStreams()
    assert device.isAttached
    session.weightsFromHost()
    arrays, x = session.initAnchorArrays(), relu.data()
    session.run(popart.PyStepIO({relu.x: x}, arrays))
    np.testing.assert_allclose(arrays[loss], relu.computed(x).mean(), rtol=1e-5)
    device.detach()


def test_programs_for_a_device_that_is_never_attached(relu):
    device = popart.DeviceManager().acquireAvailableDevice(
        connectionType=popart.DeviceConnectionType.Never
    )
    session = session_on(device, relu)
    session.prepareDevice(loadEngine=False)
    assert session.getReport().model.cycles_per_step > 0
    with pytest.raises(popart.popart_exception, match="to a device whose connection type is"):
        session.loadEngineAndConnectStreams()
