"""`popart.Builder`: opsets, subgraphs, and models that are computed."""

import numpy as np
import onnx
import pytest
import tensorflow as tf

import ipu_keras.popart as popart
from ipu_keras.popart.builder import (
    AiGraphcore,
    AiGraphcoreOpset1,
    AiOnnx6,
    AiOnnx9,
    AiOnnx10,
    AiOnnxMl,
    Builder,
)
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.files.loading import load
from ipu_keras.popart.graphs.methods import onnx_methods
from ipu_keras.popart.operations.evaluation import outputs_of

VERSIONS = range(6, 12)


def test_it_is_what_popart_has():
    assert popart.Builder is Builder is popart.builder.Builder
    assert popart.TensorInfo is popart.tensorinfo.TensorInfo


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_opset_that_is_used_stays(version):
    builder = Builder()
    opset = getattr(builder, f"aiOnnxOpset{version}")
    assert opset.version == builder.aiOnnx.version == version
    assert type(builder.aiOnnx) is type(opset)
    other = 9 if version != 9 else 10
    with pytest.raises(
        RuntimeError,
        match=f"Invalid opset 'aiOnnxOpset{other}' selected. Opset for domain ai.onnx already "
        f"defined as {version}",
    ):
        getattr(builder, f"aiOnnxOpset{other}")


def test_ten_is_what_nobody_chooses():
    builder = Builder()
    assert isinstance(builder.aiOnnx, AiOnnx10)
    assert isinstance(builder.aiOnnxMl, AiOnnxMl)
    assert isinstance(builder.aiGraphcore, AiGraphcore)
    assert isinstance(builder.aiGraphcoreOpset1, AiGraphcoreOpset1)
    assert isinstance(builder.aiOnnxMlOpset1, AiOnnxMl)
    with pytest.raises(RuntimeError, match="'aiOnnxOpset9' selected"):
        _ = builder.aiOnnxOpset9
    assert Builder(opsets={"ai.onnx": 7, "ai.graphcore": 1}).aiOnnx.version == 7


@pytest.mark.parametrize(
    ("opsets", "text"),
    [
        ({"ai.onnx": 5}, r"Unsupported or unrecognized ai\.onnx version: 5"),
        ({"ai.onnx": 12}, r"Unsupported or unrecognized ai\.onnx version: 12"),
        ({"ai.graphcore": 2}, r"Unsupported or unrecognized ai\.graphcore version: 2"),
        ({"ai.onnx.ml": 2}, r"Unsupported or unrecognized ai\.onnx\.ml version: 2"),
        ({"ai.onyx": 9}, r"Unsupported or unrecognized domain: ai\.onyx"),
    ],
)
def test_there_is_no_such_opset(opsets, text):
    with pytest.raises(ValueError, match=text):
        Builder(opsets=opsets)
    for domain, version in opsets.items():
        classes = {"ai.onnx": AiOnnx6, "ai.graphcore": AiGraphcore, "ai.onnx.ml": AiOnnxMl}
        if domain in classes:
            with pytest.raises(ValueError, match="Unsupported or unrecognized"):
                classes[domain](Builder(), version)


def test_opsets_have_their_own_methods_and_those_before():
    for version in VERSIONS:
        opset = getattr(Builder(), f"aiOnnxOpset{version}")
        assert {*onnx_methods(version)} <= set(dir(opset))
        assert opset.conv.__doc__.startswith("Adds `Conv` of ai.onnx")
    assert not hasattr(Builder().aiOnnxOpset8, "where")
    # The newer form of an operation, and not that of the class before.
    assert "k" not in Builder().aiOnnxOpset10.topk.__signature__.parameters
    assert "k" in AiOnnx9(Builder(), 9).topk.__signature__.parameters


def test_methods_of_the_core_can_be_called():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2])
    assert builder.getTensorShape(x) == [2]
    assert "getTensorShape" in dir(builder)
    with pytest.raises(AttributeError, match="noSuchMethod"):
        builder.noSuchMethod()
    again = Builder(builderCore=builder._impl)
    assert again.getInputTensorIds() == [x]


def test_subgraphs_have_the_opset_of_what_is_around():
    builder = Builder()
    inner = builder.createSubgraphBuilder()
    assert inner.aiOnnxOpset11.version == 11
    assert builder.aiOnnx.version == inner.createSubgraphBuilder().aiOnnx.version == 11
    with pytest.raises(RuntimeError, match="already defined as 11"):
        _ = builder.aiOnnxOpset10


def computed(builder: Builder, *values: np.ndarray) -> list[np.ndarray]:
    """What the outputs of a model are for values of its inputs."""
    model = load(builder.getModelProto()).model
    given = zip(builder.getInputTensorIds(), values, strict=True)
    results = outputs_of(model, {id_: tf.constant(value) for id_, value in given})
    return [np.asarray(each) for each in results]


def test_a_model_is_computed():
    builder = Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 3]))
    weights = np.arange(12, dtype=np.float32).reshape(4, 3)
    w = builder.addInitializedInputTensor(weights.T)
    bias = builder.addInitializedInputTensor(np.full(4, -20, np.float32))
    product = builder.aiOnnx.matmul([x, w])
    result = builder.aiOnnx.relu([builder.aiOnnx.add([product, bias])])
    builder.addOutputTensor(result)
    onnx.checker.check_model(builder.getModelProto())
    values = np.array([[1, 2, 3], [0, 1, 0]], np.float32)
    expected = np.maximum(values @ weights.T - 20, 0)
    np.testing.assert_array_equal(computed(builder, values)[0], expected)


def test_names_are_popart_s():
    builder = Builder()
    opset = builder.aiOnnx
    ids = []
    with builder.nameScope("layer1"):
        ids.append(builder.addInputTensor("FLOAT", [2, 2]))
        ids.append(builder.addInitializedInputTensor(np.zeros((2, 2), np.float32)))
        ids.append(opset.matmul(ids[:2], debugContext="product"))
    ids.append(opset.add([ids[2], ids[2]]))
    ids.append(opset.add([ids[2], ids[2]], popart.DebugContext("sum")))
    ids.append(builder.addInputTensor("FLOAT", [2]))
    ids.append(builder.addInputTensor("FLOAT", [2]))
    ids.append(builder.aiGraphcore.l1loss([ids[2]], 1.0))
    assert ids == [
        *("layer1/input", "layer1/init_input", "layer1/MatMul:0"),
        *("Add:0", "Add:0/1", "input", "input/1", "L1:0"),
    ]
    assert [node.name for node in builder.draft.nodes] == ["layer1/product", "", "sum", ""]


def branch_of(builder: Builder, *outputs: str) -> Builder:
    branch = builder.createSubgraphBuilder()
    for id_ in outputs:
        branch.addOutputTensor(branch.aiOnnx.identity([id_]))
    return branch


def test_graphs_that_do_not_fit():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2])
    condition = builder.addInputTensor("BOOL", [])
    one, two = branch_of(builder, x), branch_of(builder, x, x)
    opset = builder.aiOnnx
    with pytest.raises(
        popart_exception, match=r"`then_branch` of If has 1 output\(s\).* Received: 2 output\(s\)"
    ):
        opset.logical_if([condition], 1, one, two)
    with pytest.raises(popart_exception, match="`else_branch` of If has 2 output"):
        opset.logical_if([condition], 2, one, two)
    with pytest.raises(popart_exception, match=r"`callee` of Call has 1 input\(s\), by the number"):
        builder.aiGraphcore.call([x], 1, one)
    with pytest.raises(popart_exception, match=r"`body` of Loop has 3 input\(s\)"):
        opset.loop(["", condition, x], 1, two)
    stranger = branch_of(Builder(), *[])
    for other in (stranger, builder, None):
        with pytest.raises(popart_exception, match="is a builder that createSubgraphBuilder of"):
            builder.aiGraphcore.call([], 1, other)
    assert builder.draft.nodes == []
    # What branches take, they take by name; the rest of the arguments is not looked at.
    assert opset.logical_if([condition, x], 1, one, one, name="choice") == ["If:0"]
    assert list(builder.draft.nodes[0].input) == [condition]
    assert builder.draft.nodes[0].name == "choice"


def test_a_call_in_a_branch():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2])
    callee = builder.createSubgraphBuilder()
    callee.addOutputTensor(callee.aiOnnx.neg([callee.addUntypedInputTensor()]))
    branch = builder.createSubgraphBuilder()
    (result,) = branch.aiGraphcore.call([x], 1, callee, debugName="shared")
    branch.addOutputTensor(result)
    other = builder.createSubgraphBuilder()
    other.addOutputTensor(other.aiOnnx.relu([x]))
    condition = builder.addInputTensor("BOOL", [])
    assert builder.aiOnnx.logical_if([condition], 1, branch, other) == ["If:0"]
    onnx.checker.check_model(builder.getModelProto())


def test_reshaping_to_a_shape_that_is_known():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    y = builder.reshape_const(builder.aiOnnx, [x], (3, -1), debugContext="name")
    assert (y, builder.getTensorShape(y)) == ("Reshape:0", [3, 2])
    assert [node.name for node in builder.draft.nodes] == ["", "name"]


@pytest.mark.parametrize("order", [("x", "y"), ("y", "x")])
def test_calls_pass_what_a_graph_takes_from_around_it(order):
    """What is passed counts, and not what has the name around the call."""
    builder = popart.Builder()
    ids = {name: builder.addInputTensor("FLOAT", [], name) for name in "xy"}
    callee = builder.createSubgraphBuilder()
    callee.addInputTensorFromParentGraph(ids["x"])
    other = callee.addInputTensor("FLOAT", [])
    callee.addOutputTensor(callee.aiOnnx.sub([ids["x"], other]))
    (result,) = builder.aiGraphcore.call([ids[name] for name in order], 1, callee)
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, [result]),
        popart.DeviceManager().createIpuModelDevice({}),
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    given = {"x": np.float32(5), "y": np.float32(3)}
    session.run(popart.PyStepIO(given, anchors))
    assert anchors[result] == given[order[0]] - given[order[1]]


def test_floats_are_where_scripts_read_them():
    builder = popart.Builder()
    values = np.linspace(-1, 1, 200, dtype=np.float32).reshape(2, 100)
    builder.addInitializedInputTensor(values)
    proto = onnx.load_from_string(builder.getModelProto())
    assert list(proto.graph.initializer[0].float_data) == values.ravel().tolist()
    again = popart.Builder(builder.getModelProto())
    np.testing.assert_array_equal(again._impl.draft.initialisers["init_input"], values)


def test_opsets_name_themselves():
    builder = Builder(opsets={"ai.onnx": 9, "ai.graphcore": 1})
    assert (f"{builder.aiOnnx}", str(builder.aiGraphcore)) == ("AiOnnx9", "AiGraphcore")


def test_a_loop_may_return_a_tensor_twice():
    """What is carried on is stacked as well."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    body = builder.createSubgraphBuilder()
    body.addInputTensor("INT64", [])
    goes_on = body.addInputTensor("BOOL", [])
    twice = body.aiOnnx.add([carried := body.addInputTensor("FLOAT", [2]), carried])
    for each in (goes_on, twice, twice):
        body.addOutputTensor(each)
    count = builder.aiOnnx.constant(np.array(3, np.int64))
    starts = builder.aiOnnx.constant(np.array(True))
    last, stacked = builder.aiOnnx.loop([count, starts, x], 2, body)
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, [last, stacked]),
        popart.DeviceManager().createIpuModelDevice({}),
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.float32([1, 3])}, anchors))
    assert anchors[last].tolist() == [8, 24]
    assert anchors[stacked].tolist() == [[2, 6], [4, 12], [8, 24]]
