"""Sessions that infer, through the names that users have."""

import doctest
import json
import threading

import numpy as np
import onnx
import pytest
from in_passes import product

from ipu_keras import popart
from ipu_keras.popart import AnchorReturnType as Returns
from ipu_keras.popart.sessions.cbor import as_cbor
from ipu_keras.profiling.models import graph_of_program

ONLY = {"rtol": 1e-6, "atol": 1e-6}


def test_examples():
    assert doctest.testmod(popart.session).failed == 0


@pytest.mark.parametrize("batches", [1, 4, 6])
@pytest.mark.parametrize("replicas", [1, 2])
def test_what_anchors_return(relu, session_of, batches, replicas):
    anchors = {
        relu.y: Returns("All"),
        relu.product: Returns("Sum"),
        relu.x: Returns("Final"),
        relu.w: Returns("EveryN", 2 if batches > 1 else 1),
    }
    options = {"enableReplicatedGraphs": replicas > 1, "replicatedGraphCount": replicas}
    session, arrays = session_of(relu.proto, anchors, batches, replicas, **options)
    counts = tuple(n for n in (batches, replicas) if n > 1)
    each = counts[1:] if batches > 1 else counts
    halved = (batches // 2, replicas) if batches > 1 else (1, replicas)
    assert {name: array.shape for name, array in arrays.items()} == {
        relu.y: (*counts, 2, 4),
        relu.product: (*each, 2, 4),
        relu.x: (*each, 2, 3),
        relu.w: (*(n for n in halved if n > 1), 3, 4),
    }
    for seed in range(2):
        x = relu.data(batches, replicas, seed=seed)
        session.run(popart.PyStepIO({relu.x: x}, arrays))
        flat = {name: array.reshape(-1, *array.shape[-2:]) for name, array in arrays.items()}
        np.testing.assert_allclose(flat[relu.y], relu.computed(x).reshape(-1, 2, 4), **ONLY)
        sums = relu.products(x).sum(axis=0)
        np.testing.assert_allclose(flat[relu.product], sums, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(flat[relu.x], x[-1])
        np.testing.assert_array_equal(flat[relu.w], [relu.weights] * len(flat[relu.w]))


def test_every_nth_batch(relu, session_of):
    session, arrays = session_of(relu.proto, {relu.y: Returns("EveryN", 3)}, 6)
    x = relu.data(6)
    session.run(popart.PyStepIO({relu.x: x}, arrays))
    np.testing.assert_allclose(arrays[relu.y], relu.computed(x[[2, 5]]), **ONLY)


def test_callbacks(relu, session_of):
    session, _ = session_of(relu.proto, {relu.y: Returns("All")}, 3)
    x, found = relu.data(3), np.empty((3, 2, 4), np.float32)
    given, taken = iter(x), iter(found)
    session.run(
        popart.PyStepIOCallback(
            lambda name, is_prefetch: next(given),
            lambda name: None,
            lambda name: next(taken),
            lambda name: None,
        )
    )
    np.testing.assert_allclose(found, relu.computed(x), **ONLY)


def test_long_integers_and_empty_inputs(session_of):
    builder = popart.Builder()
    i = builder.addInputTensor("INT64", [3])
    e = builder.addInputTensor("FLOAT", [0, 2])
    u = builder.addInputTensor("UINT32", [2])
    total = builder.aiOnnx.add([i, i])
    joined = builder.aiOnnx.concat([e, e], axis=1)
    same = builder.aiOnnx.identity([u])
    session, arrays = session_of(builder.getModelProto(), [total, joined, same], 2)
    assert {name: array.dtype.name for name, array in arrays.items()} == {
        total: "int32",
        joined: "float32",
        same: "uint32",
    }
    inputs = {
        i: np.arange(6).reshape(2, 3),
        e: np.empty((2, 0, 2), np.float32),
        u: np.array([[1, 2**32 - 1], [3, 4]], np.uint32),
    }
    session.run(popart.PyStepIO(inputs, arrays))
    np.testing.assert_array_equal(arrays[total], 2 * inputs[i])
    np.testing.assert_array_equal(arrays[same], inputs[u])
    assert arrays[joined].shape == (2, 0, 4)


def test_shapes_that_the_model_leaves_open(ipu_model):
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 3])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
    opset = onnx.helper.make_opsetid("", 10)
    proto = onnx.helper.make_model(graph, opset_imports=[opset]).SerializeToString()
    flow = popart.DataFlow(1, ["y"])
    with pytest.raises(popart.popart_exception, match=r"input x has the shape \[None, 3\]"):
        popart.InferenceSession(proto, flow, ipu_model())
    infos = popart.InputShapeInfo()
    infos.add("x", popart.TensorInfo("FLOAT", [2, 3]))
    session = popart.InferenceSession(proto, flow, ipu_model(), inputShapeInfo=infos)
    # Before it is prepared, too.
    arrays = session.initAnchorArrays()
    session.prepareDevice()
    session.run(popart.PyStepIO({"x": np.ones((2, 3), np.float32)}, arrays))
    np.testing.assert_array_equal(arrays["y"], np.full((2, 3), -1))
    assert session.getInfo("x").shape() == [2, 3]


def test_a_half(session_of):
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT16", [4])
    y = builder.aiOnnx.mul([x, x])
    session, arrays = session_of(builder.getModelProto(), [y])
    assert session.getInfo(y).data_type_lcase() == "float16"
    given = np.float16([0.1, 2, 300, -1])
    session.run(popart.PyStepIO({x: given}, arrays))
    # A half has no infinity on an IPU.
    exact = np.minimum(np.float32(given) ** 2, 65504)
    np.testing.assert_array_equal(arrays[y], exact.astype(np.float16))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"flow": popart.DataFlow(1)},
            "User must specify an anchor tensor when doing inference.",
        ),
        (
            {"flow": popart.DataFlow(1, ["nothing"])},
            "Anchor tensor 'nothing' not found in the model. It has: ",
        ),
        ({"options": {"enableGradientAccumulation": True}}, "Gradient Accumulation"),
        (
            {"options": {"enableReplicatedGraphs": True, "replicatedGraphCount": 8}},
            "8 replicas (SessionOptions.replicatedGraphCount) of 1 IPUs each need a device of 8",
        ),
        (
            {"options": {"enablePipelining": True}},
            "Pipelining requires more than 1 IPU, and a virtualGraphMode other than",
        ),
        (
            {"options": {"numIOTiles": 1472}},
            "SessionOptions.numIOTiles must be less than the 1472 tiles of an IPU",
        ),
        ({"proto": b"x"}, "The serialised ONNX model of 1 bytes cannot be loaded: "),
        ({"proto": "no/such/file.onnx"}, "The ONNX file 'no/such/file.onnx' cannot be loaded"),
    ],
)
def test_sessions_that_cannot_be(relu, ipu_model, change, text):
    options = popart.SessionOptions()
    for name, value in change.get("options", {}).items():
        setattr(options, name, value)
    flow = change.get("flow", popart.DataFlow(1, [relu.y]))
    with pytest.raises(popart.popart_exception) as error:
        popart.InferenceSession(
            change.get("proto", relu.proto), flow, ipu_model(), userOptions=options
        )
    assert text in str(error.value)


def test_choices_that_nothing_acts_on_are_named(relu, ipu_model):
    flow, device, options = popart.DataFlow(1, [relu.y]), ipu_model(), popart.SessionOptions()
    chosen = popart.Patterns(["InPlace"])
    with pytest.warns(UserWarning, match=r"no meaning here: .*PreUniRepl \(off\)") as warned:
        popart.InferenceSession(relu.proto, flow, device, patterns=chosen)
    assert [one.filename for one in warned] == [__file__]
    options.convolutionOptions["use128BitConvUnitLoad"] = "true"
    with pytest.warns(UserWarning, match="sets use128BitConvUnitLoad, which the cost model"):
        popart.InferenceSession(relu.proto, flow, device, userOptions=options)
    # These are read, and the choice is the one without a choice.
    options.convolutionOptions = {"availableMemoryProportion": "0.3", "partialsType": "half"}
    default = popart.Patterns(popart.PatternsLevel.Default)
    popart.InferenceSession(relu.proto, flow, device, patterns=default, userOptions=options)


def test_what_comes_too_early(relu, ipu_model):
    session = popart.InferenceSession(relu.proto, popart.DataFlow(1, [relu.y]), ipu_model())
    arrays = session.initAnchorArrays()
    step_io = popart.PyStepIO({relu.x: relu.data(1)}, arrays)
    calls = {
        "prepareDevice before run": lambda: session.run(step_io),
        "prepareDevice before weightsFromHost": session.weightsFromHost,
        "before a report can be fetched": session.getSummaryReport,
    }
    for text, call in calls.items():
        with pytest.raises(popart.popart_exception, match=text):
            call()
    session.prepareDevice(loadEngine=False)
    with pytest.raises(popart.popart_exception, match="loadEngineAndConnectStreams"):
        session.run(step_io)
    session.loadEngineAndConnectStreams()
    session.run(step_io)
    np.testing.assert_allclose(arrays[relu.y], relu.computed(relu.data(1))[0], **ONLY)


def test_arrays_that_do_not_fit_change_nothing(relu, session_of):
    session, arrays = session_of(relu.proto, {relu.y: Returns("All")}, 2)
    arrays[relu.y][:] = 7
    with pytest.raises(popart.popart_exception) as error:
        session.run(popart.PyStepIO({relu.x: relu.data(3)}, arrays))
    assert "Unexpected number of input elements for Tensor input. Expected 12, but received 18" in (
        str(error.value)
    )
    short = {relu.y: arrays[relu.y][:1]}
    with pytest.raises(popart.popart_exception, match="number of output elements"):
        session.run(popart.PyStepIO({relu.x: relu.data(2)}, short))
    assert (arrays[relu.y] == 7).all()


def test_a_node_that_cannot_be_computed_is_named(ipu_model):
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    node = onnx.helper.make_node("MatMul", ["x", "x"], ["y"], name="square")
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    opset = onnx.helper.make_opsetid("", 10)
    proto = onnx.helper.make_model(graph, opset_imports=[opset]).SerializeToString()
    session = popart.InferenceSession(proto, popart.DataFlow(1, ["y"]), ipu_model())
    with pytest.raises(popart.popart_exception, match="In MatMul 'square': "):
        session.prepareDevice()


def test_weights_are_constant_unless_said_otherwise(relu, session_of):
    session, _ = session_of(relu.proto, [relu.y])
    other = popart.PyWeightsIO({relu.w: relu.weights})
    for call in (lambda: session.writeWeights(other), lambda: session.resetHostWeights(relu.proto)):
        with pytest.raises(popart.popart_exception, match="constantWeights is set"):
            call()


@pytest.mark.parametrize("is_constant", [True, False])
def test_a_number_that_never_changes_decides_how_often_a_loop_runs(session_of, is_constant):
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    times = builder.addInitializedInputTensor(np.float32(3))
    body = builder.createSubgraphBuilder()
    body.addInputTensor("INT64", [])
    on = body.addInputTensor("BOOL", [])
    total = body.addInputTensor("FLOAT", [2])
    body.addOutputTensor(on)
    body.addOutputTensor(body.aiOnnx.add([total, total]))
    most = builder.aiOnnx.cast([times], "INT64")
    [y] = builder.aiOnnx.loop([most, builder.aiOnnx.constant(np.array(True)), x], 1, body)
    proto = builder.getModelProto()
    session, arrays = session_of(proto, [y], constantWeights=is_constant)
    session.run(popart.PyStepIO({x: np.float32([1, -2])}, arrays))
    np.testing.assert_array_equal(arrays[y], [8, -16])


def test_other_weights(relu, session_of, tmp_path):
    session, arrays = session_of(relu.proto, [relu.y], constantWeights=False)
    x = relu.data()
    other = relu.weights[::-1].copy()

    def run():
        session.run(popart.PyStepIO({relu.x: x}, arrays))
        return arrays[relu.y].copy()

    session.writeWeights(popart.PyWeightsIO({relu.w: other}))
    np.testing.assert_allclose(run(), relu.computed(x), **ONLY)  # those of the device
    session.weightsFromHost()
    np.testing.assert_allclose(run(), np.maximum(x @ other, 0), **ONLY)
    for wrong, text in (
        ({"no": other}, "There is no weight 'no'"),
        ({relu.w: other[:2]}, r"is float32 of the shape \[3, 4\]. Received: float32 of the shape"),
        ({relu.w: other.astype(np.float16)}, "Received: float16"),
    ):
        with pytest.raises(popart.popart_exception, match=text):
            session.writeWeights(popart.PyWeightsIO(wrong))
    path = tmp_path / "model.onnx"
    session.modelToHost(str(path))
    session.resetHostWeights(relu.proto)
    session.weightsFromHost()
    np.testing.assert_allclose(run(), relu.computed(x), **ONLY)
    session.resetHostWeights(str(path))
    session.weightsFromHost()
    np.testing.assert_allclose(run(), np.maximum(x @ other, 0), **ONLY)


def test_weights_of_another_model(relu, session_of):
    builder = popart.Builder()
    builder.addInitializedInputTensor(np.zeros(3, np.float32), "another")
    x = builder.addInputTensor("FLOAT", [3])
    builder.aiOnnx.add([x, "another"])
    session, _ = session_of(relu.proto, [relu.y], constantWeights=False)
    with pytest.raises(popart.popart_exception, match="no tensor 'another'"):
        session.resetHostWeights(builder.getModelProto())
    session.resetHostWeights(builder.getModelProto(), True)


def test_random_numbers_begin_with_the_seed(session_of):
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 1000])
    drawn = builder.aiOnnx.randomnormal([1000], 1, mean=2.0, scale=3.0)
    y = builder.aiOnnx.add([x, drawn])
    options = {"enableLoadAndOffloadRNGState": True}
    session, arrays = session_of(
        builder.getModelProto(), {drawn: Returns("All"), y: Returns("Final")}, 2, **options
    )
    step_io = popart.PyStepIO({x: np.zeros((2, 2, 1000), np.float32)}, arrays)

    def draw():
        session.run(step_io)
        np.testing.assert_array_equal(arrays[y], np.stack([arrays[drawn][1]] * 2))
        return arrays[drawn].copy()

    session.setRandomSeed(7)
    first, state, second = draw(), session.getRNGState(), draw()
    assert abs(first.mean() - 2) < 0.3
    assert abs(first.std() - 3) < 0.3
    assert len({each.tobytes() for each in (*first, *second)}) == 4
    session.setRandomSeed(7)
    np.testing.assert_array_equal(draw(), first)
    session.setRNGState(state)
    np.testing.assert_array_equal(draw(), second)
    session.setRandomSeed(8)
    assert not np.array_equal(draw(), first)
    with pytest.raises(popart.popart_exception, match=r"has 2 numbers\. Received: 1"):
        session.setRNGState([1])


def test_the_state_of_random_numbers_has_to_be_asked_for(relu, session_of):
    session, _ = session_of(relu.proto, [relu.y])
    for call in (session.getRNGState, lambda: session.setRNGState([0, 0])):
        with pytest.raises(
            popart.popart_exception, match="enableLoadAndOffloadRNGState is not set"
        ):
            call()


def test_synthetic_data(relu, session_of):
    session, arrays = session_of(
        relu.proto, [relu.y], syntheticDataMode=popart.SyntheticDataMode.Zeros
    )
    arrays[relu.y][:] = 7
    session.run(popart.PyStepIO({}, arrays))
    assert (arrays[relu.y] == 7).all()


def test_reports(relu, session_of):
    session, arrays = session_of(relu.proto, [relu.y], 3, instrumentWithHardwareCycleCounter=True)
    with pytest.raises(popart.popart_exception, match="Must call run before getCycleCount"):
        session.getCycleCount()
    session.run(popart.PyStepIO({relu.x: relu.data(3)}, arrays))
    report = session.getReport()
    assert str(report) == session.getSummaryReport()
    assert session.getCycleCount() == 3 * report.model.cycles_per_step
    assert json.loads(session.getGraphReport()) == json.loads(report.to_json())
    assert json.loads(session.getExecutionReport())
    layers = {row["layer"] for row in report.to_dataframe().to_dict("records")}
    assert {"MatMul.0", "Relu.0"} & layers
    assert any(each["kind"] == "MatMul" for each in json.loads(session.getSerializedGraph()))
    for get in (session.getGraphReport, session.getExecutionReport):
        assert get(True) == as_cbor(json.loads(get()))
    with pytest.raises(popart.popart_exception, match="no cycle counter 'other'"):
        session.getCycleCount("other")


def test_tiles_that_are_set_apart(relu, session_of):
    session, _ = session_of(relu.proto, [relu.y], numIOTiles=32)
    assert session.getReport().model.target.num_tiles == 1440


def test_a_report_of_padded_pools(session_of):
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 2, 5, 5])
    pools = [
        builder.aiOnnx.maxpool([x], 1, [3, 3], pads=[1, 1, 0, 2], strides=[2, 2])[0],
        builder.aiOnnx.averagepool([x], [3, 3], pads=[1, 1, 0, 2], strides=[2, 2]),
    ]
    session, _ = session_of(builder.getModelProto(), pools)
    assert {"MaxPool.0", "AveragePool.0"} <= set(session.getReport().to_dataframe()["layer"])


def test_cycles_have_to_be_asked_for(relu, session_of):
    session, _ = session_of(relu.proto, [relu.y])
    with pytest.raises(popart.popart_exception, match="instrumentWithHardwareCycleCounter"):
        session.getCycleCount()


def test_several_sessions_on_devices_of_their_own(relu, session_of):
    sessions = [session_of(relu.proto, [relu.y], 2) for _ in range(3)]
    x = [relu.data(2, seed=seed) for seed in range(3)]

    def run(position):
        session, arrays = sessions[position]
        for _ in range(20):
            session.run(popart.PyStepIO({relu.x: x[position]}, arrays))

    threads = [threading.Thread(target=run, args=(position,)) for position in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for (_, arrays), given in zip(sessions, x, strict=True):
        np.testing.assert_allclose(arrays[relu.y], relu.computed(given), **ONLY)


def test_pipelines_need_nodes_that_say_where_they_are():
    builder = popart.Builder()
    y = builder.addInputTensor("FLOAT", [2])
    for stage in range(2):
        with builder.virtualGraph(stage), builder.pipelineStage(stage):
            y = builder.aiOnnx.neg([y])
    options = popart.SessionOptions()
    options.enablePipelining = True
    options.virtualGraphMode = popart.VirtualGraphMode.ExecutionPhases
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    with pytest.raises(popart.popart_exception, match=r"other than VirtualGraphMode\.Off: Virtual"):
        popart.InferenceSession(
            builder.getModelProto(), popart.DataFlow(4, [y]), device, userOptions=options
        )


def test_a_device_that_is_detached(relu, ipu_model):
    device = ipu_model()
    session = popart.InferenceSession(relu.proto, popart.DataFlow(1, [relu.y]), device)
    session.prepareDevice()
    arrays = session.initAnchorArrays()
    device.detach()
    step_io = popart.PyStepIO({relu.x: relu.data()}, arrays)
    with pytest.raises(popart.popart_exception):
        session.run(step_io)
    device.attach()
    session.prepareDevice()
    session.run(step_io)
    np.testing.assert_allclose(arrays[relu.y], relu.computed(relu.data()), **ONLY)


def test_a_program_that_does_not_fit(ipu_model):
    builder = popart.Builder()
    y = builder.addInputTensor("FLOAT", [4, 1024])
    for _ in range(2):
        y = builder.aiOnnx.matmul(
            [y, builder.addInitializedInputTensor(np.zeros((1024, 1024), np.float32))]
        )
    device = ipu_model(tilesPerIPU=12)
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device)
    with pytest.raises(popart.OutOfMemoryException) as error:
        session.prepareDevice()
    assert isinstance(error.value, popart.popart_exception)
    summary = error.value.getSummaryReport()
    assert "Out of memory on tile" in summary
    assert "Changes that need less memory, by the model:" in summary
    assert "suggest_pipeline" not in summary
    assert "`builder.virtualGraph(k)`" in summary
    assert error.value.getProfilePath() == ""
    found = popart.OutOfMemoryError()
    popart.session._InferenceSessionCore.prepareDevice(session, True, found)
    assert not found.isSuccessful()


def test_final_of_an_activation_takes_no_memory_for_each_batch(run_forked):
    """Of 256 batches with results of 4 MB each, one is kept."""
    code = """
import resource, sys
import numpy as np
from ipu_keras import popart
batches = int(sys.argv[1])
builder = popart.Builder()
x = builder.addInputTensor("FLOAT", [1024])
column = builder.reshape_const(builder.aiOnnx, [x], [1024, 1])
big = builder.aiOnnx.add([column, x])
y = builder.aiOnnx.relu([big])
flow = popart.DataFlow(batches, {y: popart.AnchorReturnType("Final")})
device = popart.DeviceManager().createIpuModelDevice({})
session = popart.InferenceSession(builder.getModelProto(), flow, device)
session.prepareDevice()
arrays = session.initAnchorArrays()
session.run(popart.PyStepIO({x: np.ones((batches, 1024), np.float32)}, arrays))
assert arrays[y].sum() == 2 * 2**20
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    few, many = (int(run_forked(code, batches).stdout) for batches in (16, 256))
    assert many - few < 200 * 1024  # KiB; all results are 1 GiB


def test_a_file_with_a_compiled_program(relu, tmp_path):
    manager = popart.DeviceManager()
    flow = popart.DataFlow(1, [relu.y])

    def session(device, flow=flow):
        return popart.InferenceSession(relu.proto, flow, device)

    path = tmp_path / "folder" / "program.popef"
    session(manager.createOfflineIPUDevice({"ipuVersion": "ipu2"})).compileAndExport(str(path))
    device = manager.acquireAvailableDevice(1)
    loaded = session(device)
    loaded.loadExecutable(str(path))
    loaded.prepareDevice()
    assert "cycles per step" in loaded.getSummaryReport()
    other = session(device, popart.DataFlow(2, [relu.y]))
    with pytest.raises(popart.popart_exception, match="compiled for another session"):
        other.loadExecutable(str(path))
    path.write_text("nothing")
    with pytest.raises(popart.popart_exception, match="cannot be loaded as an executable"):
        loaded.loadExecutable(str(path))
    with pytest.raises(popart.popart_exception, match="cannot be loaded as an executable"):
        loaded.loadExecutable(str(tmp_path / "none"))


def test_devices_that_cannot_compile_offline(relu, session_of, tmp_path):
    session, _ = session_of(relu.proto, [relu.y])
    with pytest.raises(popart.popart_exception, match="cannot compile offline"):
        session.compileAndExport(str(tmp_path / "program"))


def test_caching(relu, session_of, tmp_path):
    options = {"enableEngineCaching": True, "cachePath": str(tmp_path)}
    session_of(relu.proto, [relu.y], **options)
    assert list(tmp_path.iterdir())


class Counted(dict):
    """Counts how often it is filled."""

    number = 0

    def update(self, *given):
        self.number += 1
        super().update(*given)


def test_a_step_is_traced_once_and_keeps_a_kernel_in_one_order(ipu_model):
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 2, 4, 4])
    w = builder.addInitializedInputTensor(np.ones((3, 2, 2, 2), np.float32))
    y = builder.aiOnnx.conv([x, w])
    options = popart.SessionOptions()
    options.constantWeights = False
    session = popart.InferenceSession(
        builder.getModelProto(), popart.DataFlow(1, [y]), ipu_model(), userOptions=options
    )
    infos = session._infos = Counted()
    session.prepareDevice()
    assert session.getInfo(y).shape() == [1, 3, 3, 3]
    assert infos.number == 1
    assert len(session._weights._variables) == 1


def test_several_convolutions_have_partials_of_their_own(session_of):
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 2, 4, 4])
    w = builder.addInitializedInputTensor(np.ones((2, 2, 1, 1), np.float32))
    ys = builder.aiGraphcore.multiconv(
        [[x, w], [x, w]],
        partialsTypes=["half", "FLOAT"],
        availableMemoryProportions=[0.5, 0.25],
    )
    session, arrays = session_of(builder.getModelProto(), ys)
    session.run(popart.PyStepIO({x: np.ones((1, 2, 4, 4), np.float32)}, arrays))
    assert [arrays[y].max() for y in ys] == [2, 2]
    ops = graph_of_program(session._executable.program).ops
    (together,) = (op for op in ops if op.name.endswith("MultiConv"))
    assert (together.partials_dtype, together.memory_proportion) == ("float16", 0.5)


def test_partial_sums_of_nodes(training_of):
    """What a node says is more than what options say, and holds for its gradients too."""
    rng = np.random.default_rng(0)
    given, weights = rng.normal(size=(2, 40, 40)).astype(np.float16)

    def found(configured, own=None):
        builder = popart.Builder()
        x = builder.addInputTensor("FLOAT16", [40, 40])
        w = builder.addInitializedInputTensor(weights)
        y = builder.aiOnnx.matmul([x, w])
        if own is not None:
            builder.setPartialsType(y, own)
        loss = builder.aiGraphcore.l1loss([y], 1.0, popart.ReductionType.Sum)
        gradient = popart.reservedGradientPrefix() + w
        session, arrays = training_of(
            *(builder.getModelProto(), loss, popart.ConstSGD(0.5), [y, gradient]),
            partialsTypeMatMuls=configured,
        )
        session.run(popart.PyStepIO({x: given}, arrays))
        return arrays[y], arrays[gradient]

    product_of_floats = (np.float32(given) @ np.float32(weights)).astype(np.float16)
    gradient = np.sign(product(given, weights))
    for configured, own in (("half", None), ("", "HALF"), ("float", "HALF")):
        results = found(configured, own)
        np.testing.assert_array_equal(results[0], product(given, weights))
        np.testing.assert_array_equal(results[1], product(given.T, gradient))
    for configured, own in (("", None), ("float", None), ("half", "FLOAT")):
        results = found(configured, own)
        np.testing.assert_allclose(results[0], product_of_floats, rtol=2e-3, atol=1e-4)
        assert (results[0] != product(given, weights)).any()


@pytest.mark.parametrize("name", ["error > 0.5", "a\\b", "->", "a\nb", "\x1b[31m"])
def test_names_that_no_scope_has(training_of, name):
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(np.ones(2, np.float32), name)
    with builder.nameScope(name):
        product = builder.aiOnnx.mul([w, w], name)
    loss = builder.aiGraphcore.identityloss([product], debugContext=name)
    builder.setGraphName(name)
    session, arrays = training_of(builder.getModelProto(), loss, popart.ConstSGD(0.5), [loss])
    session.run(popart.PyStepIO({}, arrays))
    assert arrays[loss] == 1
    assert session.getSummaryReport().replace("\n", "").isprintable()


def test_a_session_in_a_folder_that_is_gone(relu, session_of, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    session, arrays = session_of(relu.proto, [relu.y])
    session.run(popart.PyStepIO({relu.x: relu.data()}, arrays))
    np.testing.assert_allclose(arrays[relu.y], relu.computed(relu.data()), **ONLY)
    with pytest.raises(popart.popart_exception, match="as the working directory was removed"):
        popart.Builder("model.onnx")
    with pytest.raises(popart.popart_exception, match=r"'m\.onnx' cannot be written"):
        popart.Builder(relu.proto).saveModelProto("m.onnx")
