"""The ways through the rooms in docs/architecture.md, as programs take them."""

import re
import sys
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
from project_imports import PROJECT

import ipu_keras
from ipu_keras import popart
from ipu_keras.config import IPUConfig
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops.cross_replica_ops import cross_replica_sum
from ipu_keras.ops.replication_ops import replication_index

PACKAGE = PROJECT / "ipu_keras"
DOCUMENT = (PROJECT / "docs" / "architecture.md").read_text("utf-8")

# So many files at most, or nobody reads them.
MOST_FILES = 10


def described(title: str) -> list[tuple[str, str]]:
    """The file and the function of each station of a way."""
    section = DOCUMENT.split(f"## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^\d+\. `([\w/]+\.py)`, `([\w.]+)`: ", section, flags=re.MULTILINE)


def called(run: Callable[[], None]) -> list[tuple[str, str]]:
    """The package's functions in the order in which this thread first calls them."""
    found: dict[tuple[str, str], None] = {}
    # Texts, as every call of TensorFlow passes here, too: paths take a hundred times as long.
    start = f"{PACKAGE.as_posix()}/"

    def note(frame, event, argument):
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(start):
            found[file.removeprefix(start), frame.f_code.co_qualname] = None

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return list(found)


@pytest.fixture
def model():
    SYSTEM.reset()
    with IPUStrategy().scope():
        # Of a size that no other test has: models of programs are cached.
        model = keras.Sequential([keras.Input((41,)), keras.layers.Dense(43)])
    model.compile("sgd", "mse", steps_per_execution=2)
    yield model
    SYSTEM.reset()


def check(title, run):
    stations = described(title)
    assert len(stations) >= 5
    assert len({file for file, _ in stations}) == len(stations) <= MOST_FILES
    order = called(run)
    assert [station for station in order if station in stations] == stations


def test_from_fit_to_logs(model):
    data = np.zeros((16, 41), np.float32), np.zeros((16, 43), np.float32)
    check("From `fit` to logs", lambda: model.fit(*data, batch_size=4, verbose=0))


def test_the_files_that_fit_passes_are_as_many_as_the_document_says(model):
    data = np.zeros((16, 41), np.float32), np.zeros((16, 43), np.float32)
    first, next_one = (
        len({file for file, _ in called(lambda: model.fit(*data, batch_size=4, verbose=0))})
        for _ in range(2)
    )
    said = re.search(
        r"calls functions of (\d+) files of the package,\nand the next one, .*, of (\d+):", DOCUMENT
    )
    # What a process has imported or asked for once is not called again.
    assert int(said[1]) - 15 <= first <= int(said[1]) + 5
    assert abs(next_one - int(said[2])) <= 5


def test_from_a_model_to_a_report(model):
    specs = tf.TensorSpec((4, 41)), tf.TensorSpec((4, 43))
    check("From a model to a report", lambda: str(ipu_keras.profile(model, *specs)))


def test_from_an_onnx_file_to_anchors(tmp_path):
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 47])
    w = builder.addInitializedInputTensor(np.ones((47, 3), np.float32))
    y = builder.aiOnnx.matmul([x, w])
    builder.addOutputTensor(y)
    file = str(tmp_path / "model.onnx")
    builder.saveModelProto(file)
    device = popart.DeviceManager().createIpuModelDevice({})

    def run():
        flow = popart.DataFlow(4, {y: popart.AnchorReturnType("EveryN", 2)})
        session = popart.InferenceSession(file, flow, device)
        session.prepareDevice()
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({x: np.ones((4, 2, 47), np.float32)}, anchors))
        np.testing.assert_array_equal(anchors[y], np.full((2, 2, 3), 47))

    check("From an ONNX file to anchors", run)


def test_from_an_optimizer_to_trained_weights(tmp_path):
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 53])
    w = builder.addInitializedInputTensor(np.ones((53, 3), np.float32))
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.matmul([x, w])])
    device = popart.DeviceManager().createIpuModelDevice({})
    flow = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")})
    optimizer = popart.SGD({"defaultLearningRate": (0.5, False)})

    def run():
        session = popart.TrainingSession(builder.getModelProto(), flow, loss, optimizer, device)
        session.prepareDevice()
        session.weightsFromHost()
        data = {x: np.ones((2, 53), np.float32)}
        session.run(popart.PyStepIO(data, session.initAnchorArrays()))
        session.modelToHost(str(tmp_path / "trained.onnx"))
        trained = np.zeros((53, 3), np.float32)
        session.readWeights(popart.PyWeightsIO({w: trained}))
        # The loss is the mean of 2 x 3 results, and each weight is in two of them.
        np.testing.assert_allclose(trained, np.full((53, 3), 1 - 0.5 * 2 / 6), rtol=1e-6)

    check("From an optimizer to trained weights", run)


def test_from_a_function_to_all_replicas():
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    strategy = IPUStrategy()
    with strategy.scope():
        variable = tf.Variable(1.0)

    @tf.function
    def function(x):
        variable.assign_add(tf.cast(replication_index(), tf.float32))
        return cross_replica_sum(variable * x)

    def run():
        assert strategy.run(function, [tf.constant(2.0)]).numpy() == 2.0 + 4.0

    check("From a function to all replicas", run)
    SYSTEM.reset()


def test_a_station_that_is_not_passed_is_seen(model):
    with pytest.raises(AssertionError):
        check("From `fit` to logs", lambda: str(ipu_keras.profile(model, tf.TensorSpec((4, 41)))))
