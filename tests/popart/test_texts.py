"""The phrases of PopART's errors on which users match, each by the call that raises it."""

import re

import numpy as np
import pytest

from ipu_keras import popart
from ipu_keras.popart import AnchorReturnType as Returns
from ipu_keras.popart import DataFlow, popart_exception, poplar_exception

X = np.ones((2, 2), np.float32)


class Calls:
    """What rows call: a model of one weight, and sessions of it."""

    def __init__(self):
        self.builder = builder = popart.Builder(opsets={"ai.onnx": 10, "ai.graphcore": 1})
        self.x = builder.addInputTensor("FLOAT", [2, 2])
        self.w = builder.addInitializedInputTensor(X)
        self.y = builder.aiOnnx.matmul([self.x, self.w])
        self.onnx, self.graphcore = builder.aiOnnx, builder.aiGraphcore
        self.devices = popart.DeviceManager()

    def session(self, flow=None, device=None, model=None, **options):
        chosen = popart.SessionOptions()
        for name, value in options.items():
            setattr(chosen, name, value)
        return popart.InferenceSession(
            self.builder.getModelProto() if model is None else model,
            flow or DataFlow(1, [self.y]),
            device or self.devices.createIpuModelDevice({}),
            userOptions=chosen,
        )

    def prepared(self, *args, **options):
        session = self.session(*args, **options)
        session.prepareDevice()
        return session

    def run(self, x=X, session=None, **anchors):
        session = session or self.prepared()
        session.run(popart.PyStepIO({self.x: x}, anchors or session.initAnchorArrays()))

    def callback(self, given):
        steps = (lambda *_: given), (lambda _: None), (lambda _: given), (lambda _: None)
        self.prepared().run(popart.PyStepIOCallback(*steps))

    def of_type(self, name):
        builder = popart.Builder()
        y = builder.aiOnnx.identity([builder.addInputTensor(name, [2])])
        self.session(DataFlow(1, [y]), model=builder.getModelProto())

    def recomputed(self):
        self.builder.recomputeOutputInBackwardPass(self.y)
        self.session(autoRecomputation=popart.RecomputationType.Standard)

    def offline(self):
        session = self.session(device=self.devices.createOfflineIPUDevice({}))
        session.prepareDevice(loadEngine=False)
        return session


def opset_9(calls):
    return popart.Builder(opsets={"ai.onnx": 10}).aiOnnxOpset9


def opset_after_another(calls):
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    builder.aiOnnxOpset10.relu([x])
    return builder.aiOnnxOpset9


ROWS = [
    # Builders.
    (
        opset_9,
        RuntimeError,
        "Invalid opset 'aiOnnxOpset9' selected. Opset for domain ai.onnx already defined as 10",
    ),
    (
        opset_after_another,
        RuntimeError,
        "Invalid opset 'aiOnnxOpset9' selected. Opset for domain ai.onnx already defined as 10",
    ),
    (lambda c: c.onnx.relu(["z"]), popart_exception, "Unknown tensor 'z' (valid tensors are "),
    (lambda c: c.builder.addOutputTensor("z"), popart_exception, "Unknown tensor 'z' (valid tens"),
    (lambda c: c.builder.getTensorShape("z"), popart_exception, "Unknown tensor 'z' (valid tens"),
    (
        lambda c: c.onnx.matmul([c.x]),
        popart_exception,
        "MatMul has invalid number of inputs 1. Must be between 2..2",
    ),
    (
        lambda c: c.onnx.relu([c.x, c.x]),
        popart_exception,
        "Relu has invalid number of inputs 2. Must be between 1..1",
    ),
    (
        lambda c: c.graphcore.gelu([c.x, c.x]),
        popart_exception,
        "Gelu has invalid number of inputs 2. Must be between 1..1",
    ),
    (
        lambda c: c.onnx.split([c.x], num_outputs=0),
        popart_exception,
        "Split has invalid number of outputs 0. Must be between 1..",
    ),
    (lambda c: c.builder.getVirtualGraph(), popart_exception, "Virtual graph not set in current"),
    (lambda c: c.builder.getPipelineStage(), popart_exception, "Pipeline stage not set in current"),
    (
        lambda c: c.builder.setAvailableMemoryProportion(c.y, 1.5),
        popart_exception,
        "availableMemoryProportion must be in (0,1]",
    ),
    (lambda c: popart.TensorInfo("FLOAT"), TypeError, "A TensorInfo is made of a dtype and a shap"),
    (lambda c: popart.TensorInfo(np.complex256, [1]), KeyError, "complex256"),
    # What a step returns.
    (lambda c: DataFlow(0), popart_exception, "'Batches per step' must be greater than zero"),
    (lambda c: DataFlow(-2, ["y"]), popart_exception, "'Batches per step' must be greater than ze"),
    (lambda c: Returns("Most"), popart_exception, "Invalid anchor return type"),
    (lambda c: Returns("EveryN"), popart_exception, "Must specify return period with option 'EVER"),
    (lambda c: Returns("EveryN", 0), popart_exception, "Anchor return period must be greater than"),
    (lambda c: Returns("Sum", 2), popart_exception, "return period must not be supplied with opti"),
    (lambda c: Returns("Sum").rp(), popart_exception, "return period should not be used for this"),
    # Sessions.
    (
        lambda c: c.session(DataFlow(1)),
        popart_exception,
        "User must specify an anchor tensor when doing inference.",
    ),
    (lambda c: c.session(DataFlow(1, ["z"])), popart_exception, "Anchor tensor 'z' not found"),
    (
        lambda c: c.session(enableGradientAccumulation=True),
        popart_exception,
        "Gradient Accumulatio",
    ),
    (Calls.recomputed, popart_exception, "A mixture of auto and manual recomputation is not suppo"),
    (lambda c: c.session(enablePipelining=True), popart_exception, "Pipelining requires more than"),
    (
        lambda c: c.session(engineOptions={"some": "1"}),
        poplar_exception,
        "Unrecognised option 'some'",
    ),
    (
        lambda c: c.of_type("INT16"),
        popart_exception,
        "The data type INT16 is not supported in Popl",
    ),
    (lambda c: c.of_type("STRING"), popart_exception, "The data type STRING is not supported in P"),
    (
        lambda c: c.session().getSummaryReport(),
        popart_exception,
        "Session must have been prepared before a report can be fetched",
    ),
    (
        lambda c: c.session().getGraphReport(),
        popart_exception,
        "Session must have been prepared before a report can be fetched",
    ),
    (
        lambda c: c.prepared().getCycleCount(),
        popart_exception,
        "SessionOption 'instrumentWithHardwareCycleCounter' must be set to true",
    ),
    # Steps and weights.
    (
        lambda c: c.run(np.ones((3, 2), np.float32)),
        popart_exception,
        "Unexpected number of input elements for Tensor input. Expected 4, but received 6.",
    ),
    (
        lambda c: c.run(**{c.y: np.ones(3, np.float32)}),
        popart_exception,
        "Unexpected number of output elements for Tensor MatMul:0. Expected 4, but received 3.",
    ),
    (
        lambda c: c.callback(np.ones(6, np.float32)),
        popart_exception,
        "Unexpected number of input elements for Tensor input. Expected 4, but received 6.",
    ),
    (
        lambda c: c.run(X.astype(np.float64)),
        popart_exception,
        "Type discrepency for tensor input. User provided : float64 and expected : float32",
    ),
    (
        lambda c: c.callback(np.ones(4, np.int32)),
        popart_exception,
        "Type discrepency for tensor input. User provided : int32 and expected : float32",
    ),
    (
        lambda c: popart.PyStepIO({"x": np.ones((2, 3)).T}, {}),
        popart_exception,
        "as it is not c-contiguous",
    ),
    (
        lambda c: popart.PyStepIO({}, {"y": np.ones((2, 3)).T}),
        popart_exception,
        "as it is not c-contiguous",
    ),
    (
        lambda c: popart.PyWeightsIO({"w": np.ones((2, 3)).T}),
        popart_exception,
        "as it is not c-contiguous",
    ),
    (
        lambda c: c.prepared().writeWeights(popart.PyWeightsIO({c.w: X})),
        popart_exception,
        "Cannot call writeWeights when SessionOptions.constantWeights is set",
    ),
    (
        lambda c: c.prepared().resetHostWeights(c.builder.getModelProto()),
        popart_exception,
        "Cannot call resetHostWeights when SessionOptions.constantWeights is set",
    ),
    (
        lambda c: c.prepared().getRNGState(),
        popart_exception,
        "Trying to use getRNGState, but SessionOptions.enableLoadAndOffloadRNGState is not set",
    ),
    # Devices.
    (
        lambda c: c.devices.createIpuModelDevice({"tiles": 4}),
        popart_exception,
        "Invalid option `tiles' passed to DevicexManager::createHostDevice",
    ),
    (
        lambda c: c.devices.acquireAvailableDevice(3),
        popart_exception,
        "You have attempted to acquire 3 IPUs. The number of IPUs requested must be a power of two",
    ),
    (
        lambda c: c.run(session=c.offline()),
        popart_exception,
        "Offline IPU device is not configured for execution",
    ),
    (
        lambda c: c.prepared(device=c.devices.createOfflineIPUDevice({})),
        popart_exception,
        "Offline IPU device is not configured for execution",
    ),
]


@pytest.mark.parametrize(("call", "error", "phrase"), ROWS, ids=[row[2][:50] for row in ROWS])
def test_the_phrase_is_in_what_is_raised(call, error, phrase):
    calls = Calls()
    with pytest.raises(error, match=re.escape(phrase)) as raised:
        call(calls)
    # Not one of a class below, which has another documented name.
    assert type(raised.value) is error


def test_classes_are_of_no_relation():
    classes = (
        *(popart.popart_exception, popart.popart_internal_exception),
        *(popart.poplar_exception, popart.poplibs_exception),
    )
    assert [one.__bases__ for one in classes] == [(Exception,)] * 4
