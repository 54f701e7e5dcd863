"""Models that sessions write, at any moment: also when a process is killed."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest

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
