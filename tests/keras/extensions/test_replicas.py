"""Replicas of Keras models: against plain TensorFlow, and by hand."""

import re
from contextlib import nullcontext

import keras
import numpy as np
import pytest
import tensorflow as tf
from comparison import LOSS, assert_same, devices_of
from plain_training import train
from small_models import convolutional, dense, recurrent

from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops.cross_replica_ops import cross_replica_sum
from ipu_keras.ops.replication_ops import replication_index


def raises(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}")


@pytest.fixture(scope="module", autouse=True)
def devices():
    """/device:IPU:0, 1 and 2 with one, two and four IPUs."""
    SYSTEM.connect(DRIVER)
    configure([1, 2, 4])
    yield
    SYSTEM.reset()


@pytest.fixture
def devices_again():
    """Those of the other tests, after a test that configures the system otherwise."""
    yield
    configure([1, 2, 4])


def configure(counts, norm_group_size=1):
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = counts
    config.norms.experimental.distributed_batch_norm_replica_group_size = norm_group_size
    config.configure_ipu_system()


def scope(num_replicas):
    return IPUStrategy(f"/device:IPU:{(1, 2, 4).index(num_replicas)}").scope()


class OwnStep(keras.Model):
    """A train step of the user's own, whose gradients replicas have to add."""

    def __init__(self):
        super().__init__()
        self.layer = keras.layers.Dense(3)

    def build(self, input_shape):
        self.layer.build(input_shape)

    def call(self, x):
        return self.layer(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


def own_step():
    model = OwnStep()
    model.build((None, 6))
    return model


def twins(build, num_replicas):
    keras.utils.set_random_seed(1)
    stock = build()
    keras.utils.set_random_seed(1)
    with scope(num_replicas):
        return stock, build()


# Of all combinations, those in which each two choices meet.
@pytest.mark.parametrize(
    ("build", "num_replicas", "optimizer"),
    [
        (build, num_replicas, ("sgd", "adam")[(row + column) % 2])
        for row, build in enumerate([dense, convolutional, recurrent, own_step])
        for column, num_replicas in enumerate([2, 4])
    ],
)
def test_weights_are_those_of_plain_tensorflow(data, build, num_replicas, optimizer):
    def make():
        if optimizer == "adam":
            return keras.optimizers.Adam(0.01)
        return keras.optimizers.SGD(0.1, momentum=0.9)

    stock, model = twins(build, num_replicas)
    model.compile(make(), LOSS, steps_per_execution=2)
    model.fit(*data, batch_size=4, epochs=3, shuffle=False, verbose=0)
    train(
        stock,
        LOSS,
        make(),
        *data,
        batch_size=4,
        batches_per_update=num_replicas,
        epochs=3,
    )
    assert_same(model.get_weights(), stock.get_weights())
    device = (1, 2, 4).index(num_replicas)
    assert devices_of(model.variables) == {f"IPU:{device}"}


@pytest.mark.parametrize("build", [dense, convolutional])
def test_replicas_that_accumulate(data, build):
    stock, model = twins(build, 2)
    model.compile(keras.optimizers.SGD(0.1), LOSS, steps_per_execution=4)
    model.set_gradient_accumulation_options(4, gradient_accumulation_reduction_method="mean")
    model.fit(*data, batch_size=4, epochs=2, shuffle=False, verbose=0)
    # The mean over steps, but the sum over replicas.
    train(
        stock,
        LOSS,
        keras.optimizers.SGD(0.1),
        *data,
        batch_size=4,
        batches_per_update=8,
        scale=1 / 4,
        epochs=2,
    )
    assert_same(model.get_weights(), stock.get_weights())


def test_a_model_runs_in_the_replicas_that_are_configured_last(data, devices_again):
    stock, model = twins(dense, 2)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), LOSS, steps_per_execution=2)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    for counts in ([1, 2], [1, 4], [2, 1]):
        configure(counts)
        model.fit(*data, batch_size=8, shuffle=False, verbose=0)
        train(stock, LOSS, optimizer, *data, batch_size=8, batches_per_update=counts[1])
        assert int(model.optimizer.iterations) == int(optimizer.iterations)
    assert int(optimizer.iterations) == 4 + 2 + 8
    assert_same(model.get_weights(), stock.get_weights())


def test_a_function_of_a_scripts_own_stays_where_it_was_set(data):
    with scope(2):
        model = dense()
    model.compile("sgd", LOSS)
    own = model.predict_function = lambda iterator: next(iterator)
    model.fit(*data, batch_size=8, verbose=0)
    assert model.predict_function is own


def test_a_model_normalizes_in_the_groups_that_are_configured_last(devices_again):
    with scope(2):
        model = keras.Sequential([keras.Input([1]), keras.layers.BatchNormalization(momentum=0.0)])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    x = np.arange(4, dtype=np.float32).reshape(4, 1)
    for size, mean in ((1, 0.5), (2, 1.5)):
        configure([1, 2], size)
        model.fit(x, x, batch_size=2, shuffle=False, verbose=0)
        assert model.layers[0].moving_mean.numpy() == [mean]  # what replica 0 has


def test_metrics_are_those_of_the_last_replica():
    """Batches 0 to 7 have the losses 0 to 7; replica 1 has the odd ones."""
    with scope(2):
        model = keras.Sequential([keras.Input([1]), keras.layers.Rescaling(1.0)])
    model.compile(loss=lambda y, outputs: outputs, steps_per_execution=2)
    x = np.arange(8, dtype=np.float32).reshape(8, 1)
    assert model.evaluate(x, x, batch_size=1, verbose=0) == np.mean([1, 3, 5, 7])
    # Each evaluation begins anew, for both.
    assert model.evaluate(x, x, batch_size=1, verbose=0) == np.mean([1, 3, 5, 7])


def test_predictions_are_in_the_order_of_the_data(data):
    stock, model = twins(dense, 4)
    model.compile(steps_per_execution=2)
    x, _ = data
    assert_same(
        model.predict(x, batch_size=2, verbose=0), stock.predict(x, batch_size=2, verbose=0)
    )


def test_batch_normalization_of_each_replica():
    """Replica 0 has the samples 0, 2 and then 2, 6; replica 1 others."""
    with scope(2):
        model = keras.Sequential([keras.Input([1]), keras.layers.BatchNormalization(momentum=0.5)])
    model.compile("sgd", "mse", steps_per_execution=2)
    x = np.float32([[0], [2], [10], [30], [2], [6], [0], [0]])
    model.fit(x, np.zeros((8, 1)), batch_size=2, verbose=0, shuffle=False)
    # Means 1 and 4, variances 1 and 4; from 0 and 1.
    layer = model.layers[0]
    assert layer.moving_mean.numpy().item() == 0.5 * (0.5 * 1) + 0.5 * 4
    assert layer.moving_variance.numpy().item() == 0.5 * (0.5 + 0.5 * 1) + 0.5 * 4


class Count(keras.layers.Layer):
    """Adds the number of the replica plus one to a total, in each step, and returns it."""

    def build(self, input_shape):
        self.total = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, inputs):
        self.total.assign_add(1.0 + tf.cast(replication_index(), tf.float32))
        return tf.zeros_like(inputs) + self.total


def counting_model():
    with scope(4):
        model = keras.Sequential([keras.Input([1]), Count()])
    model.compile(loss=lambda y, outputs: outputs, steps_per_execution=1)
    return model


def counted(model, num_steps):
    return model.predict(np.zeros((4 * num_steps, 1)), batch_size=1, verbose=0).ravel().tolist()


def test_variables_diverge_and_the_host_sees_those_of_replica_0():
    model = counting_model()
    assert counted(model, 2) == [1, 2, 3, 4, 2, 4, 6, 8]
    assert float(model.layers[0].total.numpy()) == 2
    # They stay apart from one call to the next.
    assert counted(model, 1) == [3, 6, 9, 12]


def test_what_the_host_writes_reaches_all_replicas():
    model = counting_model()
    counted(model, 1)
    model.layers[0].total.assign(10.0)
    assert counted(model, 1) == [11, 12, 13, 14]


def test_another_program_gets_the_values_of_replica_0():
    model = counting_model()
    counted(model, 1)
    x = np.zeros((4, 1), np.float32)
    # The loss of replica 3, which goes on from 1.
    assert model.evaluate(x, x, batch_size=1, verbose=0) == 5
    assert counted(model, 1) == [3, 4, 5, 6]


def test_each_replica_draws_its_own_numbers():
    class Draw(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.generator = keras.random.SeedGenerator(5)

        def call(self, inputs):
            return inputs + keras.random.uniform((1,), seed=self.generator)

    def drawn(num_replicas, num_batches):
        with scope(num_replicas):
            model = keras.Sequential([keras.Input([1]), Draw()])
        model.compile(steps_per_execution=1)
        draw = model.predict(np.zeros((num_batches, 1)), batch_size=1, verbose=0)
        return draw.reshape(-1, num_replicas)

    alone, by_replica = drawn(1, 8), drawn(4, 32)
    assert len(np.unique(by_replica)) == 32
    np.testing.assert_array_equal(by_replica[:, 0], alone[:, 0])
    np.testing.assert_array_equal(by_replica, drawn(4, 32))


def test_collectives_in_a_layer(data):
    class Together(keras.layers.Layer):
        def call(self, inputs):
            return cross_replica_sum(inputs)

    with scope(2):
        model = keras.Sequential([keras.Input([6]), Together()])
    model.compile(steps_per_execution=2)
    x, _ = data
    found = model.predict(x, batch_size=8, verbose=0).reshape(4, 2, 8, 6)
    sums = x.reshape(4, 2, 8, 6).sum(axis=1)
    np.testing.assert_allclose(found[:, 0], sums, rtol=1e-6)
    np.testing.assert_allclose(found[:, 1], sums, rtol=1e-6)


def test_a_collective_that_nothing_needs_in_a_layer(data):
    class Counted(keras.layers.Layer):
        def call(self, inputs):
            cross_replica_sum(inputs)
            return inputs + 1

    with scope(2):
        model = keras.Sequential([keras.Input([6]), Counted()])
    model.compile(steps_per_execution=2)
    x, _ = data
    np.testing.assert_array_equal(model.predict(x, batch_size=8, verbose=0), x + 1)


class Steps(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_test_batch_end(self, batch, logs=None):
        self.seen.append((batch, float(logs["loss"])))


@pytest.mark.parametrize(
    ("asynchronous", "seen"),
    [
        (False, [(1, 2.0), (3, 4.0)]),
        # Each replica's mean of its own losses so far.
        (True, [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3), (3, 3), (3, 4)]),
    ],
)
def test_callbacks(asynchronous, seen):
    with scope(2):
        model = keras.Sequential([keras.Input([1]), keras.layers.Rescaling(1.0)])
    model.compile(loss=lambda y, outputs: outputs, steps_per_execution=2)
    model.set_asynchronous_callbacks(asynchronous)
    x = np.arange(8, dtype=np.float32).reshape(8, 1)
    steps = Steps()
    model.evaluate(x, x, batch_size=1, verbose=0, callbacks=[steps])
    assert steps.seen == seen


def test_batches_that_cannot_be_shared(data):
    _, model = twins(dense, 4)
    model.compile("sgd", LOSS)
    x, y = data
    with raises(ValueError, "The provided dataset contains 2 items, but all 4 replicas are requ"):
        model.fit(x[:16], y[:16], batch_size=8, verbose=0)
    with raises(ValueError, "The steps of an epoch are shared by the 4 replicas, each of which "):
        model.fit(x, y, batch_size=8, epochs=2, steps_per_epoch=3, verbose=0)
    with raises(ValueError, "Your input does not have enough data. Make sure that your dataset or"):
        model.fit(x, y, batch_size=8, epochs=2, steps_per_epoch=12, verbose=0)
    with raises(ValueError, "The function 'predict' of this model needs batches for 4 replicas "):
        model.predict_on_batch(x[:8])
    assert int(model.optimizer.iterations) == 0


# The last has a rest, which no replica takes.
@pytest.mark.parametrize("steps", [8, None, 9])
@pytest.mark.parametrize("num_replicas", [2, 4])
@pytest.mark.parametrize("count", [1, 2])
def test_steps_are_those_of_all_replicas(data, num_replicas, steps, count):
    x, y = (array[: steps or 8] for array in data)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(1, drop_remainder=True)
    stock, model = twins(dense, num_replicas)
    model.compile(keras.optimizers.SGD(0.1), LOSS, steps_per_execution=count)
    model.set_gradient_accumulation_options(count)
    taken = (steps or 8) // num_replicas * num_replicas
    rest = f"The number of batches \\({steps}\\) is no multiple of the {num_replicas} replicas"
    warned = pytest.warns(UserWarning, match=rest) if taken < (steps or 8) else nullcontext()
    counted = Steps()
    options = {"verbose": 0, "callbacks": [counted]}
    with warned:
        model.fit(dataset, steps_per_epoch=steps, epochs=3, shuffle=False, **options)
        model.evaluate(dataset, steps=steps, **options)
        outputs = model.predict(dataset.map(lambda x, y: x), steps=steps, **options)
    train(
        stock,
        LOSS,
        keras.optimizers.SGD(0.1),
        x[:taken],
        y[:taken],
        batch_size=1,
        batches_per_update=num_replicas * count,
        epochs=3,
    )
    assert int(model.optimizer.iterations) == 3 * taken // num_replicas // count
    assert_same(model.get_weights(), stock.get_weights())
    assert_same(outputs, stock.predict(x[:taken], batch_size=1, verbose=0))
    assert counted.seen[-1][0] == taken // num_replicas - 1
    assert counted.params["steps"] == taken // num_replicas


def test_an_epoch_takes_as_many_batches_as_it_has_steps(data):
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(2, drop_remainder=True)
    _, model = twins(dense, 2)
    model.compile("sgd", LOSS, steps_per_execution=2)
    history = model.fit(
        dataset.repeat(), epochs=2, steps_per_epoch=4, verbose=0, shuffle=False,
        validation_data=dataset, validation_steps=8,
    )  # fmt: skip
    assert int(model.optimizer.iterations) == 4
    assert history.params["steps"] == 2
    assert len(model.predict(dataset.map(lambda x, y: x), steps=4, verbose=0)) == 8
    expected = model.evaluate(dataset, steps=8, verbose=0)
    assert history.history["val_loss"][-1] == expected
