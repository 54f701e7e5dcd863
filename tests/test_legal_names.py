"""Names of all characters, wherever users give them: models run, and terminals obey none."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import ipu_keras
from ipu_keras import popart
from ipu_keras.config import IPUConfig
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM

# All that a byte can be, and some that change the direction of a line, or end it, elsewhere.
CHARACTERS = [*map(chr, range(256)), "\u0301", "\u2028", "\u202e", "\ufeff", "\U0001f600"]
NAMES = st.lists(st.text(st.sampled_from(CHARACTERS), max_size=4), min_size=40, max_size=40)


@pytest.fixture
def one_ipu():
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    yield
    SYSTEM.reset()


def printed_safely(text):
    return all(line.isprintable() for line in text.split("\n"))


def check_nodes(names):
    """Nodes of a graph run under any names; reports and errors show them."""
    builder = popart.Builder()
    builder.setGraphName("".join(names))
    given = tensor = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]))
    for name in names:
        with builder.nameScope(name):
            tensor = builder.aiOnnx.identity([tensor], name)
    flow = popart.DataFlow(1, {tensor: popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createIpuModelDevice({})
    session = popart.InferenceSession(builder.getModelProto(), flow, device)
    session.prepareDevice()
    found = session.initAnchorArrays()
    session.run(popart.PyStepIO({given: np.float32([-1, 2])}, found))
    assert found[tensor].tolist() == [-1, 2]
    assert printed_safely(session.getSummaryReport())


def check_metrics(names):
    """Metrics have any names that stock Keras trains with, and logs have them."""
    with IPUStrategy().scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(
            "sgd", "mse", metrics=[keras.metrics.MeanAbsoluteError(name=name) for name in names]
        )
        history = model.fit(np.ones((2, 2), "f"), np.ones((2, 1), "f"), 2, verbose=0).history
    assert set(names) <= set(history)


def check_functions(names):
    """Functions are called anything."""

    def squared(x):
        return x * x

    for name in names[:4]:
        squared.__name__ = squared.__qualname__ = name
        report = ipu_keras.profile(squared, tf.TensorSpec((2,)))
        assert printed_safely("".join((str(report), repr(report), str(report.diff(report)))))


def test_all_characters(one_ipu):
    """Each is first, last, and after and before any other kind."""
    names = [before + one + after for one in CHARACTERS for before, after in (("a", "."), ("", ""))]
    check_nodes(names)
    check_metrics(["".join(CHARACTERS[k::4]) for k in range(4)] + ["error > 0.5", ">", "a\\"])


@given(NAMES)
@settings(max_examples=3, deadline=None, phases=[Phase.generate])
def test_any_names(names):
    check_nodes(names)
    check_functions(names)
