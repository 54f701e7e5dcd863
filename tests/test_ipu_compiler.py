"""Compiled computations: training as stock TensorFlow does it, and where and when they run."""

import collections
import doctest

import keras
import numpy as np
import pytest
import tensorflow as tf
from in_sessions import compiled, configure, counting, opened, run_script
from tensorflow.python.framework import function

from ipu_keras import ipu_compiler, loops
from ipu_keras.config import IPUConfig
from ipu_keras.device import device_for
from ipu_keras.device.placement import TASK
from ipu_keras.host.exceptions import TilesExceptedError
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.ipu_outfeed_queue import IPUOutfeedQueue
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops.cross_replica_ops import cross_replica_sum
from ipu_keras.ops.replication_ops import replication_index
from ipu_keras.optimizers import (
    CrossReplicaGradientAccumulationOptimizerV2,
    CrossReplicaOptimizer,
)

v1 = tf.compat.v1

NUM_STEPS = 200


@pytest.fixture(autouse=True)
def one_ipu():
    configure(1)
    yield
    SYSTEM.reset()


@pytest.fixture
def graph():
    """A session's graph is the current one."""
    with tf.Graph().as_default() as graph:
        yield graph


def test_examples():
    assert doctest.testmod(ipu_compiler).failed == 0


# Training

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.normal(size=(64, 6, 6, 2)).astype("float32")
LABELS = RANDOM.integers(0, 4, 64).astype("int32")
WIDE, NARROW = (0.3 * RANDOM.normal(size=s).astype("float32") for s in ((72, 8), (8, 4)))
KERNEL = RANDOM.normal(size=(3, 3, 2, 4)).astype("float32")


def batches(size=16):
    data = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS))
    return data.shuffle(64, seed=3).repeat().batch(size, drop_remainder=True)


def with_variables(x):
    x = tf.reshape(x, (-1, 72))
    return tf.nn.relu(x @ tf.Variable(WIDE)) @ tf.Variable(tf.constant(NARROW) * 1.0)


def with_get_variable(x):
    x = tf.reshape(x, (-1, 72))
    wide = v1.get_variable("wide", initializer=WIDE)
    return tf.nn.relu(x @ wide) @ v1.get_variable("narrow", initializer=NARROW)


def with_keras(x):
    wide = keras.layers.Dense(8, "relu", kernel_initializer=constant(WIDE))
    narrow = keras.layers.Dense(4, kernel_initializer=constant(NARROW))
    return narrow(wide(keras.layers.Flatten()(x)))


def with_convolution(x):
    kernel = v1.get_variable("kernel", initializer=KERNEL)
    x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))
    return tf.reduce_mean(x, axis=(1, 2))


def constant(value):
    return lambda shape, dtype=None: tf.constant(value, dtype)


OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.05),
    "momentum": lambda: v1.train.MomentumOptimizer(0.02, 0.9),
    "adam": lambda: v1.train.AdamOptimizer(0.003),
}


def trained(network, optimizer, x, y):
    logits = network(x)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
    loss = tf.reduce_mean(losses)
    return loss, OPTIMIZERS[optimizer]().minimize(loss)


def stock(network, optimizer):
    """Losses and weights of one run of a session for each step."""
    with tf.Graph().as_default():
        iterator = v1.data.make_initializable_iterator(batches())
        step = trained(network, optimizer, *iterator.get_next())
        session = opened(iterator.initializer)
        losses = [session.run(step)[0] for _ in range(NUM_STEPS)]
        return losses, session.run(v1.trainable_variables())


def ours(network, optimizer):
    """Losses and weights of one run of a program."""
    with tf.Graph().as_default():
        infeed, outfeed = IPUInfeedQueue(batches()), IPUOutfeedQueue()

        def body(x, y):
            loss, train = trained(network, optimizer, x, y)
            return outfeed.enqueue(loss), train

        program = compiled(lambda: loops.repeat(NUM_STEPS, body, [], infeed))
        losses = outfeed.dequeue()
        session = opened(infeed.initializer)
        session.run(program)
        return session.run(losses), session.run(v1.trainable_variables())


def distance(found, expected):
    """By the size of what is expected."""
    return np.linalg.norm(np.subtract(found, expected)) / np.linalg.norm(expected)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("network", [with_variables, with_get_variable, with_keras])
def test_steps_in_one_run_train_as_stock_does(network, optimizer):
    losses, weights = ours(network, optimizer)
    expected_losses, expected_weights = stock(network, optimizer)
    assert expected_losses[-1] < 0.9 * expected_losses[0]
    assert distance(losses, expected_losses) <= 1e-6
    for found, expected in zip(weights, expected_weights, strict=True):
        assert distance(found, expected) <= 1e-6


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_convolutions_train_bit_by_bit_as_stock_does(optimizer):
    losses, weights = ours(with_convolution, optimizer)
    expected_losses, expected_weights = stock(with_convolution, optimizer)
    np.testing.assert_array_equal(losses, expected_losses)
    for found, expected in zip(weights, expected_weights, strict=True):
        np.testing.assert_array_equal(found, expected)


# Values


def num_compilations():
    return sum(device_for(0).engine.counters().num_compilations.values())


def test_fed_values_change_without_another_compilation(graph):
    rate, outside = v1.placeholder(tf.float32, [2]), v1.placeholder(tf.float32, [])
    before = num_compilations()

    def net(given):
        return loops.repeat(3, lambda x: x + given["rate"] * outside, [tf.zeros([2])])

    (result,) = compiled(net, [{"rate": rate}])
    session = opened()
    found = [session.run(result, {rate: [k, 2 * k], outside: 10.0}).tolist() for k in (1, 2)]
    assert found == [[30.0, 60.0], [60.0, 120.0]]
    call = session.make_callable(result, [rate, outside])
    assert call(np.float32([3, 6]), np.float32(10)).tolist() == [90.0, 180.0]
    assert num_compilations() - before == 1


def test_structures_of_inputs_and_of_results(graph):
    def net(pair, scale):
        total = v1.get_variable("total", initializer=1.0)
        return pair[0] + scale, pair[1]["x"] * scale, total.assign_add(5.0).op

    results = compiled(net, [(1.0, {"x": [2.0, 3.0]}), 10.0])
    assert isinstance(results, list)
    session = opened()
    # What is asked for is one of the results; all is done.
    assert session.run(results[0]) == 11.0
    assert session.run(v1.global_variables()) == [6.0]
    assert session.run(results[1]) == pytest.approx([20.0, 30.0])


Pair = collections.namedtuple("Pair", "first second")


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (lambda x: [x, [x + 1, x + 2]], [0.0, [1.0, 2.0]]),
        (lambda x: (x, (x + 1, tf.stack([x, x]))), (0.0, (1.0, [0.0, 0.0]))),
        (lambda x: {"a": x, "b": [x + 1, None]}, {"a": 0.0, "b": [1.0, None]}),
        (lambda x: [Pair(x, {"c": x + 1})], [Pair(0.0, {"c": 1.0})]),
        (lambda x: [None, x, Pair(None, x + 1)], [None, 0.0, Pair(None, 1.0)]),
        (lambda x: Pair(None, x), Pair(None, 0.0)),
        (lambda x: (x, x + 1), [0.0, 1.0]),
        (lambda x: x, [0.0]),
    ],
)
def test_nested_results_keep_their_structure(graph, returned, expected):
    results = compiled(returned, [0.0])
    tensors = [one for one in tf.nest.flatten(results) if one is not None]
    values = iter([value.tolist() for value in opened().run(tensors)])
    found = tf.nest.map_structure(lambda one: None if one is None else next(values), results)
    assert (found, type(found)) == (expected, type(expected))


def test_operations_in_nested_results(graph):
    with pytest.raises(ValueError, match="must not return operations in a nested structure"):
        compiled(lambda x: [x, [x + 1, tf.no_op()]], [0.0])


@pytest.mark.parametrize("nested", [False, True])
def test_a_variable_that_is_returned_has_its_value_from_before_the_update(graph, nested):
    def net():
        total = v1.get_variable("total", initializer=1.0, use_resource=True)
        update = total.assign_add(5.0).op
        if not nested:
            return total, update
        with tf.control_dependencies([update]):
            return {"before": [total], "after": total.read_value()}

    results = compiled(net)
    session = opened()
    if nested:
        assert session.run(results) == {"before": [1.0], "after": 6.0}
        assert session.run(results) == {"before": [6.0], "after": 11.0}
    else:
        assert [session.run(results) for _ in range(2)] == [[1.0], [6.0]]


def test_what_assigning_returns_has_the_value_from_after_it(graph):
    def net():
        total = v1.get_variable("total", initializer=1.0, use_resource=True)
        return {"sum": total.assign_add(5.0)}

    results = compiled(net)
    session = opened()
    assert [session.run(results) for _ in range(2)] == [{"sum": 6.0}, {"sum": 11.0}]


def test_functions_of_tensorflow_1(graph):
    """TensorFlow's loss of CTC calls a `Defun`, which only the graph of a session knows."""
    random = np.random.default_rng(0)
    logits = random.standard_normal((4, 1, 3)).astype("float32")

    def loss(logits):
        found = tf.nn.ctc_loss([[1]], logits, [1], [4], blank_index=2)
        return tf.cast(found, tf.float16) * 2

    (result,) = compiled(loss, [logits])
    with opened() as session:
        found = session.run(result)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        np.testing.assert_array_equal(found, session.run(loss(tf.constant(logits))))


def test_halves_in_functions_of_tensorflow_1(graph):
    """An operation that has the name of a function computes as the function does."""

    @function.Defun(tf.float16)
    def sum_and_square(x):
        return x + x, x * x

    results = compiled(lambda x: sum_and_square(x)[::-1], [np.float16(1e4)])
    with opened() as session:
        assert session.run(results) == [65504.0, 20000.0]


def test_exceptions_in_functions_of_tensorflow_1(graph):
    @function.Defun(tf.float32)
    def inverse(x):
        return 1 / x

    SYSTEM.reset()
    stopping = IPUConfig()
    stopping.auto_select_ipus = 1
    stopping.floating_point_behaviour.div0 = True
    stopping.configure_ipu_system()
    (result,) = compiled(lambda x: tf.tanh(inverse(x)), [np.float32(0)])
    with opened() as session, pytest.raises(TilesExceptedError, match="Tiles in excepted state"):
        session.run(result)


def test_only_operations(graph):
    total = v1.get_variable("total", initializer=1.0, use_resource=True)
    operation = compiled(lambda: total.assign_add(5.0).op)
    nothing = compiled(lambda: None)
    session = opened()
    assert isinstance(operation, tf.Operation)
    assert session.run([operation, nothing]) == [None, None]
    assert session.run(total) == 6.0


def test_initial_values_of_variables_may_be_computed(graph):
    v1.set_random_seed(3)

    def body(x):
        return x + tf.Variable(tf.random.truncated_normal([2], seed=4))

    (result,) = compiled(lambda: loops.repeat(4, body, [tf.zeros([2])]))
    session = opened()
    (weight,) = session.run(v1.global_variables())
    np.testing.assert_allclose(session.run(result), 4 * weight, rtol=1e-6)
    with tf.Graph().as_default():
        v1.set_random_seed(3)
        tf.Variable(tf.random.truncated_normal([2], seed=4))
        np.testing.assert_array_equal(opened().run(v1.global_variables())[0], weight)


def test_initial_values_that_are_not_known_before(graph):
    queue = IPUInfeedQueue(counting())
    with pytest.raises(ValueError, match="initial value of a variable must not depend on what a"):
        compiled(lambda: loops.repeat(4, lambda sum, x: sum + tf.Variable(x), [0.0], queue))


def test_savers_keep_what_programs_train(graph, tmp_path, caplog):
    def body():
        weight = v1.get_variable("weight", initializer=1.0)
        drawn = tf.random.uniform([], 1.0, 1.0000001)
        return weight.assign_add(tf.floor(drawn)).op

    program = compiled(lambda: loops.repeat(3, body))
    saver = v1.train.Saver()
    session = opened()
    session.run(program)
    path = saver.save(session, str(tmp_path / "model"))
    session.run(program)
    saver.restore(session, path)
    session.run(program)
    assert session.run(v1.global_variables()) == [7.0]
    # Meta graphs have nothing that they could not keep.
    assert "Issue encountered" not in caplog.text


def test_eagerly():
    with tf.device("/device:IPU:0"):
        doubled, total = compiled(lambda x, y: (x + x, x + y), [1.0, 2.0])
    assert [float(doubled), float(total)] == [2.0, 3.0]
    assert doubled.device.endswith("IPU:0")
    strategy = IPUStrategy()
    with strategy.scope():
        assert float(ipu_compiler.compile(lambda x: x + x, [2.0])[0]) == 4.0

    @tf.function
    def within(x):
        return ipu_compiler.compile(lambda x: x + x, [x])

    assert float(strategy.run(within, [tf.constant(3.0)])[0]) == 6.0


# Bad input


def test_what_is_not_placed_on_an_ipu(graph):
    text = "A computation has been compiled, however it was not placed on an IPU device"
    with pytest.raises(Exception, match=text) as error:
        ipu_compiler.compile(lambda: tf.constant(1.0))
    assert type(error.value) is Exception
    with tf.device("/device:CPU:0"), pytest.raises(Exception, match=f"{text}.*CPU:0"):
        ipu_compiler.compile(lambda: tf.constant(1.0))


def test_scopes_of_the_computation_itself(graph):
    def net():
        with tf.device("/device:IPU:0"):
            return tf.constant(1.0) + 1.0

    with tf.device("/device:CPU:0"):
        results = ipu_compiler.compile(net)
        # Of nothing that is computed nobody says where.
        nothing = ipu_compiler.compile(tf.no_op)
    assert opened().run([results, nothing]) == [[2.0], None]


def test_scopes_of_another_device_in_the_computation(graph):
    def net():
        with tf.device("/device:IPU:3"):
            return tf.constant(1.0) + 1.0

    with pytest.raises(Exception, match=r"in the scope of another device. Received: .*\[3\]"):
        ipu_compiler.compile(net)


@pytest.mark.parametrize(
    ("computation", "inputs", "error", "text"),
    [
        (1.0, None, TypeError, "`computation` must be a function. Received: computation=1.0"),
        (
            lambda a: a,
            [1.0, 2.0],
            TypeError,
            r"Supplied computation function cannot be called with the specified inputs. You "
            r"specified 2 inputs: \[1.0, 2.0\], but the computation takes \(a\)",
        ),
        (
            lambda: (tf.no_op(), tf.constant(1.0)),
            None,
            ValueError,
            "zero or more tensors followed by zero or more operations.\n(.*\n)?Received: ",
        ),
    ],
)
def test_wrong_computations(graph, computation, inputs, error, text):
    with pytest.raises(error, match=text):
        compiled(computation, inputs)


# Configuration


def computed(session_of=opened):
    infeed = IPUInfeedQueue(counting())
    total = compiled(lambda: loops.repeat(3, lambda sum, x: sum + x, [0.0], infeed))
    return lambda: session_of(infeed.initializer).run(total)


def test_nothing_is_configured(graph):
    SYSTEM.reset()
    assert computed()() == [3.0]
    assert [len(device.ipus) for device in SYSTEM.devices] == [1]


def test_the_system_is_configured_after_the_program_is_compiled(graph):
    SYSTEM.reset()
    run = computed()
    IPUConfig().configure_ipu_system()
    assert run() == [3.0]


def test_a_session_that_has_run_something_before_the_system_is_configured(graph):
    session = opened()
    result = compiled(lambda: cross_replica_sum(tf.constant(1.0)))
    assert session.run(result) == [1.0]
    configure(2)
    text = "configure the system before that. Received: 2 replicas, for 'lambda', which was comp"
    with pytest.raises(tf.errors.FailedPreconditionError, match=text):
        session.run(result)


@pytest.mark.parametrize("final", [False, True])
def test_what_was_made_of_results_before_the_system_is_configured(graph, final):
    """It is another trace that runs, for four replicas; what is in the graph stays in use."""
    SYSTEM.reset()
    x = v1.placeholder(tf.float32, [2])
    (total, index) = compiled(lambda x: (cross_replica_sum(x), replication_index()), [x])
    more = total * 10.0
    with tf.control_dependencies([compiled(lambda: None)]):
        done = tf.identity(more)
    configure(4)
    if final:
        graph.finalize()
    with v1.Session() as session:
        found = session.run([total, more, done, index], {x: [1.0, 2.0]})
    assert graph.finalized == final
    assert [value.tolist() for value in found] == [[4.0, 8.0], [40.0, 80.0], [40.0, 80.0], 0]


@pytest.mark.parametrize("before", [None, 1, 4])
def test_training_is_the_same_whenever_the_system_is_configured(before):
    """With variables of all kinds, which keep their names, and are initialized as ever."""

    def trained(before):
        SYSTEM.reset()
        if before is not None:
            configure(before)
        with tf.Graph().as_default():
            infeed = IPUInfeedQueue(counting().map(lambda x: x / 10.0))
            outfeed = IPUOutfeedQueue()

            def body(x):
                with v1.variable_scope(None, default_name="layer"):
                    weight = v1.get_variable("weight", initializer=1.0)
                loss = (weight * x + tf.Variable(2.0, name="bias") - 5.0) ** 2
                optimizer = CrossReplicaOptimizer(v1.train.MomentumOptimizer(0.1, 0.5))
                return outfeed.enqueue(loss), optimizer.minimize(loss)

            run = compiled(lambda: loops.repeat(3, body, [], infeed))
            dequeued, names = outfeed.dequeue(), [one.name for one in v1.global_variables()]
            configure(2)
            session = opened(infeed.initializer)
            session.run(run)
            assert [one.name for one in v1.global_variables()] == names
            return names, session.run(dequeued), session.run(v1.global_variables())

    names, losses, values = trained(before)
    expected = trained(2)
    assert names == expected[0]
    assert losses.shape == (3, 2)
    np.testing.assert_array_equal(losses, expected[1])
    np.testing.assert_array_equal(values, expected[2])


def test_accumulators_of_replicas_that_are_known_late(graph):
    SYSTEM.reset()

    def body():
        weight = v1.get_variable("weight", initializer=1.0, use_resource=True)
        descent = v1.train.GradientDescentOptimizer(0.1)
        optimizer = CrossReplicaGradientAccumulationOptimizerV2(descent, 4)
        return optimizer.minimize(weight * tf.cast(replication_index() + 1, tf.float32))

    run = compiled(lambda: loops.repeat(8, body))
    configure(2)
    session = opened()
    for _ in range(2):
        session.run(run)
    # Four updates by the sum of four gradients, of which each is the mean of 1 and 2.
    assert session.run(v1.global_variables()) == pytest.approx([1.0 - 0.1 * 4 * 4 * 1.5])


def test_a_device_that_is_not_configured(graph):
    result = compiled(lambda: tf.constant(1.0), ordinal=7)
    text = "/device:IPU:7 is not configured; configured devices: /device:IPU:0"
    with pytest.raises(ValueError, match=text):
        opened().run(result)


@pytest.mark.parametrize("device", ["/device:IPU:7", f"{TASK}/device:IPU:7"])
def test_operations_outside_of_programs_on_a_device_that_is_not_configured(graph, device):
    with tf.device("/device:IPU:0"):
        known = v1.placeholder_with_default(1.0, []) + 1.0
    with tf.device(device):
        unknown = known * 2.0
    needs_it = unknown + 1.0
    with v1.Session() as session:
        # What is not needed does not matter, as in TensorFlow.
        assert session.run(known) == 2.0
        text = "^/device:IPU:7 is not configured; configured devices: /device:IPU:0"
        for run in (lambda: session.run([known, needs_it]), session.make_callable(needs_it)):
            with pytest.raises(ValueError, match=text):
                run()
        with tf.device("/device:IPU:8"):
            later = known * 3.0
        with pytest.raises(ValueError, match=r"^/device:IPU:8 is not configured"):
            session.run(later)
        assert session.run(known) == 2.0


def _on_ipu_7(x):
    with tf.device("/device:IPU:7"):
        return x * 2.0


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(lambda x: tf.cond(x > 0, lambda: _on_ipu_7(x), lambda: x), id="branch"),
        pytest.param(
            lambda x: tf.while_loop(lambda a: a < 9.0, lambda a: _on_ipu_7(a) + 1.0, [x])[0],
            id="loop",
        ),
        pytest.param(tf.function(_on_ipu_7), id="function"),
        pytest.param(
            tf.function(lambda x: tf.cond(x > 0, lambda: _on_ipu_7(x), lambda: x)), id="nested"
        ),
        pytest.param(
            lambda x: (
                v1.data.make_initializable_iterator(
                    tf.data.Dataset.from_tensors(1.0).map(_on_ipu_7)
                ).initializer
            ),
            id="dataset",
        ),
    ],
)
def test_bodies_with_operations_on_a_device_that_is_not_configured(graph, place):
    x = v1.placeholder_with_default(1.0, [])
    plain = tf.cond(x > 0, lambda: x + 2.0, lambda: x)
    placed = place(x)
    with v1.Session() as session:
        with pytest.raises(ValueError, match=r"^/device:IPU:7 is not configured; configured"):
            session.run(placed)
        assert session.run(plain) == 3.0


def test_operations_on_a_device_that_is_configured_no_more(graph):
    configure([1, 1])
    with tf.device("/device:IPU:1"):
        known = v1.placeholder_with_default(1.0, []) + 1.0
    with v1.Session() as session:
        assert session.run(known) == 2.0
        SYSTEM.reset()
        # As a program would, it has one IPU where nothing is configured.
        text = r"^/device:IPU:1 is not configured; configured devices: /device:IPU:0\."
        with pytest.raises(ValueError, match=text):
            session.run(known)


def test_sessions_know_devices_as_in_stock(graph):
    with tf.device("/device:GPU:7"):
        plain = tf.constant(1.0) + v1.placeholder_with_default(1.0, [])
    text = "explicitly assigned to /device:GPU:7"
    with v1.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match=text):
        session.run(plain)
    assert v1.Session(config=v1.ConfigProto(allow_soft_placement=True)).run(plain) == 2.0


def test_a_graph_that_is_built_within_its_session():
    with tf.Graph().as_default(), v1.Session() as session:
        (result,) = compiled(lambda: tf.constant(1.0))
        assert session.run(result) == 1.0


# Other sessions


def test_a_graph_that_is_final(graph, tmp_path):
    step = v1.train.get_or_create_global_step()
    infeed, outfeed = IPUInfeedQueue(counting()), IPUOutfeedQueue()

    def body(total, x):
        return total + x, outfeed.enqueue(x), step.assign_add(1).op

    total = compiled(lambda: loops.repeat(4, body, [0.0], infeed))
    taken, initializer = outfeed.dequeue(), infeed.initializer
    v1.summary.scalar("total", total[0])
    found, results = [], []

    def take(step_context):
        results.append(step_context.session.run(taken))

    hooks = [v1.train.StopAtStepHook(last_step=12)]
    with v1.train.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), hooks=hooks, save_summaries_steps=4, save_checkpoint_steps=4
    ) as session:
        assert graph.finalized
        session.run_step_fn(lambda step_context: step_context.session.run(initializer))
        while not session.should_stop():
            session.run_step_fn(take)
            found.append(session.run(total)[0])
    # The hook may see the step as it was before a run, or after it.
    assert len(found) in (3, 4)
    assert found == [6.0, 22.0, 38.0, 54.0][: len(found)]
    assert [len(one) for one in results] == [0, 4, 4, 4][: len(found)]
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith(f"model.ckpt-{4 * len(found)}")
    assert list(tmp_path.glob("events*"))


@pytest.mark.parametrize("disabled", ["disable_v2_behavior", "disable_eager_execution"])
def test_scripts_of_tensorflow_1(disabled):
    found = run_script(
        """
        import sys, threading
        import numpy as np, tensorflow as tf
        v1 = tf.compat.v1
        getattr(v1, sys.argv[1])()
        from ipu_keras import config, ipu_compiler, loops, scopes
        from ipu_keras import ipu_infeed_queue, ipu_outfeed_queue

        dataset = tf.data.Dataset.range(1000).map(lambda k: tf.cast(k, tf.float32))
        infeed = ipu_infeed_queue.IPUInfeedQueue(dataset)
        outfeed = ipu_outfeed_queue.IPUOutfeedQueue()

        def body(x):
            with v1.variable_scope("vs", use_resource=True):
                weight = v1.get_variable("weight", shape=[], initializer=v1.ones_initializer())
            bias = v1.get_variable("bias", initializer=0.0)
            loss = tf.square(weight * x + bias - x - 1.0)
            shown = tf.print("step", output_stream=sys.stderr)
            train = v1.train.AdamOptimizer(0.01).minimize(loss)
            return outfeed.enqueue(loss), train, shown

        rate = v1.placeholder(tf.float32, [])
        with scopes.ipu_scope("/device:IPU:0"):
            program = ipu_compiler.compile(lambda: loops.repeat(50, body, [], infeed))
            scaled = ipu_compiler.compile(lambda x: x * 2.0, [rate])
        dequeued = outfeed.dequeue()
        saver = v1.train.Saver()
        config.IPUConfig().configure_ipu_system()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(infeed.initializer)
            session.run(program)
            losses = []
            thread = threading.Thread(target=lambda: losses.append(session.run(dequeued)))
            thread.start()
            thread.join()
            print(len(losses[0]), losses[0][0], losses[0][-1] < 1.0)
            print(session.run(scaled, {rate: 3.0})[0], [v.name for v in v1.trainable_variables()])
        """,
        disabled,
    )
    assert found.splitlines() == ["50 1.0 True", "6.0 ['vs/weight:0', 'bias:0']"]
