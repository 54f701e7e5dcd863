import doctest
import math

import numpy as np
import pytest

from ipu_keras import popart
from ipu_keras.popart.files import numerics_report


@pytest.fixture
def written(tmp_path):
    """Writes a model with weights, as a session does."""

    def write(name, **weights):
        builder = popart.Builder()
        for weight, array in weights.items():
            builder.addOutputTensor(
                builder.aiOnnx.relu([builder.addInitializedInputTensor(array, weight)])
            )
        path = str(tmp_path / f"{name}.onnx")
        builder.saveModelProto(path)
        return path

    return write


def drawn(seed, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=(3, 4)).astype(dtype)


def error(a0, a1, b0, b1):
    a = a1.astype(np.float64) - a0.astype(np.float64)
    b = b1.astype(np.float64) - b0.astype(np.float64)
    return np.sum((a - b) ** 2) / np.sqrt(np.sum(a**2) * np.sum(b**2))


def test_examples():
    assert doctest.testmod(numerics_report).failed == 0


def test_relative_errors_are_numpys(written):
    v = [drawn(seed, np.float16) for seed in range(4)]
    w = [drawn(seed) for seed in range(4, 8)]
    files = [written(f"m{k}", v=v[k], w=w[k]) for k in range(4)]
    errors = popart.NumericsReport(*files).getRelativeErrors()
    assert errors == pytest.approx({"v": error(*v), "w": error(*w)}, rel=1e-12)
    named = dict(zip(("A0", "A1", "B0", "B1"), files, strict=True))
    assert popart.NumericsReport(**named).getRelativeErrors() == errors


def test_runs_that_moved_alike_and_runs_that_did_not_move(written):
    zero, one = np.zeros(2, np.float32), np.ones(2, np.float32)
    a0 = written("a0", same=zero, still=zero, half=zero)
    a1 = written("a1", same=one, still=zero, half=one)
    b1 = written("b1", same=one, still=zero, half=zero)
    errors = popart.NumericsReport(a0, a1, a0, b1).getRelativeErrors()
    assert errors == {"same": 0.0, "still": 0.0, "half": math.inf}


def test_the_smallest_movements_count(written):
    def file(name, value):
        return written(name, w=np.float32([value]))

    files = (file("0", 0), file("1", 2e-38), file("0", 0), file("2", 4e-38))
    assert popart.NumericsReport(*files).getRelativeErrors()["w"] == pytest.approx(0.5, rel=1e-6)


def test_reports_are_tables(written):
    arrays = [np.float32(each) for each in ([0, 0], [2, 0], [1, 1], [1, 3])]
    files = [written(f"m{k}", weight=array) for k, array in enumerate(arrays)]
    report = popart.NumericsReport(*files)
    assert report.report("weight").splitlines() == [
        "weight  relative error",
        "weight               2",
    ]
    assert report.fullReport().splitlines() == [
        "weight  elements  |dA|^2  |dB|^2  |dA - dB|^2  relative error",
        "weight         2       4       4            8               2",
    ]
    with pytest.raises(popart.popart_exception, match=r"no weight .bias.\. They have: weight"):
        report.report("bias")


def test_models_of_a_session(tmp_path, written):
    before = written("before", w=np.float32([[1, 2], [3, 4]]))
    options = popart.SessionOptions()
    options.constantWeights = False
    flow = popart.DataFlow(1, ["Relu:0"])
    device = popart.DeviceManager().createCpuDevice()
    session = popart.InferenceSession(before, flow, device, userOptions=options)
    session.prepareDevice()
    session.writeWeights(popart.PyWeightsIO({"w": np.float32([[1, 2], [3, 6]])}))
    after = str(tmp_path / "after.onnx")
    session.modelToHost(after)
    other = written("other", w=np.float32([[1, 2], [3, 5]]))
    errors = popart.NumericsReport(before, after, before, other).getRelativeErrors()
    assert errors == {"w": (2 - 1) ** 2 / (2 * 1)}


def test_models_that_are_not_alike(written):
    zero = np.zeros(2, np.float32)
    first = written("first", w=zero)
    more = written("more", w=zero, v=zero)
    message = r"the same weights\. Received: B1 with, and A0 without, 'v'\. Write all four with"
    with pytest.raises(popart.popart_exception, match=message):
        popart.NumericsReport(first, first, first, more)
    with pytest.raises(popart.popart_exception, match="A0 with, and A1 without, 'v'"):
        popart.NumericsReport(more, first, more, more)
    message = r"'w' must have the same shape and type .* \[2\] and float32 in A0, \[2\] and float16"
    with pytest.raises(popart.popart_exception, match=message):
        popart.NumericsReport(first, written("half", w=zero.astype(np.float16)), first, first)
    with pytest.raises(popart.popart_exception, match=r"missing\.onnx' cannot be loaded: There is"):
        popart.NumericsReport("missing.onnx", first, first, first)
    integers = written("integers", w=np.zeros(2, np.int32))
    with pytest.raises(popart.popart_exception, match="The models have no weights to compare"):
        popart.NumericsReport(*[integers] * 4)
