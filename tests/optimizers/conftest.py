"""Two weights that a v1 optimizer trains, in the graph of a session or on an IPU."""

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops.replication_ops import replication_index

v1 = tf.compat.v1


def loss_of(weight, bias, x):
    """Its gradients are x, and 2 x for each element of the bias."""
    return weight * x + 2.0 * tf.reduce_sum(bias) * x


@pytest.fixture
def in_session():
    """A function: the weight, the bias and the global step after each of some batches."""

    def train(make_optimizer, batches):
        with tf.Graph().as_default():
            x = v1.placeholder(tf.float32, [])
            weight = v1.get_variable("weight", initializer=1.0)
            bias = v1.get_variable("bias", initializer=[0.0, 0.0])
            global_step = v1.train.create_global_step()
            operation = make_optimizer().minimize(loss_of(weight, bias, x), global_step)
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                found = []
                for batch in batches:
                    session.run(operation, {x: batch})
                    found.append(session.run([weight, bias[0], global_step]))
        return np.array(found)

    return train


@pytest.fixture(scope="module")
def strategies():
    """Of one replica and of two."""
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = [1, 2]
    config.configure_ipu_system()
    yield {k: IPUStrategy(f"/device:IPU:{k - 1}") for k in (1, 2)}
    SYSTEM.reset()


@pytest.fixture
def on_ipu(strategies):
    """A function: as `in_session`, where replica k has batches that are larger by k."""

    def train(make_optimizer, batches, num_replicas=1, jit_compile=None):
        strategy = strategies[num_replicas]
        with strategy.scope():
            weight, bias = tf.Variable(1.0), tf.Variable([0.0, 0.0])
            global_step = tf.Variable(0, dtype=tf.int64)
            optimizer = make_optimizer()

        @tf.function(jit_compile=jit_compile)
        def step(x):
            x += tf.cast(replication_index(), tf.float32)
            with tf.GradientTape() as tape:
                loss = loss_of(weight, bias, x)
            gradients = tape.gradient(loss, [weight, bias])
            optimizer.apply_gradients(
                zip(gradients, [weight, bias], strict=True), global_step=global_step
            )

        found = []
        for batch in batches:
            strategy.run(step, [tf.constant(float(batch))])
            found.append([float(weight), float(bias[0]), int(global_step)])
        assert {variable.device[-5:] for variable in optimizer.variables()} <= {
            f"IPU:{num_replicas - 1}"
        }
        return np.array(found)

    return train
