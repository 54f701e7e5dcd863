"""Steps that fail as a number in them is infinite or none."""

import re

import numpy as np
import pytest

from ipu_keras import popart
from ipu_keras.popart import AnchorReturnType as Returns

BATCHES = 3


class Logarithms:
    """`log(x) + exp(z)`, on replicas, with checks of numbers."""

    def __init__(self, session_of, replicas, kind="All", **options):
        builder = popart.Builder()
        self.x, self.z = (builder.addInputTensor("FLOAT", [2], name) for name in "xz")
        log = self._log(builder)
        self.y = builder.aiOnnx.add([log, builder.aiOnnx.exp([self.z], "growth")])
        self.shape = (BATCHES, replicas, 2)
        options = {
            "enableReplicatedGraphs": True,
            "replicatedGraphCount": replicas,
            "enableFloatingPointChecks": True,
            **options,
        }
        self._session, self._anchors = session_of(
            builder.getModelProto(),
            {self.y: Returns(kind)},
            BATCHES,
            replicas,
            **options,
        )

    def _log(self, builder):
        return builder.aiOnnx.log([self.x], "logarithm")

    def __call__(self, x, z):
        self._anchors[self.y][...] = 7
        self._session.run(popart.PyStepIO({self.x: x, self.z: z}, self._anchors))
        return self._anchors[self.y]

    def check_fails(self, x, z, title, micro_batch):
        text = f"^Floating point exception in {title}: .*, in micro-batch {micro_batch} of the step"
        with pytest.raises(popart.poplar_exception, match=text):
            self(x, z)
        # Nothing was written.
        assert (self._anchors[self.y] == 7).all()


class WithinAGraph(Logarithms):
    """The logarithm is in a graph that the model calls."""

    def _log(self, builder):
        inner = builder.createSubgraphBuilder()
        inner.addOutputTensor(inner.aiOnnx.log([inner.addInputTensor("FLOAT", [2])]))
        return builder.aiGraphcore.call([self.x], 1, inner, "logarithm")[0]


def ones_and_zeros(shape):
    return np.ones(shape, np.float32), np.zeros(shape, np.float32)


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("kind", ["All", "Final", "Sum"])
def test_each_micro_batch_of_each_replica_is_checked(session_of, replicas, kind):
    step = Logarithms(session_of, replicas, kind)
    x, z = ones_and_zeros(step.shape)
    np.testing.assert_allclose(step(x, z), BATCHES if kind == "Sum" else 1)
    for batch in range(BATCHES):
        for replica in range(replicas):
            wrong = x.copy()
            wrong[batch, replica, 1] = -1
            step.check_fails(wrong, z, "Log 'logarithm'", batch * replicas + replica)
    # And the session goes on.
    np.testing.assert_allclose(step(x, z), BATCHES if kind == "Sum" else 1)


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_first_node_of_all_micro_batches_is_named(session_of, replicas):
    step = Logarithms(session_of, replicas)
    x, z = ones_and_zeros(step.shape)
    z[0, 0] = 1000
    step.check_fails(x, z, "Exp 'growth'", 0)
    # It is in a later micro-batch, and before the other in the graph.
    x[2, replicas - 1] = 0
    step.check_fails(x, z, "Log 'logarithm'", 3 * replicas - 1)


def test_what_is_within_a_node_counts_as_that(session_of):
    step = WithinAGraph(session_of, 2)
    x, z = ones_and_zeros(step.shape)
    np.testing.assert_allclose(step(x, z), 1)
    x[1, 0] = -1
    step.check_fails(x, z, "Call 'logarithm'", 2)


def test_the_error_says_how_to_go_on(session_of):
    step = Logarithms(session_of, 1)
    x, z = ones_and_zeros(step.shape)
    text = "Leave SessionOptions.enableFloatingPointChecks False to get such results."
    with pytest.raises(popart.poplar_exception, match=re.escape(text)):
        step(-x, z)


def test_the_engine_option_checks_too(session_of, monkeypatch):
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"debug.floatPointOpException": "true"}')
    step = Logarithms(session_of, 1, enableFloatingPointChecks=False)
    x, z = ones_and_zeros(step.shape)
    step.check_fails(-x, z, "Log 'logarithm'", 0)
