import doctest

import numpy as np
import pytest

from ipu_keras import popart
from ipu_keras.popart import writer
from ipu_keras.popart.writer import NetWriter


class NumPyWriter(NetWriter):
    """Of a "framework" whose models are matrices: `relu(x @ w)`."""

    def __init__(self, *args, weights):
        super().__init__(*args)
        self.weights = weights

    def saveModel(self, filename):
        builder = popart.Builder()
        x = builder.addInputTensor(self.inputShapeInfo.get(self.inNames[0]), self.inNames[0])
        w = builder.addInitializedInputTensor(self.weights, "w")
        builder.addOutputTensor(builder.aiOnnx.relu([builder.aiOnnx.matmul([x, w])]))
        builder.saveModelProto(filename)

    def infer(self, inputsMap):
        return {self.outNames[0]: np.maximum(inputsMap[self.inNames[0]] @ self.weights, 0)}


@pytest.fixture
def numpy_writer():
    infos = popart.InputShapeInfo()
    infos.add("x", popart.TensorInfo("FLOAT", [4, 3]))
    weights = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    flow = popart.DataFlow(5, ["Relu:0"])
    return NumPyWriter(["x"], ["Relu:0"], None, flow, infos, weights=weights)


def test_examples():
    assert doctest.testmod(writer).failed == 0


def test_it_is_a_name_of_popart_as_well():
    assert popart.NetWriter is NetWriter
    assert popart.writer is writer


def test_a_session_computes_what_the_framework_does(numpy_writer, tmp_path):
    path = str(tmp_path / "model.onnx")
    numpy_writer.saveModel(path)
    session = popart.InferenceSession(
        path,
        numpy_writer.dataFlow,
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 1}),
        numpy_writer.inputShapeInfo,
    )
    session.prepareDevice()
    x = np.random.default_rng(1).normal(size=(5, 4, 3)).astype(np.float32)
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": x}, anchors))
    np.testing.assert_allclose(anchors["Relu:0"], numpy_writer.infer({"x": x})["Relu:0"], 1e-6)


def test_attributes_are_what_was_given(numpy_writer):
    assert numpy_writer.inNames == ["x"]
    assert numpy_writer.outNames == ["Relu:0"]
    assert numpy_writer.optimizer is None
    assert numpy_writer.dataFlow.batchesPerStep() == 5
    assert numpy_writer.inputShapeInfo.get("x").shape() == [4, 3]


@pytest.mark.parametrize("method", ["infer", "saveModel", "train"])
def test_the_base_says_what_to_define(method):
    base = NetWriter([], [], None, popart.DataFlow(1, {}), popart.InputShapeInfo())
    message = rf"^NetWriter has no method '{method}' of its own, which frameworks bring\. Define"
    with pytest.raises(NotImplementedError, match=message):
        getattr(base, method)({})


def test_wrong_arguments():
    flow, infos = popart.DataFlow(1, {}), popart.InputShapeInfo()
    with pytest.raises(
        TypeError, match=r"^`inNames` must be a list of str\. Received: inNames='x'"
    ):
        NetWriter("x", [], None, flow, infos)
    with pytest.raises(TypeError, match=r"^`outNames` must be a list of str\. Received: .*\[3\]"):
        NetWriter([], [3], None, flow, infos)
    with pytest.raises(TypeError, match=r"^`dataFlow` must be a popart\.DataFlow\. Received: data"):
        NetWriter([], [], None, {}, infos)
    with pytest.raises(TypeError, match=r"^`inputShapeInfo` must be a popart\.InputShapeInfo\. Re"):
        NetWriter([], [], None, flow, None)
