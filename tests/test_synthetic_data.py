"""What `--use_synthetic_data`, its categories, and `--null_data_feed` do to data of programs."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from in_sessions import compiled, counting, opened

from ipu_keras import loops
from ipu_keras.config import IPUConfig
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops import rand_ops
from ipu_keras.ops.host_embedding import create_host_embedding
from ipu_keras.ops.host_embedding_optimizers import HostEmbeddingOptimizerSpec
from ipu_keras.utils import reset_ipu_seed

X, Y = np.full((8, 4), 3.0, np.float32), np.full((8, 2), 5.0, np.float32)


@pytest.fixture(autouse=True, params=[1, 2], ids=["1 replica", "2 replicas"])
def num_ipus(request, monkeypatch):
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = request.param
    config.configure_ipu_system()
    yield request.param
    SYSTEM.reset()


# Methods of a single batch are for one replica, and several read infeeds in loops only.
of_one_replica = pytest.mark.parametrize("num_ipus", [1], indirect=True)


@pytest.fixture
def flags(monkeypatch):
    def set_flags(*names):
        monkeypatch.setenv("TF_POPLAR_FLAGS", " ".join(f"--{name}" for name in names))

    return set_flags


def dense(**options):
    with IPUStrategy().scope():
        layer = keras.layers.Dense(2, kernel_initializer="ones", name="dense")
        model = keras.Sequential([keras.Input((4,)), layer])
        model.compile(keras.optimizers.SGD(0.01), "mae", steps_per_execution=2, **options)
    return model


class TestInfeed:
    @pytest.mark.parametrize(
        ("asked", "loss"),
        [
            # Each output is the sum of four inputs, all of one value; the loss its distance from
            # the label, of the same value.
            (["synthetic_data_categories=infeed"], 0.0),
            (["synthetic_data_categories=infeed", "synthetic_data_initializer=2"], 6.0),
            (["synthetic_data_categories=infeed", "synthetic_data_initializer=-0.5"], 1.5),
            (["null_data_feed"], 0.0),
            (["null_data_feed", "synthetic_data_initializer=2"], 0.0),
            ([], 7.0),
        ],
    )
    def test_models_are_fed_what_the_initializer_says(self, flags, asked, loss):
        flags(*asked)
        assert dense().evaluate(X, Y, batch_size=2, verbose=0) == loss

    def test_datasets_are_not_read(self, flags):
        flags("synthetic_data_categories=infeed", "synthetic_data_initializer=1")

        def refuse():
            raise AssertionError("a dataset was read")
            yield

        spec = (tf.TensorSpec((2, 4)), tf.TensorSpec((2, 2)))
        data = tf.data.Dataset.from_generator(refuse, output_signature=spec)
        data = data.apply(tf.data.experimental.assert_cardinality(8))
        model = dense()
        history = model.fit(data, epochs=2, shuffle=False, verbose=0).history
        assert len(history["loss"]) == 2
        assert (model.get_weights()[0] < 1).all()  # it learns to give 1 for 1, 1, 1, 1
        assert model.predict(data.map(lambda x, y: x), verbose=0).shape == (16, 2)

    def test_random_numbers_are_of_a_normal_distribution(self, flags):
        flags("synthetic_data_categories=infeed", "synthetic_data_initializer=random")
        with IPUStrategy().scope():
            model = keras.Sequential([keras.Input((1000,)), keras.layers.Identity()])
            model.compile()
        found = model.predict(np.zeros((4, 1000), np.float32), batch_size=2, verbose=0)
        assert abs(found.mean()) < 0.1
        assert abs(found.std() - 1) < 0.1
        np.testing.assert_array_equal(found[:2], found[2:])

    @of_one_replica
    def test_single_batches(self, flags):
        flags("synthetic_data_categories=infeed", "synthetic_data_initializer=2")
        np.testing.assert_array_equal(dense().predict_on_batch(X), np.full((8, 2), 8.0))

    @pytest.mark.parametrize("value", [0, 2])
    def test_infeed_queues_of_functions(self, flags, value, num_ipus):
        flags("synthetic_data_categories=infeed", f"synthetic_data_initializer={value}")
        queue, sent = IPUInfeedQueue(counting(2)), IPUOutfeedQueue()
        assert queue.initializer is None

        @tf.function
        def step():
            loops.repeat(5, lambda x: sent.enqueue(x), [], queue)

        IPUStrategy().run(step)
        expected = np.full((5,) if num_ipus == 1 else (5, 2), value)
        np.testing.assert_array_equal(sent.dequeue(), expected)

    def test_infeed_queues_of_sessions(self, flags, num_ipus):
        flags("synthetic_data_categories=infeed", "synthetic_data_initializer=2")
        with tf.Graph().as_default():
            queue, sent = IPUInfeedQueue(counting(2)), IPUOutfeedQueue()

            def net():
                return loops.repeat(5, lambda x: sent.enqueue(x), [], queue)

            run = compiled(net)
            taken = sent.dequeue()
            with opened(queue.initializer) as session:
                session.run(run)
                expected = np.full((5,) if num_ipus == 1 else (5, 2), 2.0)
                np.testing.assert_array_equal(session.run(taken), expected)

    @of_one_replica
    def test_iterators_that_functions_are_given(self, flags):
        flags("synthetic_data_categories=infeed", "synthetic_data_initializer=2")
        data = iter(counting(1))
        step = tf.function(lambda iterator: next(iterator) + next(iterator))
        strategy = IPUStrategy()
        assert [float(strategy.run(step, [data])) for _ in range(2)] == [4.0, 4.0]
        assert next(data) == 0.0


class TestOutfeed:
    def test_logs_and_predictions_are_zeros_and_weights_are_trained(self, flags):
        flags("synthetic_data_categories=outfeed")
        model = dense(metrics=["mse"])
        before = model.get_weights()[0]
        history = model.fit(X, Y, batch_size=2, verbose=0).history
        assert history == {"loss": [0.0], "mse": [0.0]}
        assert (model.get_weights()[0] < before).all()
        assert model.evaluate(X, Y, batch_size=2, verbose=0) == [0.0, 0.0]
        predicted = model.predict(X, batch_size=2, verbose=0)
        np.testing.assert_array_equal(predicted, np.zeros((8, 2)))

    def test_logs_of_each_step_are_zeros(self, flags):
        flags("synthetic_data_categories=outfeed")
        model = dense()
        model.set_asynchronous_callbacks(True)
        seen = []
        noting = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: seen.append(logs["loss"])
        )
        model.fit(X, Y, batch_size=2, verbose=0, callbacks=[noting])
        assert seen == [0.0] * 4

    def test_queues_of_functions_stay_empty(self, flags, num_ipus):
        flags("synthetic_data_categories=outfeed")
        every, last = IPUOutfeedQueue(), IPUOutfeedQueue(outfeed_mode=IPUOutfeedMode.LAST)

        def body(x):
            return x + 1.0, every.enqueue({"x": x, "two": tf.stack([x, x])})

        @tf.function
        def step():
            [end] = [loops.repeat(3, body, [0.0])]
            last.enqueue(end)
            return end

        assert IPUStrategy().run(step) == 3.0
        replicas = () if num_ipus == 1 else (2,)
        found = every.dequeue()
        assert (found["x"].shape, found["two"].shape) == ((0, *replicas), (0, *replicas, 2))
        with pytest.raises(
            tf.errors.FailedPreconditionError, match="last value from an outfeed queue before it"
        ) as error:
            last.dequeue()
        assert "take synthetic data of outfeeds out of TF_POPLAR_FLAGS" in error.value.__notes__[0]

    def test_queues_of_sessions_stay_empty(self, flags, num_ipus):
        flags("synthetic_data_categories=outfeed")
        with tf.Graph().as_default():
            queue = IPUOutfeedQueue()
            run = compiled(lambda: loops.repeat(3, lambda x: (x + 1.0, queue.enqueue(x)), [0.0]))
            taken = queue.dequeue()
            with opened() as session:
                assert session.run(run) == [3.0]
                assert session.run(taken).shape == ((0,) if num_ipus == 1 else (0, 2))


class TestParameters:
    def test_models_keep_their_weights_and_compute_with_others(self, flags):
        flags("synthetic_data_categories=parameters", "synthetic_data_initializer=0.5")
        model = dense()
        before = model.get_weights()
        predicted = model.predict(X, batch_size=2, verbose=0)
        np.testing.assert_array_equal(predicted, np.full((8, 2), 4 * 3 * 0.5 + 0.5))
        first = model.fit(X, Y, batch_size=2, verbose=0).history["loss"]
        second = model.fit(X, Y, batch_size=2, verbose=0).history["loss"]
        assert second != first  # they are trained on the device
        for weight, old in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(weight, old)

    def test_functions_get_other_arguments_and_give_zeros(self, flags):
        flags("synthetic_data_categories=parameters", "synthetic_data_initializer=2")
        variable, seen = tf.Variable(1.0), IPUOutfeedQueue()

        @tf.function
        def step(x, scale):
            variable.assign_add(x)
            seen.enqueue(scale * variable)
            return {"sum": variable + x}

        strategy = IPUStrategy()
        for _ in range(2):
            found = strategy.run(step, [tf.constant(7.0)], {"scale": tf.constant(9.0)})
            assert found["sum"] == 0.0
            assert variable == 1.0
        assert seen.dequeue().numpy().reshape(2, -1)[:, 0].tolist() == [8.0, 12.0]


class TestSeed:
    @pytest.mark.parametrize("initializer", [[], ["synthetic_data_initializer=7"]])
    def test_seeds_that_are_set_do_not_reach_the_device(self, flags, initializer):
        strategy = IPUStrategy()
        draw = tf.function(lambda: rand_ops.dropout(tf.ones([64]), rate=0.5))

        def drawn(seed):
            reset_ipu_seed(seed)
            return strategy.run(draw).numpy().tolist()

        constant = drawn(7 if initializer else 0)
        assert drawn(1) != drawn(2)
        flags("synthetic_data_categories=seed", *initializer)
        assert drawn(1) == drawn(2) == constant


class TestHostEmbedding:
    def test_tables_are_neither_read_nor_written(self, flags, num_ipus):
        flags("synthetic_data_categories=hostembedding", "synthetic_data_initializer=3")
        table = create_host_embedding(
            f"synthetic_{num_ipus}",
            [10, 2],
            tf.float32,
            optimizer_spec=HostEmbeddingOptimizerSpec(0.5),
            initializer=np.ones((10, 2)),
        )

        @tf.function
        def step(ids):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(table.lookup(ids))
            tape.gradient(loss, [])
            return loss

        with table.register():
            assert IPUStrategy().run(step, [tf.constant([7, 3])]) == 12.0
        np.testing.assert_array_equal(table.get_embedding_tensor(), np.ones((10, 2)))


def test_everything_at_once(flags, num_ipus):
    flags("use_synthetic_data")
    model = dense()
    before = model.get_weights()
    assert model.fit(X, Y, batch_size=2, verbose=0).history == {"loss": [0.0]}
    assert not model.predict(X, batch_size=2, verbose=0).any()
    np.testing.assert_array_equal(model.get_weights()[0], before[0])
    assert IPUStrategy().run(tf.function(lambda x: x + 1.0), [tf.constant(2.0)]) == 0.0


class TestFlagsOfLater:
    @of_one_replica
    def test_models_follow_them(self, flags):
        model = dense()

        def loss():
            return model.test_on_batch(X, Y)

        assert loss() == 7.0
        flags("use_synthetic_data", "synthetic_data_initializer=2")
        assert loss() == 0.0  # nothing is sent
        flags("synthetic_data_categories=infeed", "synthetic_data_initializer=2")
        assert loss() == 6.0
        flags("synthetic_data_categories=parameters")
        assert loss() == 5.0
        flags()
        assert loss() == 7.0

    def test_functions_say_that_they_do_not(self, flags):
        function = tf.function(lambda x: x + 1.0)
        strategy = IPUStrategy()
        assert strategy.run(function, [tf.constant(2.0)]) == 3.0
        flags("use_synthetic_data")
        with pytest.warns(UserWarning, match="Received: synthetic hostembedding is "):
            assert strategy.run(function, [tf.constant(2.0)]) == 3.0
        anew = tf.function(function.python_function)
        assert strategy.run(anew, [tf.constant(2.0)]) == 0.0
