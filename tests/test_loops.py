"""Loops within programs: in graphs of sessions, and in functions for `strategy.run`."""

import doctest

import numpy as np
import pytest
import tensorflow as tf
from in_sessions import compiled, configure, counting, opened

from ipu_keras import last_report, loops
from ipu_keras.device import device_for
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops.cross_replica_ops import (
    assume_equal_across_replicas,
    cross_replica_mean,
    cross_replica_sum,
)
from ipu_keras.ops.replication_ops import replication_index
from ipu_keras.optimizers import CrossReplicaOptimizer, GradientAccumulationOptimizerV2

JIT = [None, False, True]


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
    assert doctest.testmod(loops).failed == 0


# In sessions


def test_what_is_handed_on_has_a_type_and_a_shape_of_its_own(graph):
    def body(a, b, c):
        return a + 1.0, b * 2, tf.logical_not(c)

    given = [np.float16(0), tf.constant([1, 2]), True]
    results = compiled(lambda: loops.repeat(3, body, given))
    found = opened().run(results)
    assert [value.dtype.name for value in found] == ["float16", "int32", "bool"]
    assert [value.tolist() for value in found] == [3.0, [8, 16], False]


@pytest.mark.parametrize(
    ("element", "body", "expected"),
    [
        (lambda x: x, lambda total, x: total + x, 3.0),
        (lambda x: (x, 2 * x), lambda total, x, y: total + x + y, 9.0),
        (lambda x: {"b": x, "a": 10 * x}, lambda total, a, b: total + a + b, 33.0),
        (lambda x: ({"b": x, "a": 10 * x},), lambda total, a, b: total + a + b, 33.0),
        (lambda x: ({"a": x}, (x, x)), lambda total, d, t: total + d["a"] + t[0] + t[1], 9.0),
    ],
)
@pytest.mark.parametrize("loop", ["repeat", "while_loop"])
def test_elements_become_arguments(graph, loop, element, body, expected):
    queue = IPUInfeedQueue(counting().map(element))

    def net():
        if loop == "repeat":
            return loops.repeat(3, body, [0.0], queue)

        def counted(step, total, *args, **kwargs):
            return step + 1, body(total, *args, **kwargs)

        return loops.while_loop(lambda step, _: step < 3, counted, [0, 0.0], queue)

    results = compiled(net)
    assert queue.dequeued
    session = opened(queue.initializer)
    assert session.run(results)[-1] == expected
    # The next run goes on where this one has ended.
    assert session.run(results)[-1] == expected * 4


def test_a_loop_that_is_not_run_leaves_the_iterator_where_it_is(graph):
    infeed, outfeed = IPUInfeedQueue(counting()), IPUOutfeedQueue()

    def body(total, x):
        weight = tf.compat.v1.get_variable("weight", initializer=2.0)
        return total + weight * x, outfeed.enqueue(x)

    none = compiled(lambda: loops.repeat(0, body, [5.0], infeed))
    two = compiled(lambda: loops.repeat(2, lambda total, x: total + x, [0.0], infeed))
    dequeued = outfeed.dequeue()
    session = opened(infeed.initializer)
    assert session.run(none) == [5.0]
    assert session.run(dequeued).tolist() == []
    assert session.run(two) == [1.0]
    assert [variable.name for variable in tf.compat.v1.global_variables()] == ["weight:0"]


def test_nothing_is_handed_on(graph):
    queue, seen = IPUInfeedQueue(counting(5)), IPUOutfeedQueue()
    run = compiled(lambda: loops.repeat(5, lambda x: seen.enqueue(x), [], queue))
    assert isinstance(run, tf.Operation)
    dequeued = seen.dequeue()
    session = opened(queue.initializer)
    assert session.run(run) is None
    assert session.run(dequeued).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_condition_reads_what_is_handed_on(graph):
    def double(x):
        return x * 2.0

    limited = compiled(lambda: loops.while_loop(lambda x: x < 100.0, double, [1.0]))
    shorter = compiled(lambda: loops.while_loop(lambda x: x < 100.0, double, [1.0], None, 3))
    never = compiled(lambda: loops.while_loop(lambda: False, lambda: tf.no_op(), None))
    session = opened()
    assert session.run([limited, shorter]) == [[128.0], [8.0]]
    assert session.run(never) is None


def test_one_tensor_is_no_list(graph):
    def once(x):
        return loops.repeat(5, lambda v: v + 1.0, [x]) * 2.0

    def doubled(x):
        return loops.while_loop(lambda v: v < 3.0, lambda v: v + 1.0, [x]) * 2.0

    def nested(x):
        return loops.repeat(2, lambda v: loops.repeat(3, lambda w: w + 1.0, v), x)

    never = compiled(lambda x: loops.repeat(0, lambda v: v + 1.0, [x]) * 2.0, [1.0])
    results = [compiled(function, [0.0]) for function in (once, doubled, nested)]
    assert opened().run([*results, never]) == [[10.0], [6.0], [6.0], [2.0]]


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_a_count_that_is_known_when_the_program_runs(graph, dtype):
    count = tf.compat.v1.placeholder(dtype, [])
    infeed, outfeed = IPUInfeedQueue(counting()), IPUOutfeedQueue()

    def body(total, x):
        return total + x, outfeed.enqueue(x)

    total = compiled(lambda n: loops.repeat(n, body, [0.0], infeed), [count])
    known = compiled(lambda: loops.repeat(tf.constant(3), lambda v: v + 1.0, [0.0]))
    dequeued = outfeed.dequeue()
    session = opened(infeed.initializer)
    assert [session.run(total, {count: n}) for n in (3, 0, 2)] == [[3.0], [0.0], [7.0]]
    assert session.run(dequeued).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert session.run(known) == [3.0]


@pytest.mark.parametrize("count", [1.0, [1, 2]])
def test_counts_that_are_no_integer(graph, count):
    with pytest.raises(ValueError, match="`n` must be an integer, or a tensor of one"):
        compiled(lambda: loops.repeat(tf.constant(count), lambda v: v, [0.0]))


@pytest.mark.parametrize("num_ipus", [1, 2])
def test_accumulation_ends_with_a_loop(num_ipus):
    configure(num_ipus)

    def body():
        weight = tf.compat.v1.get_variable("weight", initializer=1.0, use_resource=True)
        descent = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        return GradientAccumulationOptimizerV2(CrossReplicaOptimizer(descent), 4).minimize(weight)

    def found(num_steps):
        with tf.Graph().as_default():
            run = compiled(lambda: loops.repeat(num_steps, body))
            # Accumulators are the program's, and none of those that scripts list.
            names = [variable.name for variable in tf.compat.v1.global_variables()]
            assert names == ["weight:0"]
            session = opened()
            for _ in range(2):
                session.run(run)
            return session.run(tf.compat.v1.global_variables())

    assert found(8) == pytest.approx([1.0 - 4 * 0.4])
    text = (
        "Detected a gradient accumulation operation in a loop .* no multiple of its number of "
        "mini-batches, 4: .*Run 4 iterations, .*Received: 6 iterations"
    )
    with pytest.raises(tf.errors.FailedPreconditionError, match=text):
        found(6)


@pytest.mark.parametrize("num_steps", [1, 3])
def test_a_loop_in_a_loop_reads_and_writes_queues(graph, num_steps):
    infeed, outfeed = IPUInfeedQueue(counting()), IPUOutfeedQueue()

    def inner(total, x):
        return total + x, outfeed.enqueue(x)

    def outer(total):
        return loops.repeat(2, inner, [total], infeed)

    total, dequeued = compiled(lambda: loops.repeat(num_steps, outer, [0.0])), outfeed.dequeue()
    session = opened(infeed.initializer)
    elements = np.arange(2.0 * num_steps)
    assert session.run(total) == [elements.sum()]
    np.testing.assert_array_equal(session.run(dequeued), elements)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.strings.to_number(tf.strings.as_string(x)),
        lambda x: tf.ensure_shape(tf.numpy_function(np.abs, [x], tf.float32), []),
        lambda x: tf.reduce_sum(tf.boolean_mask([x, -1.0], [True, False])),
        lambda x: tf.cond(x > 1.0, lambda: x, lambda: tf.abs(x)),
        lambda x: tf.compat.v1.Print(x, [x]),
    ],
    ids=["strings", "python", "mask", "branch", "print"],
)
def test_what_xla_lacks_runs_without_it(graph, function):
    queue = IPUInfeedQueue(counting())
    total = compiled(lambda: loops.repeat(4, lambda sum, x: sum + function(x), [0.0], queue))
    assert opened(queue.initializer).run(total) == [6.0]


def test_an_exception_in_a_body_leaves_nothing_behind(graph):
    def fails(x):
        raise KeyError("of the user")

    with pytest.raises(KeyError, match="of the user"):
        compiled(lambda: loops.repeat(2, fails, [0.0]))
    works = compiled(lambda: loops.repeat(2, lambda x: x + 1.0, [0.0]))
    assert opened().run(works) == [2.0]


def test_an_exception_in_python_that_a_body_calls(graph):
    def fails(x):
        raise ValueError("of the user")

    def body(x):
        return tf.ensure_shape(tf.numpy_function(fails, [x], tf.float32), [])

    result = compiled(lambda: loops.repeat(2, body, [0.0]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="ValueError: of the user"):
        opened().run(result)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (
            (2, lambda a, b: a, [0.0]),
            TypeError,
            r"Supplied loop body function cannot be called with the specified inputs. You "
            r"specified 1 inputs: \['[^']+'\], but the loop body takes \(a, b\)",
        ),
        (
            (2, lambda a: tf.cast(a, tf.int32), [0.0]),
            TypeError,
            r"Mismatch between input types and output types for loop body: \['float32'\] vs "
            r"\['int32'\]",
        ),
        (
            (2, lambda a: (a, a), [0.0]),
            TypeError,
            r"Mismatch between input types and output types .*\['float32'\] vs "
            r"\['float32', 'float32'\]",
        ),
        (
            (2, lambda a: tf.stack([a, a]), [0.0]),
            ValueError,
            r"must have the shape that it is handed.*Received: the shape \(2,\) for \(\)",
        ),
        (
            (2, lambda a: (tf.no_op(), a), [0.0]),
            ValueError,
            "IPU loop body must return zero or more Tensor values followed by zero or more "
            "Operations.\n(.*\n)?Received: ",
        ),
        (
            (2, lambda a: object(), [0.0]),
            ValueError,
            "IPU loop body must return zero or more Tensor values",
        ),
        ((-1, lambda a: a, [0.0]), ValueError, "`n` must be .*not negative.*Received: n=-1"),
        ((2.5, lambda a: a, [0.0]), ValueError, "`n` must be an integer .*Received: n=2.5"),
        ((True, lambda a: a, [0.0]), ValueError, "`n` must be an integer .*Received: n=True"),
        (("2", lambda a: a, [0.0]), ValueError, "`n` must be an integer .*Received: n='2'"),
    ],
)
def test_wrong_bodies(graph, arguments, error, text):
    with pytest.raises(error, match=text):
        compiled(lambda: loops.repeat(*arguments))


def test_wrong_bodies_of_while_loops(graph):
    text = "Supplied loop condition function cannot be called with the specified inputs"
    with pytest.raises(TypeError, match=text):
        compiled(lambda: loops.while_loop(lambda: True, lambda a: a, [0.0]))
    with pytest.raises(TypeError, match="Supplied loop body function cannot be called"):
        compiled(lambda: loops.while_loop(lambda a: True, lambda: 1.0, [0.0]))
    with pytest.raises(TypeError, match="Mismatch between input types and output types"):
        compiled(lambda: loops.while_loop(lambda a: True, lambda a: 1, [0.0]))


def test_arguments_count_with_the_parts_of_an_element(graph):
    queue = IPUInfeedQueue(counting().map(lambda x: {"a": x, "b": x}))
    with pytest.raises(TypeError, match=r"You specified 3 inputs: .* takes \(sum, a\)"):
        compiled(lambda: loops.repeat(2, lambda sum, a: sum, [0.0], queue))


# In functions for strategies


@pytest.mark.parametrize("jit_compile", JIT)
def test_a_function_with_a_loop_and_queues(jit_compile):
    infeed, outfeed = IPUInfeedQueue(counting()), IPUOutfeedQueue()
    assert infeed.initializer is None

    def body(total, x):
        # AutoGraph makes branches and loops of these.
        if x > 1.0:  # noqa: SIM108
            total = total + x
        else:
            total = total - 10.0
        for _ in tf.range(3):
            total = total + 1.0
        return total, outfeed.enqueue({"x": x, "total": total})

    @tf.function(jit_compile=jit_compile)
    def total(start):
        return loops.repeat(4, body, [start], infeed)

    def num_steps():
        return device_for(0).engine.counters().num_steps.get("total", 0)

    before, strategy = num_steps(), IPUStrategy()
    expected, now = [], 0.5
    for x in range(8):
        now = 0.5 if x == 4 else now
        now += (x if x > 1 else -10) + 3
        expected.append(now)
    assert [float(strategy.run(total, [0.5])) for _ in range(2)] == [expected[3], expected[7]]
    found = outfeed.dequeue()
    np.testing.assert_array_equal(found["x"], np.arange(8.0))
    np.testing.assert_array_equal(found["total"], expected)
    assert num_steps() - before == 8


@pytest.mark.parametrize("jit_compile", JIT)
def test_results_of_other_loops_and_of_no_loop(jit_compile):
    infeed, outfeed, single = IPUInfeedQueue(counting()), IPUOutfeedQueue(), IPUOutfeedQueue()
    assert infeed.initializer is None

    @tf.function(jit_compile=jit_compile)
    def run(limit):
        single.enqueue(limit)
        return loops.while_loop(
            lambda total: total < limit,
            lambda total, x: (total + x, outfeed.enqueue(x)),
            [0.0],
            infeed,
        )

    strategy = IPUStrategy()
    assert float(strategy.run(run, [tf.constant(6.0)])) == 6.0
    np.testing.assert_array_equal(outfeed.dequeue(), np.arange(4.0))
    np.testing.assert_array_equal(single.dequeue(), [6.0])


def test_two_loops_of_one_name_are_two_programs(caplog):
    infeed = IPUInfeedQueue(counting())
    assert infeed.initializer is None

    @tf.function
    def run():
        def body(total, x):
            return total + x

        return loops.repeat(3, body, loops.repeat(4, body, [0.0], infeed), infeed)

    assert float(IPUStrategy().run(run)) == 21.0
    assert "is compiled again" not in caplog.text


# Replicas


@pytest.fixture
def two_ipus():
    configure(2)


def expected_training(num_steps):
    """Losses by step and replica, and the weight, of averaged gradients."""
    weight, losses = 1.0, []
    for step in range(num_steps):
        x = np.array([2 * step, 2 * step + 1]) / 10
        losses.append((weight * x - 10 * x) ** 2)
        weight -= 0.1 * np.mean(2 * (weight * x - 10 * x) * x)
    return losses, weight


def training_feed():
    return IPUInfeedQueue(counting().map(lambda x: (x / 10.0, x)))


@pytest.mark.parametrize("jit_compile", [None, True])
def test_replicas_train_in_a_function(two_ipus, jit_compile):
    infeed, outfeed, strategy = training_feed(), IPUOutfeedQueue(), IPUStrategy()
    assert infeed.initializer is None
    with strategy.scope():
        weight = tf.Variable(1.0)

    def body(x, y):
        with tf.GradientTape() as tape:
            loss = (weight * x - y) ** 2
        weight.assign_sub(0.1 * cross_replica_mean(tape.gradient(loss, weight)))
        return outfeed.enqueue(loss)

    @tf.function(jit_compile=jit_compile)
    def train():
        loops.repeat(6, body, [], infeed)

    strategy.run(train)
    strategy.run(train)
    losses, expected = expected_training(12)
    np.testing.assert_allclose(outfeed.dequeue(), losses, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(weight, expected, rtol=1e-6)


def test_replicas_train_in_a_session(two_ipus, graph):
    infeed, outfeed = training_feed(), IPUOutfeedQueue()

    def body(x, y):
        weight = tf.compat.v1.get_variable("weight", initializer=1.0)
        loss = (weight * x - y) ** 2
        optimizer = CrossReplicaOptimizer(tf.compat.v1.train.MomentumOptimizer(0.1, 0.0))
        return outfeed.enqueue(loss), optimizer.minimize(loss)

    train = compiled(lambda: loops.repeat(6, body, [], infeed))
    dequeued = outfeed.dequeue()
    session = opened(infeed.initializer)
    session.run(train)
    session.run(train)
    losses, expected = expected_training(12)
    np.testing.assert_allclose(session.run(dequeued), losses, rtol=1e-5, atol=1e-5)
    (found,) = session.run(tf.compat.v1.trainable_variables())
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("mode", IPUOutfeedMode)
def test_element_k_is_for_replica_k_modulo_their_number(two_ipus, graph, mode):
    infeed, outfeed = IPUInfeedQueue(counting()), IPUOutfeedQueue(outfeed_mode=mode)

    def body(total, x):
        sent = {"x": x, "sum": cross_replica_sum(x), "index": replication_index()}
        return total + x, outfeed.enqueue(sent)

    total = compiled(lambda: loops.repeat(3, body, [0.0], infeed))
    dequeued = outfeed.dequeue()
    session = opened(infeed.initializer)
    assert session.run(total) == [6.0]
    elements = np.arange(6.0).reshape(3, 2)
    expected = {
        "x": elements,
        "sum": np.repeat(elements.sum(axis=1, keepdims=True), 2, axis=1),
        "index": np.tile([0, 1], (3, 1)),
    }
    found = session.run(dequeued)
    for name, value in expected.items():
        last = value[-1] if mode is IPUOutfeedMode.LAST else value
        np.testing.assert_array_equal(found[name], last)


def test_replicas_need_whole_steps(two_ipus, graph):
    infeed = IPUInfeedQueue(counting(7))
    total = compiled(lambda: loops.repeat(4, lambda total, x: total + x, [0.0], infeed))
    with pytest.raises(tf.errors.OutOfRangeError, match="Infeed dataset iterator out of range"):
        opened(infeed.initializer).run(total)


@pytest.mark.parametrize("jit_compile", [None, True])
@pytest.mark.parametrize("mode", IPUOutfeedMode)
def test_replicas_read_and_send_in_a_loop_of_unknown_length(two_ipus, mode, jit_compile):
    infeed, outfeed = IPUInfeedQueue(counting()), IPUOutfeedQueue(outfeed_mode=mode)
    totals = IPUOutfeedQueue()
    assert infeed.initializer is None

    @tf.function(jit_compile=jit_compile)
    def run(turns):
        turns = assume_equal_across_replicas(turns)

        def body(number, total, x):
            sent = {"x": x, "sum": cross_replica_sum(x), "index": replication_index()}
            return number + 1, total + x, outfeed.enqueue(sent)

        found = loops.while_loop(lambda number, _: number < turns, body, [0, 0.0], infeed)
        totals.enqueue(found[1])
        return found

    found = IPUStrategy().run(run, [tf.constant(3)])
    assert [float(value) for value in found] == [3.0, 6.0]
    elements = np.arange(6.0).reshape(3, 2)
    expected = {
        "x": elements,
        "sum": np.repeat(elements.sum(axis=1, keepdims=True), 2, axis=1),
        "index": np.tile([0, 1], (3, 1)),
    }
    sent = outfeed.dequeue()
    for name, value in expected.items():
        last = value[-1] if mode is IPUOutfeedMode.LAST else value
        np.testing.assert_array_equal(sent[name], last)
    np.testing.assert_array_equal(totals.dequeue(), [[6.0, 9.0]])


def test_replicas_of_a_session_read_send_and_exchange_without_a_loop(two_ipus, graph):
    """Each run gives all replicas the values of the first one; they add different numbers."""
    infeed, outfeed = IPUInfeedQueue(counting()), IPUOutfeedQueue()

    def computation(x):
        def body(_, number, element):
            total = cross_replica_sum(element)
            return tf.constant(1), total * (1.0 + tf.cast(replication_index(), tf.float32))

        _, added = loops.while_loop(lambda turn, _: turn < 1, body, [0, 0.0], infeed)
        weight = tf.compat.v1.get_variable("weight", initializer=1.0)
        weight = weight.assign_add(added)
        return weight * x, cross_replica_sum(x), outfeed.enqueue(weight)

    x = tf.compat.v1.placeholder(tf.float32, [])
    results = compiled(computation, [x])
    dequeued = outfeed.dequeue()
    session = opened(infeed.initializer)
    assert session.run(results, {x: 2.0}) == [4.0, 4.0]
    assert session.run(results, {x: 2.0}) == [14.0, 4.0]
    np.testing.assert_array_equal(session.run(dequeued), [[2.0, 3.0], [7.0, 12.0]])
    report = last_report()
    assert report.name == "computation"
    assert {row.family for row in report.rows} >= {"collective"}


def test_a_trace_of_a_user_is_of_one_replica(two_ipus):
    infeed = IPUInfeedQueue(counting())

    def reading():
        return loops.while_loop(lambda x: x < 3.0, lambda x, y: x + y, [0.0], infeed)

    strategy = IPUStrategy()

    @tf.function
    def outer():
        return strategy.run(tf.function(reading))

    with strategy.scope(), pytest.raises(NotImplementedError, match="An infeed is read by"):
        outer()
