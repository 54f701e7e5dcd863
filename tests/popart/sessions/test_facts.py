"""What sessions of PopART do that its document leaves out, as scripts rely on it."""

import subprocess
import sys

import numpy as np
import onnx
import pytest

from ipu_keras import popart
from ipu_keras.popart import AnchorReturnType as Returns

ONLY = {"rtol": 1e-6, "atol": 1e-6}


def on_replicas(number):
    return {"enableReplicatedGraphs": True, "replicatedGraphCount": number}


def test_callbacks_are_called_once_for_each_micro_batch_and_replica(relu, session_of):
    anchors = {relu.y: Returns("All"), relu.product: Returns("Final"), relu.x: Returns("EveryN", 2)}
    session, arrays = session_of(relu.proto, anchors, 4, 2, **on_replicas(2))
    given, calls = relu.data(4, 2), []
    flat = iter(given.reshape(8, 2, 3))
    written = {name: [] for name in anchors}

    def output(name):
        calls.append(("out", name))
        written[name].append(np.empty(arrays[name].shape[-2:], np.float32))
        return written[name][-1]

    session.run(
        popart.PyStepIOCallback(
            lambda name, is_prefetch: next(flat),
            lambda name: calls.append(("in done", name)),
            output,
            lambda name: calls.append(("out done", name)),
        )
    )
    numbers = {relu.y: 8, relu.product: 2, relu.x: 4}
    assert calls.count(("in done", relu.x)) == 8
    for name, number in numbers.items():
        assert calls.count(("out", name)) == calls.count(("out done", name)) == number
    # Batches, and within these replicas.
    found = {name: np.stack(arrays) for name, arrays in written.items()}
    np.testing.assert_allclose(found[relu.y], relu.computed(given).reshape(8, 2, 4), **ONLY)
    np.testing.assert_allclose(found[relu.product], relu.products(given[-1]), **ONLY)
    np.testing.assert_array_equal(found[relu.x], given[[1, 3]].reshape(4, 2, 3))


@pytest.mark.parametrize("shape", [(3, 2, 2, 3), (36,), (4, 9), (1, 36, 1)])
def test_arrays_of_any_shape_are_read_and_written_in_order(relu, session_of, shape):
    session, _ = session_of(relu.proto, [relu.y], 3, 2, **on_replicas(2))
    x, y = relu.data(3, 2), np.empty(48, np.float32)
    session.run(popart.PyStepIO({relu.x: x.reshape(shape)}, {relu.y: y}))
    np.testing.assert_allclose(y, relu.computed(x).ravel(), **ONLY)


def test_without_checks_steps_read_on_where_the_one_before_has_stopped(relu, session_of):
    session, arrays = session_of(relu.proto, [relu.y], 2)
    x = relu.data(3)
    step_io = popart.PyStepIO({relu.x: x}, arrays)
    with pytest.raises(popart.popart_exception, match="Expected 12, but received 18"):
        session.run(step_io)
    step_io.enableRuntimeAsserts(False)
    for batches in ([0, 1], [2, 0], [1, 2], [0, 1]):
        session.run(step_io)
        np.testing.assert_allclose(arrays[relu.y], relu.computed(x[batches]), **ONLY)


def test_anchors_have_the_types_of_the_device(session_of):
    given = {
        "FLOAT": np.float32([1.5, 2]),
        "FLOAT16": np.float16([1.5, 2]),
        "INT64": np.int64([1, -2]),
        "INT32": np.int32([1, -2]),
        "UINT32": np.uint32([1, 2**32 - 1]),
        "INT8": np.int8([1, -2]),
        "UINT8": np.uint8([1, 255]),
        "BOOL": np.array([True, False]),
    }
    builder = popart.Builder()
    inputs = {name: builder.addInputTensor(name, [2]) for name in given}
    outputs = {name: builder.aiOnnx.identity([id_]) for name, id_ in inputs.items()}
    session, arrays = session_of(builder.getModelProto(), list(outputs.values()))
    session.run(popart.PyStepIO({inputs[n]: array for n, array in given.items()}, arrays))
    for name, array in given.items():
        narrow = np.int32 if name == "INT64" else array.dtype
        assert arrays[outputs[name]].dtype == narrow
        np.testing.assert_array_equal(arrays[outputs[name]], array)


def test_weights_are_there_before_anybody_gives_them_to_the_device(relu, session_of):
    session, arrays = session_of(relu.proto, [relu.y], constantWeights=False)
    session.run(popart.PyStepIO({relu.x: relu.data()}, arrays))
    np.testing.assert_allclose(arrays[relu.y], relu.computed(relu.data()), **ONLY)


def test_a_session_keeps_what_it_was_made_of(relu, ipu_model):
    options = popart.SessionOptions()
    anchors = {relu.y: Returns("All")}
    flow = popart.DataFlow(2, anchors)
    session = popart.InferenceSession(relu.proto, flow, ipu_model(), userOptions=options)
    options.enableFloatingPointChecks = options.enableReplicatedGraphs = True
    options.engineOptions["nothing"] = "like this"
    anchors[relu.product] = Returns("Final")
    session.prepareDevice()
    arrays = session.initAnchorArrays()
    assert list(arrays) == [relu.y]
    session.run(popart.PyStepIO({relu.x: relu.data(2) * np.inf}, arrays))


def test_a_builder_may_go_on_after_its_model_was_taken(session_of):
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    values = np.ones(2, np.float32)
    y = builder.aiOnnx.add([x, builder.addInitializedInputTensor(values)])
    before = builder.getModelProto()
    values[:] = 7
    z = builder.aiOnnx.neg([y])
    for proto, anchor, expected in ((before, y, [1, 1]), (builder.getModelProto(), z, [-1, -1])):
        session, arrays = session_of(proto, [anchor])
        session.run(popart.PyStepIO({x: np.zeros(2, np.float32)}, arrays))
        np.testing.assert_array_equal(arrays[anchor], expected)


def test_ids_differ_in_all_graphs_that_see_each_other():
    builder = popart.Builder()
    with builder.nameScope("layer"):
        x = builder.addInputTensor("FLOAT", [2])
        w = builder.addInitializedInputTensor(np.ones(2, np.float32))
        sums = [builder.aiOnnx.add([x, w], debugContext="mine") for _ in range(2)]
        inner = builder.createSubgraphBuilder()
        within = inner.aiOnnx.add([x, w])
    assert (x, w) == ("layer/input", "layer/init_input")
    assert sums == ["layer/Add:0", "layer/Add:0/1"]
    assert within not in sums
    # A name that is given becomes the node's, and not that of its result.
    nodes = onnx.load_from_string(builder.getModelProto()).graph.node
    assert [node.name for node in nodes] == ["layer/mine", "layer/mine"]


def test_a_model_that_was_written_runs_as_the_session_that_wrote_it(relu, session_of, tmp_path):
    session, arrays = session_of(relu.proto, [relu.y], constantWeights=False)
    session.writeWeights(popart.PyWeightsIO({relu.w: -relu.weights}))
    session.weightsFromHost()
    step_io = popart.PyStepIO({relu.x: relu.data()}, arrays)
    session.run(step_io)
    session.modelToHost(str(tmp_path / "model.onnx"))
    again, found = session_of(str(tmp_path / "model.onnx"), [relu.y])
    again.run(popart.PyStepIO({relu.x: relu.data()}, found))
    np.testing.assert_array_equal(found[relu.y], arrays[relu.y])
    np.testing.assert_allclose(found[relu.y], np.maximum(-relu.products(relu.data()), 0), **ONLY)


def test_made_up_data_is_for_replicas_too(relu, session_of):
    session, arrays = session_of(
        relu.proto,
        [relu.y],
        2,
        2,
        syntheticDataMode=popart.SyntheticDataMode.RandomNormal,
        **on_replicas(2),
    )
    arrays[relu.y][...] = 7
    session.run(popart.PyStepIO({}, {}))
    assert (arrays[relu.y] == 7).all()


def test_onnx_may_be_imported_first():
    code = "import onnx, ipu_keras, popart; popart.Builder().aiOnnx; print(popart.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "ipu_keras.popart\n"
