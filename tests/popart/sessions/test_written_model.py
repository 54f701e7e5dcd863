"""Models that sessions write, at any moment: also when a process is killed."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest

from ipu_keras import popart

SIZE = 1_000_000
RATE = 1e-4

# Adam's steps are of one length if gradients stay the same: a weight tells how many there were.
WRITER = f"""
import os
import numpy as np
from ipu_keras import popart

builder = popart.Builder()
x = builder.addInputTensor("FLOAT", [1], "x")
w = builder.addInitializedInputTensor(np.ones({SIZE}, np.float32), "w")
product = builder.aiOnnx.mul([x, w])
loss = builder.aiGraphcore.identityloss([product], popart.ReductionType.Sum)
session = popart.TrainingSession(
    "model.onnx" if os.path.exists("model.onnx") else builder.getModelProto(),
    popart.DataFlow(1, []),
    loss,
    popart.Adam({{"defaultLearningRate": ({RATE}, True)}}),
    popart.DeviceManager().createIpuModelDevice({{}}),
)
session.prepareDevice()
session.weightsFromHost()
print("begins", flush=True)
while True:
    session.run(popart.PyStepIO({{x: np.ones(1, np.float32)}}, {{}}))
    session.modelToHost("model.onnx")
"""


def updates_of(path):
    """How many updates a model had; it has the weights and the optimizer's state of all of them."""
    proto = onnx.load(path)
    arrays = {each.name: onnx.numpy_helper.to_array(each) for each in proto.graph.initializer}
    assert set(arrays) == {"w", "Accl1___w", "Accl2___w", "Step___w"}
    for name in ("w", "Accl1___w", "Accl2___w"):
        assert arrays[name].shape == (SIZE,)
        assert arrays[name].min() == arrays[name].max()
    updates = int(arrays["Step___w"].item())
    assert arrays["w"][0] == pytest.approx(1 - RATE * updates, abs=1e-5)
    assert arrays["Accl1___w"][0] == pytest.approx(1 - 0.9**updates, rel=1e-4)
    return updates


def test_who_is_killed_while_writing_leaves_a_model_to_go_on_from(tmp_path):
    path = tmp_path / "model.onnx"
    random = np.random.default_rng(0)
    paths = os.pathsep.join(each for each in sys.path if each)
    updates = 0
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": paths},
        ) as process:
            try:
                # Before, it has read what the process before it has left.
                assert process.stdout.readline() == b"begins\n"
                while not path.exists() or updates_of(path) == updates:
                    assert process.poll() is None
                for moment in random.uniform(0.001, 0.05, 6):
                    # What is there at any moment is what is there after kill -9 at that moment.
                    process.send_signal(signal.SIGSTOP)
                    before, updates = updates, updates_of(path)
                    assert updates >= before
                    process.send_signal(signal.SIGCONT)
                    time.sleep(moment)
            finally:
                process.kill()
        before, updates = updates, updates_of(path)
        assert updates >= before > 0


class Squared:
    """A loss, and weights of it that lie in files: `w` in one with an integer, `v` in another."""

    def __init__(self, folder):
        builder = popart.Builder()
        self.shift = builder.addInitializedInputTensor(np.int32([1]), "shift")
        self.w = builder.addInitializedInputTensor(np.full(3, 2, np.float32), "w")
        self.v = builder.addInitializedInputTensor(np.ones(3, np.float32), "v")
        product = builder.aiOnnx.mul([builder.aiOnnx.mul([self.w, self.w]), self.v])
        shifted = builder.aiOnnx.add([builder.aiOnnx.cast([self.shift], "FLOAT"), product])
        self.loss = builder.aiGraphcore.identityloss([shifted], popart.ReductionType.Sum)
        self.first, self.second = folder / "first.bin", folder / "second.bin"
        builder.saveInitializersExternally([self.shift, self.w], str(self.first))
        builder.saveInitializersExternally([self.v], str(self.second))
        self.path = folder / "model.onnx"
        builder.saveModelProto(str(self.path))


def weights_in(path):
    proto = onnx.load(path)
    return {each.name: onnx.numpy_helper.to_array(each) for each in proto.graph.initializer}


# By one step of SGD at 0.1, from w = 2 and v = 1: gradients are 2 w v and w ** 2.
W_AFTER, V_AFTER = np.full(3, 1.6, np.float32), np.full(3, 0.6, np.float32)


def trained_once(training_of, model):
    optimizer = popart.ConstSGD(0.1)
    session, _ = training_of(str(model.path), model.loss, optimizer)
    session.run(popart.PyStepIO({}, {}))
    return session


def test_weights_in_files_are_written_to_where_they_lie(training_of, tmp_path):
    model = Squared(tmp_path)
    session = trained_once(training_of, model)
    (tmp_path / "inner").mkdir()
    other = tmp_path / "inner" / "trained.onnx"
    session.modelToHost(str(other))
    assert model.first.read_bytes() == np.int32([1]).tobytes() + W_AFTER.tobytes()
    assert model.second.read_bytes() == V_AFTER.tobytes()
    # None of it is in the model, which another one may go on from; the first model has it too.
    raw = onnx.load(other, load_external_data=False).graph.initializer
    assert [len(each.raw_data) for each in raw] == [0, 0, 0]
    np.testing.assert_array_equal(weights_in(model.path)["w"], W_AFTER)
    model.path = other
    again = trained_once(training_of, model)
    again.weightsToHost()
    found = np.empty(3, np.float32)
    again.readWeights(popart.PyWeightsIO({"w": found}))
    np.testing.assert_allclose(found, W_AFTER - 0.1 * 2 * W_AFTER * V_AFTER, rtol=1e-6)


def test_weights_that_are_said_to_lie_elsewhere(training_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = Squared(tmp_path)
    session = trained_once(training_of, model)
    before = model.first.read_bytes()
    with pytest.raises(popart.popart_exception, match=r"file 'third\.bin'\. There are: first"):
        session.updateExternallySavedTensorLocations("third.bin", "moved.bin")
    with pytest.raises(
        popart.popart_exception, match=r"The file 'second.bin' exists\. Name another"
    ):
        session.updateExternallySavedTensorLocations("first.bin", "second.bin")
    # By another name of the same file; there is one at once.
    session.updateExternallySavedTensorLocations(str(model.first), "moved.bin")
    assert os.path.getsize("moved.bin") == len(before)
    session.modelToHost("trained.onnx")
    np.testing.assert_array_equal(weights_in("trained.onnx")["w"], W_AFTER)
    (location, *_) = (
        onnx.load("trained.onnx", load_external_data=False).graph.initializer[1].external_data
    )
    assert location.value == "moved.bin"
    assert model.first.read_bytes() == before
    # And from there to a third one.
    session.updateExternallySavedTensorLocations("moved.bin", "again.bin")
    session.modelToHost("trained.onnx")
    np.testing.assert_array_equal(weights_in("trained.onnx")["w"], W_AFTER)


def test_no_model_is_written_over_its_weights(training_of, tmp_path):
    model = Squared(tmp_path)
    session = trained_once(training_of, model)
    (tmp_path / "link").symlink_to("first.bin")
    for path in ("first.bin", "link", "../" + tmp_path.name + "/first.bin"):
        with pytest.raises(popart.popart_exception, match=r"has the data of 'shift', which would"):
            session.modelToHost(str(tmp_path / path))
    assert weights_in(model.path)["w"].tolist() == [2, 2, 2]


def test_weights_that_were_written_are_those_of_the_host(training_of, weights_of, tmp_path):
    model = Squared(tmp_path)
    session = trained_once(training_of, model)
    found = {"w": np.empty(3, np.float32)}
    session.modelToHost(str(tmp_path / "trained.onnx"))
    session.readWeights(popart.PyWeightsIO(found))
    np.testing.assert_array_equal(found["w"], W_AFTER)
    session.weightsFromHost()
    np.testing.assert_array_equal(weights_of(session, found)["w"], W_AFTER)
