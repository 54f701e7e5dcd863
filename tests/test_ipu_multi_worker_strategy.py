import doctest
import inspect
import json

import keras
import pytest
import tensorflow as tf

from ipu_keras import ipu_multi_worker_strategy
from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER
from ipu_keras.ipu_multi_worker_strategy import IPUMultiWorkerStrategy
from ipu_keras.keras.extensions import ModelExtension
from ipu_keras.machine.system import SYSTEM

IPU = "/job:localhost/replica:0/task:0/device:IPU:0"
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


@pytest.fixture(autouse=True, scope="module")
def one_device():
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    IPUConfig().configure_ipu_system()
    yield
    SYSTEM.reset()


def resolver(**jobs):
    spec = tf.train.ClusterSpec(jobs)
    return tf.distribute.cluster_resolver.SimpleClusterResolver(spec)


@pytest.fixture
def strategy():
    return IPUMultiWorkerStrategy(resolver(worker=["localhost:1"]))


def test_the_example():
    assert doctest.testmod(ipu_multi_worker_strategy).failed == 0


def test_the_documented_name_and_signature():
    from tensorflow.python import ipu

    assert ipu.ipu_multi_worker_strategy.IPUMultiWorkerStrategy is IPUMultiWorkerStrategy
    assert ipu.ipu_multi_worker_strategy.IPUMultiWorkerStrategyV1 is IPUMultiWorkerStrategy
    parameters = inspect.signature(IPUMultiWorkerStrategy).parameters
    assert list(parameters) == ["cluster_resolver", "ipu_device", "variables_on_host"]
    assert parameters["ipu_device"].default == "/device:IPU:0"
    assert parameters["variables_on_host"].default is False


@pytest.mark.parametrize(
    "jobs",
    [
        {},
        {"worker": ["localhost:1"]},
        {"chief": ["localhost:1"]},
        {"chief": ["localhost:1"], "evaluator": ["localhost:2"]},
    ],
)
def test_a_single_worker(jobs):
    given = resolver(**jobs)
    strategy = IPUMultiWorkerStrategy(given)
    assert strategy.num_replicas_in_sync == 1
    assert strategy.extended.worker_devices == strategy.extended.parameter_devices == (IPU,)
    assert strategy.cluster_resolver is given
    config = strategy.update_config_proto(tf.compat.v1.ConfigProto())
    assert isinstance(config, tf.compat.v1.ConfigProto)


def test_the_cluster_of_the_environment(monkeypatch):
    two = {"cluster": {"worker": ["localhost:1", "localhost:2"]}}
    monkeypatch.setenv("TF_CONFIG", json.dumps({**two, "task": {"type": "worker", "index": 1}}))
    several = IPUMultiWorkerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    assert several.num_replicas_in_sync == 2
    monkeypatch.delenv("TF_CONFIG")
    alone = IPUMultiWorkerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    assert alone.num_replicas_in_sync == 1


def test_no_cluster():
    with pytest.raises(TypeError, match=r"^`cluster_resolver` must be a tf\.distribute\.cluster_"):
        IPUMultiWorkerStrategy("/device:IPU:0")


def trained(strategy):
    """Trains a weight, and returns it and the momentum of its optimizer."""
    with strategy.scope():
        weight = tf.Variable(1.0)
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build([weight])

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = (x * weight) ** 2
        # On hardware the update of variables on the host has to be placed there explicitly.
        with tf.device(weight.device if "CPU" in weight.device else None):
            optimizer.apply([tape.gradient(loss, weight)], [weight])
        return loss

    for _ in range(3):
        assert strategy.experimental_run_v2(step, args=[tf.constant(2.0)]).device == IPU
    return weight, optimizer.momentums[0]


@pytest.mark.parametrize(("on_host", "device"), [(False, IPU), (True, CPU)])
def test_a_training_loop(on_host, device):
    strategy = IPUMultiWorkerStrategy(resolver(), variables_on_host=on_host)
    weight, momentum = trained(strategy)
    expected, velocity = 1.0, 0.0
    for _ in range(3):
        velocity = 0.9 * velocity - 0.1 * 8 * expected
        expected += velocity
    assert weight.numpy() == pytest.approx(expected)
    assert weight.device == momentum.value.device == device
    (parameters,) = strategy.extended.parameter_devices
    assert device.endswith(parameters)


def test_variables_that_are_synchronised_when_read_stay_on_the_ipu():
    strategy = IPUMultiWorkerStrategy(resolver(), variables_on_host=True)
    with strategy.scope():
        total = tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    assert total.device == IPU


def test_models_have_no_extensions(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    assert not isinstance(model, ModelExtension)
    assert model.weights[0].value.device == IPU


def test_a_device_that_is_not_configured():
    with pytest.raises(ValueError, match="IPU:5"):
        IPUMultiWorkerStrategy(resolver(), "/device:IPU:5")
