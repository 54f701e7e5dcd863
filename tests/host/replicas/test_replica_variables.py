"""Functions that all replicas of a device run together, and the variables that they write."""

import doctest

import keras
import numpy as np
import pytest
import tensorflow as tf
from replicas import trace

from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER
from ipu_keras.host.replicas import replica_variables
from ipu_keras.host.replicas.replica_variables import ReplicaVariables, written_captures
from ipu_keras.internals.tensorflow.functions import call_with_captures
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops.cross_replica_ops import cross_replica_sum
from ipu_keras.ops.replication_ops import replication_index
from ipu_keras.utils import reset_ipu_seed


@pytest.fixture(scope="module", autouse=True)
def device():
    """/device:IPU:0 with four IPUs."""
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = 4
    config.configure_ipu_system()
    yield
    SYSTEM.reset()


@pytest.fixture
def strategy():
    return IPUStrategy()


def index():
    return tf.cast(replication_index(), tf.float32)


def test_what_replicas_add_up(strategy):
    @tf.function
    def total(x):
        return cross_replica_sum(x * (1.0 + index()))

    result = strategy.run(total, [tf.constant([1.0, 2.0])])
    # 1 + 2 + 3 + 4 times the argument, which all replicas get.
    np.testing.assert_array_equal(result, [10.0, 20.0])
    assert result.device.endswith("IPU:0")


def test_without_an_exchange_replica_0_is_all_that_is_seen(strategy):
    with strategy.scope():
        count = tf.Variable(0.0)

    @tf.function
    def step():
        return count.assign_add(1.0)

    assert [float(strategy.run(step)) for _ in range(2)] == [1.0, 2.0]


def test_the_result_is_that_of_replica_0(strategy):
    @tf.function
    def number():
        return index()

    assert float(strategy.run(number)) == 0.0


def test_variables_of_replicas_stay_apart_until_the_host_writes(strategy):
    with strategy.scope():
        own = tf.Variable(0.0)

    @tf.function
    def step(amount):
        own.assign_add(amount * index())
        return cross_replica_sum(own.read_value())

    # Replica r has r, then 2 r.
    assert [float(strategy.run(step, [tf.constant(1.0)])) for _ in range(2)] == [6.0, 12.0]
    assert float(own.numpy()) == 0.0
    own.assign(1.0)
    assert float(strategy.run(step, [tf.constant(1.0)])) == 4 + 6


def test_a_training_loop_of_ones_own(strategy):
    """Gradients are added over replicas, each of which has a part of the batch."""
    keras.utils.set_random_seed(1)
    stock = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    with strategy.scope():
        model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        model.set_weights(stock.get_weights())
        optimizer.build(model.trainable_variables)
    generator = np.random.default_rng(0)
    x = tf.constant(generator.normal(size=(8, 3)).astype("float32"))
    y = tf.constant(generator.normal(size=(8, 1)).astype("float32"))

    @tf.function
    def step(x, y):
        mine = replication_index()
        x, y = (tf.reshape(part, (4, 2, -1))[mine] for part in (x, y))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x) - y) ** 2)
        weights = model.trainable_variables
        gradients = [cross_replica_sum(g) for g in tape.gradient(loss, weights)]
        optimizer.apply(gradients, weights)
        return cross_replica_sum(loss)

    reference = keras.optimizers.SGD(0.1, momentum=0.9)
    for _ in range(3):
        loss = strategy.run(step, [x, y])
        with tf.GradientTape() as tape:
            expected = tf.reduce_sum((stock(x) - y) ** 2)
        gradients = tape.gradient(expected, stock.trainable_variables)
        reference.apply(gradients, stock.trainable_variables)
        np.testing.assert_allclose(float(loss), float(expected), rtol=1e-5)
    for one, other in zip(model.get_weights(), stock.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def called(concrete, variables, replica):
    """What a function without arguments returns with the variables of a replica."""
    own = variables.captures_of(replica)
    captures = [own.get(capture.ref(), capture) for capture in concrete.captured_inputs]
    return tf.nest.flatten(call_with_captures(concrete, [], captures))


def test_only_what_is_written_is_copied():
    read, written = tf.Variable(1.0), tf.Variable(2.0, name="written")

    @tf.function
    def step():
        return written.assign_add(read)

    concrete = step.get_concrete_function()
    variables = ReplicaVariables([concrete], 3, IPUStrategy().device)
    variables.synchronize()
    assert variables.captures_of(0) == {}
    for replica in (1, 2):
        assert list(variables.captures_of(replica)) == [written.handle.ref()]
    assert [float(called(concrete, variables, replica)[0]) for replica in (2, 2, 1)] == [3, 4, 3]
    assert float(written.numpy()) == 2.0
    variables.synchronize()
    assert float(called(concrete, variables, 2)[0]) == 3


def test_seeds_differ_by_replica():
    generator = keras.random.SeedGenerator(7)

    @tf.function
    def draw():
        return keras.random.uniform((2,), seed=generator)

    concrete = draw.get_concrete_function()
    variables = ReplicaVariables([concrete], 3, IPUStrategy().device)
    variables.synchronize()
    drawn = [called(concrete, variables, replica)[0].numpy().tolist() for replica in range(3)]
    assert len({tuple(numbers) for numbers in drawn}) == 3
    state = generator.state.value
    for replica in (1, 2):
        (copy,) = variables.captures_of(replica).values()
        value = tf.raw_ops.ReadVariableOp(resource=copy, dtype=state.dtype)
        # One draw later, and 0x9E3779B9 apart.
        assert value.numpy().tolist() == [7 + 0x9E3779B9 * replica, 1]


def test_replicas_that_draw_the_same_numbers(strategy):
    with strategy.scope():
        generator = keras.random.SeedGenerator(7)

    @tf.function
    def step():
        number = keras.random.uniform((), seed=generator)
        # Those of all replicas, each in a place of its own.
        return cross_replica_sum(number * tf.one_hot(replication_index(), 4))

    def drawn():
        return len(np.unique(strategy.run(step)))

    try:
        assert drawn() == 4
        reset_ipu_seed(1, experimental_identical_replicas=True)
        assert [drawn(), drawn()] == [1, 1]
        reset_ipu_seed(1)
        assert drawn() == 4
    finally:
        reset_ipu_seed(1)


def test_variables_that_only_kernels_write_are_those_of_replicas(strategy):
    """As the slots of `tf.compat.v1.train` optimizers are."""
    with strategy.scope():
        weight, momentum = tf.Variable(0.0), tf.Variable(0.0)

    @tf.function
    def step():
        gradient = cross_replica_sum(index())
        arguments = (weight.handle, momentum.handle, -1.0, gradient, 0.5)
        tf.raw_ops.ResourceApplyMomentum(
            **dict(zip(("var", "accum", "lr", "grad", "momentum"), arguments, strict=True))
        )

    for _ in range(2):
        strategy.run(step)
    # 0 + 1 + 2 + 3, and then half of the momentum of before.
    assert float(momentum) == 6.0 + 3.0
    assert float(weight) == 6.0 + 9.0


def test_what_a_step_writes():
    """Directly, in a branch, and in a called function; reading is not writing."""
    variables = [tf.Variable(0.0, name=name) for name in "abcd"]
    a, b, c, d = variables

    @tf.function
    def inner(x):
        c.assign_add(x + d)

    def function(x):
        a.assign_add(x * d)
        tf.cond(x > 0.0, lambda: b.assign_add(d), lambda: d.read_value())
        inner(x)

    written = written_captures(trace(function, 1, tf.TensorSpec(())))
    names = [v.name for handle in written for v in variables if v.handle is handle]
    assert sorted(names) == ["a:0", "b:0", "c:0"]
    assert written_captures(trace(lambda: d.read_value(), 1)) == []


def test_examples():
    assert doctest.testmod(replica_variables).failed == 0
