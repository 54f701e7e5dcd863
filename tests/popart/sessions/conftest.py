import numpy as np
import pytest

from ipu_keras import popart


class Relu:
    """`relu(x @ w)`: its model, the names of its tensors, and what it computes."""

    def __init__(self, batch=2):
        builder = popart.Builder()
        self.weights = np.arange(12, dtype=np.float32).reshape(3, 4) / 10 - 0.5
        self.x = builder.addInputTensor(popart.TensorInfo("FLOAT", [batch, 3]))
        self.w = builder.addInitializedInputTensor(self.weights)
        self.product = builder.aiOnnx.matmul([self.x, self.w])
        self.y = builder.aiOnnx.relu([self.product])
        builder.addOutputTensor(self.y)
        self.proto = builder.getModelProto()
        self._shape = (batch, 3)

    def data(self, *count, seed=0):
        random = np.random.default_rng(seed)
        return random.normal(size=(*count, *self._shape)).astype(np.float32)

    def products(self, x):
        return x @ self.weights

    def computed(self, x):
        return np.maximum(self.products(x), 0)


@pytest.fixture
def relu():
    return Relu()


@pytest.fixture
def ipu_model():
    """Makes a device of an IPU Model."""

    def make(num_ipus=1, **options):
        return popart.DeviceManager().createIpuModelDevice({"numIPUs": num_ipus, **options})

    return make


@pytest.fixture
def session_of(ipu_model):
    """Makes a session that is prepared, with its arrays of results."""

    def make(proto, anchors, batches=1, num_ipus=1, **options):
        chosen = popart.SessionOptions()
        for name, value in options.items():
            setattr(chosen, name, value)
        flow = popart.DataFlow(batches, anchors)
        session = popart.InferenceSession(proto, flow, ipu_model(num_ipus), userOptions=chosen)
        session.prepareDevice()
        return session, session.initAnchorArrays()

    return make


@pytest.fixture
def training_of(ipu_model):
    """Makes a session that trains and may run, with its arrays of results."""

    def make(proto, loss, optimizer, anchors=(), batches=1, num_ipus=1, patterns=None, **options):
        chosen = popart.SessionOptions()
        for name, value in options.items():
            setattr(chosen, name, value)
        flow, device = popart.DataFlow(batches, anchors), ipu_model(num_ipus)
        session = popart.TrainingSession(
            proto, flow, loss, optimizer, device, patterns=patterns, userOptions=chosen
        )
        session.prepareDevice()
        session.weightsFromHost()
        return session, session.initAnchorArrays()

    return make


@pytest.fixture
def weights_of():
    """Gives a session's weights on its device, by name, in arrays like those given."""

    def read(session, arrays):
        session.weightsToHost()
        found = {name: np.empty_like(array) for name, array in arrays.items()}
        session.readWeights(popart.PyWeightsIO(found))
        return found

    return read
