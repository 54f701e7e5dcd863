"""What users are told of what cannot be done: each key phrase, with the type of its exception."""

import threading
import time

import numpy as np
import pytest
from onnx import TensorProto, helper

from ipu_keras import popart

FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64


def model_of(kind, inputs, **attributes):
    """One node, with inputs by name as type and shape."""
    graph = helper.make_graph(
        [helper.make_node(kind, list(inputs), ["y"], **attributes)],
        "graph",
        [helper.make_tensor_value_info(name, *each) for name, each in inputs.items()],
        [helper.make_tensor_value_info("y", FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 11)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=6).SerializeToString()


@pytest.fixture(scope="module")
def device():
    return popart.DeviceManager().createIpuModelDevice({})


@pytest.fixture
def unprepared(device):
    def make(proto, anchors=("y",), **options):
        chosen = popart.SessionOptions()
        for name, value in options.items():
            setattr(chosen, name, value)
        flow = popart.DataFlow(1, list(anchors))
        return popart.InferenceSession(proto, flow, device, userOptions=chosen)

    return make


def run(session, **inputs):
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO(inputs, anchors))
    return anchors


ONE = {"x": (FLOAT, [2])}
PAIR = np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (("NonZero", ONE), r"The anchor 'y' has the shape \(1, None\), which is known only when"),
        (("SplitToSequence", ONE), "The anchor 'y' is a sequence"),
        (("Cast", ONE, {"to": TensorProto.INT16}), "The data type INT16 is not supported in Popla"),
        (("Reshape", {**ONE, "s": (INT64, [1])}), r"^In Reshape 'y': The input 'shape' has to be"),
        (("Transpose", {"x": (FLOAT, [2, 2])}, {"perm": [0, 0]}), r"`perm` must have each of 0 to"),
    ],
)
def test_anchors_that_no_program_returns(unprepared, model, text):
    kind, inputs, *attributes = model
    proto = model_of(kind, inputs, **dict(*attributes))
    for method in ("prepareDevice", "initAnchorArrays"):
        session = unprepared(proto)
        with pytest.raises(popart.popart_exception, match=text):
            getattr(session, method)()


@pytest.mark.parametrize("dtype", ["STRING", "COMPLEX64", "INT16", "UINT16", "BFLOAT16"])
def test_inputs_of_types_that_no_ipu_has(unprepared, dtype):
    proto = model_of("Identity", {"x": (getattr(TensorProto, dtype), [2])})
    with pytest.raises(popart.popart_exception, match=f"data type {dtype} is not supported in Pop"):
        unprepared(proto)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"engineOptions": {"x": "1"}}, popart.poplar_exception, "^Unrecognised option 'x'"),
        (
            {"engineOptions": {"autoReport.all": "maybe"}},
            popart.poplar_exception,
            "'autoReport.all' in SessionOptions.engineOptions must be",
        ),
        (
            {"convolutionOptions": {"availableMemoryProportion": "2"}},
            popart.poplar_exception,
            r"^SessionOptions\.convolutionOptions: ",
        ),
        ({"enableGradientAccumulation": True}, popart.popart_exception, "not available in infer"),
        ({"replicatedGraphCount": 2}, popart.popart_exception, "^enableReplicatedGraphs is false"),
        (
            {"enablePipelining": True},
            popart.popart_exception,
            "Pipelining requires more than 1 IPU",
        ),
    ],
)
def test_options_that_cannot_be(unprepared, options, error, text):
    with pytest.raises(error, match=text):
        unprepared(model_of("Relu", ONE), **options)


def test_64_bits_are_narrowed_unless_that_is_ruled_out(unprepared):
    proto = model_of("Identity", {"x": (INT64, [2])})
    assert run(unprepared(proto), x=np.int64([1, 2]))["y"].dtype == np.int32
    with pytest.raises(popart.popart_exception, match=r"INT64 is not supported.*enableSupported"):
        unprepared(proto, enableSupportedDataTypeCasting=False)


def test_what_is_not_compiled_does_not_run(unprepared):
    session = unprepared(model_of("Relu", ONE), compileEngine=False)
    with pytest.raises(popart.popart_exception, match=r"SessionOptions\.compileEngine is False"):
        run(session, x=PAIR)
    assert session.getReport().fits


def test_numbers_that_are_none_end_a_run(unprepared):
    proto = model_of("Log", ONE)
    anchors = run(unprepared(proto), x=-PAIR)
    assert np.isnan(anchors["y"]).all()
    session = unprepared(proto, enableFloatingPointChecks=True)
    np.testing.assert_array_equal(run(session, x=PAIR)["y"], [0, 0])
    with pytest.raises(popart.poplar_exception, match=r"^Floating point exception in Log 'y'"):
        run(session, x=-PAIR)


def test_an_abort_ends_a_run_and_not_the_session(unprepared):
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    end = builder.addInputTensor("INT32", [1])
    builder.aiGraphcore.abort([end])
    y = builder.aiOnnx.relu([x])
    session = unprepared(builder.getModelProto(), [y])
    with pytest.raises(popart.poplar_exception, match=r"^The program was aborted, as its node Ab"):
        run(session, **{x: PAIR, end: np.ones(1, np.int32)})
    anchors = run(session, **{x: PAIR, end: np.zeros(1, np.int32)})
    np.testing.assert_array_equal(anchors[y], PAIR)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_what_callbacks_raise_is_theirs(unprepared, place, error):
    session = unprepared(model_of("Relu", ONE))
    session.prepareDevice()

    def fail(*arguments):
        raise error

    functions = [
        lambda name, is_prefetch: PAIR,
        lambda name: None,
        lambda name: np.empty(2, np.float32),
        lambda name: None,
    ]
    functions[place] = fail
    with pytest.raises(error):
        session.run(popart.PyStepIOCallback(*functions))
    np.testing.assert_array_equal(run(session, x=-PAIR)["y"], [0, 0])


def test_something_else_for_data(unprepared):
    session = unprepared(model_of("Relu", ONE))
    session.prepareDevice()
    with pytest.raises(TypeError, match=r"`stepio` must be a PyStepIO.* Received: stepio=None"):
        session.run(None)


def test_a_device_is_detached_once_nothing_runs_on_it():
    device = popart.DeviceManager().createIpuModelDevice({})
    ended = []
    with device.device.engine.running():
        thread = threading.Thread(target=lambda: (device.detach(), ended.append(time.monotonic())))
        thread.start()
        thread.join(0.2)
        assert not ended
    thread.join(10)
    assert ended
    assert not device.isAttached


@pytest.mark.parametrize("is_offline", [False, True])
def test_nodes_of_a_type_that_no_ipu_has(is_offline):
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]))
    short = builder.aiOnnx.cast([x], "BFLOAT16")
    y = builder.aiOnnx.cast([builder.aiOnnx.relu([short])], "FLOAT")
    builder.addOutputTensor(y)
    manager = popart.DeviceManager()
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, [y]),
        manager.createOfflineIPUDevice({}) if is_offline else manager.createIpuModelDevice({}),
    )
    with pytest.raises(
        popart.popart_exception,
        match=r"data type for operation: bfloat16\. .* to tf.float16, or to tf.float32 for",
    ):
        session.prepareDevice(loadEngine=not is_offline)
