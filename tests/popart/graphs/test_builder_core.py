"""Builders' own methods: inputs, values, outputs, what is known of tensors, files."""

import os

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.popart.core import DebugContext, _BuilderCore
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.tensorinfo import TensorInfo

DTYPES = ("float32", "float16", "int32", "uint32", "int8", "uint8", "bool", "int64", "float64")


def test_inputs_in_all_overloads():
    builder = _BuilderCore()
    info = TensorInfo("FLOAT16", [2, 3])
    ids = [
        builder.addInputTensor(info),
        builder.addInputTensor(info, "a"),
        builder.addInputTensor(tensorInfo=info, debugContext=DebugContext("b")),
        builder.addInputTensor(info, debugPrefix="c"),
        builder.addInputTensor("FLOAT16", [2, 3]),
        builder.addInputTensor("FLOAT16", (2, 3), "d"),
        builder.addInputTensor(dataType="FLOAT16", shape=np.array([2, 3]), debugPrefix="e"),
    ]
    assert ids == ["input", "a", "b", "c", "input/1", "d", "e"]
    assert builder.getInputTensorIds() == ids
    assert {tuple(builder.getTensorShape(id_)) for id_ in ids} == {(2, 3)}
    assert {builder.getTensorDtypeString(id_) for id_ in ids} == {"float16"}


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("FLOAT", [-1]), popart_exception, "The sizes in a `shape` are not negative"),
        (("FLAOT", [1]), popart_exception, "Unknown dtype 'FLAOT'"),
        (("FLOAT",), TypeError, "missing 1 required positional argument: 'shape'"),
        ((3, [1]), popart_exception, "Unknown dtype 3"),
        (("FLOAT", [1], 3), popart_exception, "`debugContext` is a string or a DebugContext"),
    ],
)
def test_refused_inputs(arguments, error, text):
    builder = _BuilderCore()
    with pytest.raises(error, match=text):
        builder.addInputTensor(*arguments)
    assert builder.getInputTensorIds() == []


@given(st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=3), st.booleans())
def test_values_are_copied_as_they_are(dtype, shape, is_transposed):
    array = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(dtype)
    given_array = array.T if is_transposed else array
    expected = given_array.copy()
    builder = _BuilderCore()
    id_ = builder.addInitializedInputTensor(given_array)
    array[...] = 0
    assert id_ == "init_input"
    assert builder.isInitializer(id_)
    assert builder.getTrainableTensorIds() == [id_]
    assert builder.getInputTensorIds() == []
    assert builder.getTensorDtypeString(id_) == dtype
    assert tuple(builder.getTensorShape(id_)) == expected.shape
    model = onnx.ModelProto.FromString(builder.getModelProto())
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(model.graph.initializer[0]), expected)


def test_numpy_scalars_are_values():
    builder = _BuilderCore()
    assert builder.getTensorShape(builder.addInitializedInputTensor(np.float32(2), "s")) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1.0], "`initVal` is a NumPy array. Received: an object of type list"),
        (np.array(["a"]), "ONNX has no data type for arrays of <U1"),
        (np.array(0, "datetime64[s]"), "ONNX has no data type for arrays of datetime64"),
    ],
)
def test_refused_values(value, text):
    builder = _BuilderCore()
    with pytest.raises(popart_exception, match=text):
        builder.addInitializedInputTensor(value)
    assert builder.getTrainableTensorIds() == []


def test_outputs_and_values():
    builder = _BuilderCore()
    x = builder.addInputTensor("FLOAT", [2])
    opset = builder.aiOnnxOpset9
    y = opset.relu([x])
    z = opset.neg([y])
    builder.addOutputTensor(z)
    assert builder.getOutputTensorIds() == [z]
    assert builder.getValueTensorIds() == [y, z]
    assert not builder.isInitializer(y)
    with pytest.raises(popart_exception, match="'Neg:0' is an output of the graph already"):
        builder.addOutputTensor(z)
    for method in (builder.addOutputTensor, builder.getTensorShape, builder.isInitializer):
        with pytest.raises(
            popart_exception, match=r"Unknown tensor 'w' \(valid tensors are input, Relu:0, Neg:0\)"
        ):
            method("w")


def test_what_is_not_known():
    builder = _BuilderCore()
    x = builder.addInputTensor("FLOAT", [2, 3])
    y = builder.aiOnnxOpset9.nonzero([x])
    with pytest.raises(popart_exception, match=r"shape of .* 'NonZero:0' is not known .*\[2, None"):
        builder.getTensorShape(y)
    (z,) = builder.customOp("Mine", 1, "my.domain", [x], {})
    with pytest.raises(popart_exception, match=r"not known .* a tensor of unknown rank"):
        builder.getTensorShape(z)
    with pytest.raises(popart_exception, match="The dtype of 'Mine:0' is not known"):
        builder.getTensorDtypeString(z)


def test_subgraphs_see_what_is_around_them():
    builder = _BuilderCore()
    x = builder.addInputTensor("FLOAT", [2])
    inner = builder._createSubgraphBuilder()
    inner.addInputTensorFromParentGraph(x)
    assert inner.addUntypedInputTensor() == "input/1"
    assert inner.addUntypedInputTensor("a") == "a"
    assert inner.aiOnnxOpset10.relu([x]) == "Relu:0"
    assert inner.getTensorShape("Relu:0") == [2]
    assert builder.aiOnnxOpset10.relu([x]) == "Relu:0/1"
    with pytest.raises(popart_exception, match="Unknown tensor 'y'"):
        inner.addInputTensorFromParentGraph("y")
    with pytest.raises(popart_exception, match="Unknown tensor 'input'"):
        builder.addInputTensorFromParentGraph(x)
    with pytest.raises(popart_exception, match="Unknown tensor 'a'"):
        builder.aiOnnxOpset10.relu(["a"])
    with pytest.raises(popart_exception, match="The inputs of the main graph have a type"):
        builder.addUntypedInputTensor()


def test_operations_of_any_domain():
    builder = _BuilderCore()
    x = builder.addInputTensor("FLOAT", [2])
    results = builder.customOp(
        opName="LeakyRelu",
        opVersion=6,
        domain="ai.onnx",
        inputs=[x],
        attributes={"alpha": 0.5},
        numOutputs=1,
        name="leak",
    )
    assert results == ["LeakyRelu:0"]
    assert builder.getTensorShape(results[0]) == [2]
    cube = builder.customOp("Cube", 2, "com.acme", [x], {"a": [1], "b": "c"}, 2)
    assert cube == ["Cube:0", "Cube:1"]
    assert builder.getInt64VectorNodeAttribute("a", cube) == [1]
    model = onnx.ModelProto.FromString(builder.getModelProto())
    assert {each.domain: each.version for each in model.opset_import} == {"": 6, "com.acme": 2}
    with pytest.raises(
        popart_exception,
        match=r"Invalid opset 3 used to add an operation\. Opset for domain com.acme already .* 2",
    ):
        builder.customOp("Cube", 3, "com.acme", [x], {})
    with pytest.raises(popart_exception, match=r"Invalid opset 9 used .* ai.onnx already .* 6"):
        builder.aiOnnxOpset9.relu([x])


def test_tensors_that_are_kept():
    builder = _BuilderCore()
    x = builder.addInputTensor("FLOAT", [2])
    y, z = builder.checkpointOutput([x, builder.aiOnnxOpset8.relu([x])])
    assert (y, z) == ("Identity:0", "Identity:0/1")
    assert not builder.getRecomputeOutputInBackwardPass(y)
    assert builder.getInt64NodeAttribute("__recompute", {z}) == 1
    with pytest.raises(popart_exception, match="Unknown tensor 'w'"):
        builder.checkpointOutput([x, "w"])
    assert len(builder.draft.nodes) == 3


def test_scopes():
    builder = _BuilderCore()
    with builder.nameScope("a"), builder.nameScope("b"):
        assert builder.getNameScope() == "a/b/"
        assert builder.getNameScope("c") == "a/b/c"
        x = builder.addInputTensor("FLOAT", [2], "x")
        y = builder.aiOnnxOpset10.relu([x], "rectify")
    assert (x, y, builder.getNameScope()) == ("a/b/x", "a/b/Relu:0", "")
    assert builder.draft.nodes[0].name == "a/b/rectify"
    with pytest.raises(popart_exception, match="The `name` of a scope is a string"):
        builder.nameScope(3)


def test_the_graph_has_a_name():
    builder = _BuilderCore()
    builder.setGraphName("mine")
    assert onnx.ModelProto.FromString(builder.getModelProto()).graph.name == "mine"
    with pytest.raises(popart_exception, match="The `name` of a graph is a string"):
        builder.setGraphName(3)


def model_with_values() -> tuple[_BuilderCore, list[str]]:
    builder = _BuilderCore()
    ids = [
        builder.addInitializedInputTensor(np.arange(6, dtype=np.float32).reshape(2, 3)),
        builder.addInitializedInputTensor(np.array([1, 2, 3], np.float16)),
        builder.addInitializedInputTensor(np.array([4.0], np.float32)),
    ]
    builder.addOutputTensor(builder.aiOnnxOpset10.relu([ids[0]]))
    return builder, ids


def test_values_in_a_file_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    builder, ids = model_with_values()
    path = os.path.join("folder", "values.bin")
    builder.saveInitializersExternally(ids[:2], path)
    assert (tmp_path / path).stat().st_size == 6 * 4 + 3 * 2
    builder.saveModelProto("folder/model.onnx")
    model = onnx.load("folder/model.onnx", load_external_data=False)
    locations = [{e.key: e.value for e in each.external_data} for each in model.graph.initializer]
    assert locations == [
        {"location": "values.bin", "offset": "0", "length": "24"},
        {"location": "values.bin", "offset": "24", "length": "6"},
        {},
    ]
    for again in (_BuilderCore("folder/model.onnx"), _BuilderCore(builder.getModelProto())):
        for id_ in ids:
            expected = builder.draft.initialisers[id_]
            np.testing.assert_array_equal(again.draft.initialisers[id_], expected)
    with pytest.raises(popart_exception, match="'init_input' is in a file of its own already"):
        builder.saveInitializersExternally(ids[:1], "more.bin")
    with pytest.raises(popart_exception, match="Unknown tensor 'Relu:0'"):
        builder.saveInitializersExternally(["Relu:0"], "more.bin")
    with pytest.raises(popart_exception, match=r"no_folder/more\.bin' cannot be written"):
        builder.saveInitializersExternally(ids[2:], "no_folder/more.bin")
    assert len(builder.draft.external) == 2
    assert not (tmp_path / "more.bin").exists()


def test_no_file_is_written_over_values_of_the_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    builder, ids = model_with_values()
    builder.saveInitializersExternally(ids[:1], "values.bin")
    os.link("values.bin", "same.bin")
    content = (tmp_path / "values.bin").read_bytes()
    inner = builder._createSubgraphBuilder()
    within = inner.addInitializedInputTensor(np.zeros(2, np.float32))
    text = "has the data of 'init_input', which would be lost"
    for path in ("values.bin", os.path.abspath("values.bin"), "./values.bin", "same.bin"):
        with pytest.raises(popart_exception, match=text):
            builder.saveInitializersExternally(ids[1:], path)
        with pytest.raises(popart_exception, match=text):
            inner.saveInitializersExternally([within], path)
        with pytest.raises(popart_exception, match=text):
            builder.saveModelProto(path)
    assert (tmp_path / "values.bin").read_bytes() == content


def test_a_model_in_a_file(tmp_path):
    builder, _ = model_with_values()
    builder.saveModelProto(tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == builder.getModelProto()
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    with pytest.raises(popart_exception, match="cannot be written"):
        builder.saveModelProto(tmp_path / "no_folder" / "model.onnx")
