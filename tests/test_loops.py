"""Loops within programs, in sessions and in functions, against plain TensorFlow and NumPy."""

import doctest

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras import ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue, loops
from ipu_keras.config import IPUConfig, reset_ipu_configuration
from ipu_keras.device import device_for
from ipu_keras.ipu_compiler import compile as compile_computation
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.optimizers.cross_replica_optimizer import CrossReplicaOptimizer
from ipu_keras.scopes import ipu_scope

v1 = tf.compat.v1
IPU = "/device:IPU:0"


@pytest.fixture(autouse=True)
def _configured():
    reset_ipu_configuration()
    yield
    reset_ipu_configuration()


def configure(num_ipus):
    config = IPUConfig()
    config.auto_select_ipus = num_ipus
    config.configure_ipu_system()


@pytest.mark.parametrize("module", [ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue, loops])
def test_examples(module):
    assert doctest.testmod(module).failed == 0


def batches(num_batches, *shape):
    random = np.random.default_rng(0)
    x = random.standard_normal((num_batches, 4, *shape)).astype("float32")
    return x, random.integers(0, 3, (num_batches, 4)).astype("int32")


def dense(x):
    for layer, (width, units) in enumerate([(5, 8), (8, 3)]):
        initial = v1.glorot_uniform_initializer(seed=layer)
        x = x @ v1.get_variable(f"w{layer}", [width, units], initializer=initial)
        x = tf.tanh(x) if layer == 0 else x
    return x


def keras_layers(x):
    initial = [keras.initializers.GlorotUniform(seed=layer) for layer in range(2)]
    x = keras.layers.Dense(8, activation="tanh", kernel_initializer=initial[0])(x)
    return keras.layers.Dense(3, kernel_initializer=initial[1])(x)


def plain_variables(x):
    weights = tf.Variable(tf.ones((5, 3)) * [0.1, 0.2, 0.3], name="weights")
    return x @ weights


def convolution(x):
    x = tf.reshape(x, (4, 5, 1, 1))
    kernel = v1.get_variable("kernel", initializer=tf.ones((3, 1, 1, 3)) * [0.1, 0.2, 0.3])
    return tf.reduce_mean(tf.nn.conv2d(x, kernel, 1, "SAME"), axis=(1, 2))


OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: v1.train.AdamOptimizer(0.01),
}


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [
        *((dense, name) for name in OPTIMIZERS),
        (keras_layers, "adam"),
        (plain_variables, "momentum"),
        (convolution, "sgd"),
    ],
)
def test_many_steps_of_a_session_equal_those_of_plain_tensorflow(model, optimizer):
    x, y = batches(10, 5)
    trained = {}
    for on_ipu in (False, True):
        keras.backend.clear_session()
        with tf.Graph().as_default():
            dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat()

            def step(x, y):
                logits = model(x)
                loss = tf.reduce_mean(
                    tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
                )
                with tf.control_dependencies([OPTIMIZERS[optimizer]().minimize(loss)]):
                    return tf.identity(loss)

            infeed, outfeed = IPUInfeedQueue(dataset), IPUOutfeedQueue()

            def repeated(step=step, infeed=infeed, outfeed=outfeed):
                return loops.repeat(50, lambda *b: outfeed.enqueue(step(*b)), [], infeed)

            if on_ipu:
                with ipu_scope(IPU):
                    run = compile_computation(repeated, [])
                dequeued, initializer = outfeed.dequeue(), infeed.initializer
            else:
                iterator = v1.data.make_initializable_iterator(dataset)
                run, initializer = step(*iterator.get_next()), iterator.initializer
            with v1.Session() as session:
                session.run([v1.global_variables_initializer(), initializer])
                if on_ipu:
                    for _ in range(4):
                        session.run(run)
                    losses = session.run(dequeued)
                else:
                    losses = np.array([session.run(run) for _ in range(200)])
                trained[on_ipu] = [losses, *session.run(v1.trainable_variables())]
    for ours, stock in zip(trained[True], trained[False], strict=True):
        if model is convolution:  # TensorFlow's executor runs it
            np.testing.assert_array_equal(ours, stock)
        np.testing.assert_allclose(ours, stock, rtol=2e-6, atol=1e-6)
    counters = device_for(0).engine.counters()
    assert sum(counters.num_steps.values()) >= 200


def in_session(num_ipus, body, inputs, dataset, mode=IPUOutfeedMode.ALL, runs=1, steps=4):
    """What a loop hands on, and what it has sent."""
    configure(num_ipus)
    with tf.Graph().as_default():
        infeed = IPUInfeedQueue(dataset()) if dataset else None
        outfeed = IPUOutfeedQueue(outfeed_mode=mode)
        with ipu_scope(IPU):
            handed = compile_computation(
                lambda: loops.repeat(
                    steps, lambda *given, **named: body(outfeed, *given, **named), inputs, infeed
                )
            )
        dequeued = outfeed.dequeue()
        with v1.Session() as session:
            session.run([v1.global_variables_initializer()])
            if infeed is not None:
                session.run(infeed.initializer)
            for _ in range(runs):
                found = session.run(handed)
            return found, session.run(dequeued)


def in_function(num_ipus, body, inputs, dataset, mode=IPUOutfeedMode.ALL, runs=1, steps=4):
    configure(num_ipus)
    infeed = IPUInfeedQueue(dataset()) if dataset else None
    outfeed = IPUOutfeedQueue(outfeed_mode=mode)
    if infeed is not None:
        assert infeed.initializer is None

    @tf.function(jit_compile=runs == 1)
    def function():
        handed = loops.repeat(
            steps, lambda *given, **named: body(outfeed, *given, **named), inputs, infeed
        )
        return handed if isinstance(handed, list) else None

    for _ in range(runs):
        found = IPUStrategy().run(function)
    return tf.nest.map_structure(np.asarray, (found, outfeed.dequeue()))


def numbers():
    return tf.data.Dataset.range(64).map(lambda k: tf.cast(k, tf.float32))


WAYS = pytest.mark.parametrize("way", [in_session, in_function])


@WAYS
@pytest.mark.parametrize("runs", [1, 2])
def test_what_is_handed_on_and_sent(way, runs):
    def body(outfeed, total, count, x):
        sent = outfeed.enqueue({"total": total, "pair": (x, count)})
        return [total + x, count + 1, sent]

    (total, count), sent = way(1, body, [0.5, 7], numbers, runs=runs)
    first = 4 * (runs - 1)
    assert (float(total), int(count)) == (0.5 + sum(range(first, first + 4)), 11)
    np.testing.assert_array_equal(sent["pair"][0], np.arange(4 * runs))
    np.testing.assert_array_equal(sent["pair"][1], [7, 8, 9, 10] * runs)
    np.testing.assert_array_equal(sent["total"][:4], [0.5, 0.5, 1.5, 3.5])


@WAYS
def test_only_the_last_is_kept(way):
    _, sent = way(1, lambda o, x: o.enqueue(x * x), [], numbers, IPUOutfeedMode.LAST, runs=2)
    assert float(sent) == 49.0


@WAYS
@pytest.mark.parametrize("mode", IPUOutfeedMode)
def test_elements_take_turns_among_replicas(way, mode):
    _, sent = way(2, lambda o, x: o.enqueue(2.0 * x), [], numbers, mode)
    expected = 2.0 * np.arange(8).reshape(4, 2)
    np.testing.assert_array_equal(sent, expected if mode is IPUOutfeedMode.ALL else expected[-1])


@WAYS
def test_elements_of_dicts_are_arguments_by_name(way):
    def named():
        return numbers().map(lambda k: {"b": k, "a": -k})

    _, sent = way(1, lambda o, a, b: o.enqueue(a * 10.0 + b), [], named)
    np.testing.assert_array_equal(sent, -9.0 * np.arange(4))


def test_replicas_of_a_session_average_gradients():
    configure(2)
    x, y = (batches(16, 3)[0], np.ones((16, 4, 1), "float32"))
    with tf.Graph().as_default():
        infeed = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices((x, y)))

        def step(x, y):
            w = v1.get_variable("w", [3, 1], initializer=v1.ones_initializer())
            loss = tf.reduce_mean((x @ w - y) ** 2)
            optimizer = v1.train.MomentumOptimizer(0.1, 0.9)
            return CrossReplicaOptimizer(optimizer).minimize(loss)

        with ipu_scope(IPU):
            run = compile_computation(lambda: loops.repeat(4, step, [], infeed))
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), infeed.initializer])
            session.run(run)
            session.run(run)
            trained = session.run(v1.trainable_variables()[0])
    weight, momentum = np.ones((3, 1)), np.zeros((3, 1))
    for k in range(0, 16, 2):
        errors = [(x[j], x[j] @ weight - y[j]) for j in (k, k + 1)]
        momentum = 0.9 * momentum + sum(a.T @ e / 2 for a, e in errors) / 2
        weight = weight - 0.1 * momentum
    np.testing.assert_allclose(trained, weight, rtol=1e-5)


def test_no_step_leaves_the_infeed_where_it_is():
    configure(1)
    infeed, outfeed = IPUInfeedQueue(numbers()), IPUOutfeedQueue()
    assert infeed.initializer is None

    @tf.function
    def run(n):
        loops.repeat(0, lambda x: None, [], infeed)
        loops.repeat(2, lambda x: outfeed.enqueue(x), [], infeed)

    IPUStrategy().run(run, [1])
    assert outfeed.dequeue().numpy().tolist() == [0.0, 1.0]


@WAYS
def test_while_a_condition_holds(way):
    configure(1)
    infeed, outfeed = IPUInfeedQueue(numbers()), IPUOutfeedQueue()
    assert infeed.initializer is None

    @tf.function
    def run():
        return loops.while_loop(
            lambda total: total < 20.0,
            lambda total, x: [total + x, outfeed.enqueue(x)],
            [0.0],
            infeed,
        )

    (total,) = IPUStrategy().run(run)
    assert float(total) == 21.0
    assert len(outfeed.dequeue()) == 7


def test_a_branch_of_autograph_in_a_body():
    configure(1)

    @tf.function
    def run():
        def body(total):
            if total < 4.0:
                total = total * 3.0
                total = total + 0.0
            else:
                total = total - 1.0
            return total

        return loops.repeat(4, body, [1.0])

    assert float(IPUStrategy().run(run)[0]) == 7.0


def traced(body, inputs=(), infeed=None, n=3):
    with tf.Graph().as_default(), ipu_scope(IPU):
        queue = None if infeed is None else IPUInfeedQueue(infeed())
        compile_computation(lambda: loops.repeat(n, body, list(inputs), queue))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (
            {"body": lambda: None, "inputs": [1.0]},
            TypeError,
            "Supplied loop body function cannot be called with the specified inputs. You specified "
            "1 inputs",
        ),
        (
            {"body": lambda a: a, "infeed": lambda: numbers().map(lambda k: (k, k))},
            TypeError,
            "cannot be called with the specified inputs. You specified 2 inputs",
        ),
        (
            {"body": lambda a: tf.cast(a, tf.int32), "inputs": [1.0]},
            TypeError,
            "Mismatch between input types and output types for loop body: .*float32.* vs .*int32",
        ),
        (
            {"body": lambda a: [tf.no_op(), a], "inputs": [1.0]},
            ValueError,
            "IPU loop body must return zero or more Tensor values followed by zero or more",
        ),
        ({"body": lambda: None, "n": -1}, ValueError, "`n` must be an integer that is not neg"),
        ({"body": lambda: None, "n": 1.5}, ValueError, "`n` must be .*n=1.5"),
    ],
)
def test_errors(arguments, error, text):
    with pytest.raises(error, match=text):
        traced(**arguments)
