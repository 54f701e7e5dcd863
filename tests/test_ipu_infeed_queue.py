"""Infeeds: what they take and refuse, what they are in sessions and eagerly, and their ends."""

import doctest

import numpy as np
import pytest
import tensorflow as tf
from in_sessions import compiled, configure, counting, opened

from ipu_keras import ipu_infeed_queue, loops, scopes
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM

UNINITIALIZED = "Did you initialize the infeed_queue by running the infeed_queue.initializer"
EXHAUSTED = "Infeed dataset iterator out of range. .* Received: the end of 'numbers'"


@pytest.fixture(autouse=True, scope="module")
def one_ipu():
    configure(1)
    yield
    SYSTEM.reset()


@pytest.fixture
def graph():
    """A session's graph is the current one."""
    with tf.Graph().as_default() as graph:
        yield graph


def summed(queue, num_steps=3):
    """The program that adds up elements, in the graph of a session."""
    return compiled(lambda: loops.repeat(num_steps, lambda total, x: total + x, [0.0], queue))[0]


def function_of(queue, num_steps=3):
    """A function that adds up elements."""

    @tf.function
    def total():
        return loops.repeat(num_steps, lambda total, x: total + x, [0.0], queue)

    return lambda: float(IPUStrategy().run(total))


def initialize(queue):
    return queue.initializer


def delete(queue):
    return queue.deleter


@pytest.fixture
def named():
    """Makes a queue that errors call `numbers`, which is deprecated."""

    def make(dataset, **options):
        with pytest.warns(DeprecationWarning, match="`feed_name` of feeds is deprecated"):
            return IPUInfeedQueue(dataset, feed_name="numbers", **options)

    return make


def test_examples():
    assert doctest.testmod(ipu_infeed_queue).failed == 0


def test_properties():
    queue = IPUInfeedQueue(counting().map(lambda x: {"a": x, "b": (x, [x])}))
    assert queue.number_of_tuple_elements == 3
    assert not queue.dequeued
    with pytest.raises(NotImplementedError, match=r"`IPUInfeedQueue.get_next` is obsolete"):
        queue.get_next()


# Bad input


@pytest.mark.parametrize(
    ("dataset", "options", "error", "text"),
    [
        ([1.0], {}, TypeError, r"`dataset` must be a tf.data.Dataset. Received: dataset=\[1.0\]"),
        (
            counting().batch(2),
            {},
            ValueError,
            r"Output shape \(None,\) is not fully defined. If using tf.Dataset.batch, set "
            "`drop_remainder=True`",
        ),
        (
            counting().map(lambda x: tf.sparse.from_dense([x])),
            {},
            TypeError,
            "An IPU feed carries dense tensors.*Received: SparseTensorSpec",
        ),
        (counting(), {"prefetch_depth": 0}, ValueError, "must be greater than zero, but it is 0"),
        (counting(), {"prefetch_depth": -3}, ValueError, "greater than zero, but it is -3"),
        (counting(), {"prefetch_depth": 256}, ValueError, "must be less than 256, but it is 256"),
        (counting(), {"prefetch_depth": 1.5}, ValueError, "greater than zero, but it is 1.5"),
        (counting(), {"device_ordinal": -1}, ValueError, "Device ordinal must be >= 0"),
        (counting(), {"feed_name": b"a"}, TypeError, "`feed_name` must be a string"),
        (counting(), {"replication_factor": 0}, ValueError, "`replication_factor` must be"),
    ],
)
def test_bad_arguments(dataset, options, error, text):
    with pytest.raises(error, match=text):
        IPUInfeedQueue(dataset, **options)


@pytest.mark.parametrize("option", ["replication_factor", "data_to_prefetch"])
def test_deprecated_arguments_change_nothing(graph, option):
    with pytest.warns(DeprecationWarning, match=f"`{option}` of feeds is deprecated"):
        queue = IPUInfeedQueue(counting(), **{option: 2})
    total = summed(queue)
    assert opened(queue.initializer).run(total) == 3.0


def test_the_order_of_later_releases(graph):
    queue = IPUInfeedQueue(counting(9), 0, 5, optimise_latency=True)
    total = summed(queue, 9)
    assert opened(queue.initializer).run(total) == 36.0
    assert IPUInfeedQueue(counting(9), 1)._device_ordinal == 1
    with pytest.raises(TypeError, match="`optimise_latency` must be True or False"):
        IPUInfeedQueue(counting(9), optimise_latency=1)


@pytest.mark.parametrize("depth", [1, 255])
def test_prefetch_depths(graph, depth):
    queue = IPUInfeedQueue(counting(9), prefetch_depth=depth)
    total = summed(queue, 9)
    assert opened(queue.initializer).run(total) == 36.0


@pytest.mark.parametrize("dtype", ["int64", "float64", "uint16"])
def test_types_that_feeds_do_not_carry(named, dtype):
    def numbers():
        return counting().map(lambda x: (x, tf.cast(x, dtype)))

    text = f"Unsupported datatype {dtype} on index 1 of feed operation numbers. You should use a"
    with pytest.raises(tf.errors.FailedPreconditionError, match=text):
        initialize(named(numbers()))
    with tf.Graph().as_default():
        initializer = named(numbers()).initializer
        with pytest.raises(tf.errors.FailedPreconditionError, match=text):
            opened(initializer)


@pytest.mark.parametrize("dtype", ["int32", "float32", "float16", "bool", "int8", "uint8"])
def test_types_that_feeds_carry(graph, dtype):
    queue = IPUInfeedQueue(counting().map(lambda x: tf.cast(x, dtype)))

    def body(last, x):
        return x

    last = compiled(lambda: loops.repeat(3, body, [tf.zeros([], dtype)], queue))[0]
    found = opened(queue.initializer).run(last)
    assert found.dtype == dtype
    assert found == np.asarray(2, dtype)


def test_empty_elements(named):
    queue = named(counting().map(lambda x: tf.zeros([0, 2])))
    text = r"of size 0. Please remove it from the inputs\.\n.*shape \(0, 2\) at index 0 of numbers"
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        initialize(queue)


# Initializing and deleting


def test_the_initializer_of_a_graph_is_one(graph, named):
    queue = named(counting())
    assert isinstance(queue.initializer, tf.Operation)
    text = "`initializer` function can only be accessed once.\n.*'numbers'"
    with pytest.raises(ValueError, match=text):
        initialize(queue)


def test_to_initialize_is_to_begin_anew(graph):
    queue = IPUInfeedQueue(counting())
    total, initializer = summed(queue), queue.initializer
    session = opened(initializer)
    assert [session.run(total), session.run(total)] == [3.0, 12.0]
    session.run(initializer)
    assert session.run(total) == 3.0
    # Another session has elements of its own.
    other = opened(initializer)
    assert [other.run(total), session.run(total)] == [3.0, 12.0]


def test_to_initialize_eagerly_is_to_begin_anew():
    queue = IPUInfeedQueue(counting())
    total = function_of(queue)
    assert queue.initializer is None
    assert [total(), total()] == [3.0, 12.0]
    initialize(queue)
    assert total() == 3.0


def test_what_is_not_initialized(graph, named):
    total = summed(named(counting()))
    text = f"{UNINITIALIZED}.*'numbers'"
    with pytest.raises(tf.errors.FailedPreconditionError, match=text):
        opened().run(total)
    call = opened().make_callable(total)
    with pytest.raises(tf.errors.FailedPreconditionError, match=text):
        call()


def test_what_is_not_initialized_eagerly(named):
    with pytest.raises(tf.errors.FailedPreconditionError, match=f"{UNINITIALIZED}.*'numbers'"):
        function_of(named(counting()))()


def test_deleted_elements_are_gone(graph, named):
    queue = named(counting())
    total, initializer, deleter = summed(queue), queue.initializer, queue.deleter
    session = opened(initializer)
    session.run(total)
    session.run(deleter)
    with pytest.raises(tf.errors.FailedPreconditionError, match=f"{UNINITIALIZED}.*'numbers'"):
        session.run(total)
    with pytest.raises(tf.errors.NotFoundError, match="Infeed with id='numbers' not found"):
        session.run(deleter)
    session.run(initializer)
    assert session.run(total) == 3.0


def test_nothing_to_delete(graph, named):
    deleter = named(counting()).deleter
    with pytest.raises(tf.errors.NotFoundError, match="Infeed with id='numbers' not found"):
        opened().run(deleter)


def test_deleted_elements_are_gone_eagerly(named):
    queue = named(counting())
    with pytest.raises(tf.errors.NotFoundError, match="Infeed with id='numbers' not found"):
        delete(queue)
    initialize(queue)
    total = function_of(queue)
    assert total() == 3.0
    assert queue.deleter is None
    with pytest.raises(tf.errors.FailedPreconditionError, match=f"{UNINITIALIZED}.*'numbers'"):
        total()
    initialize(queue)
    assert total() == 3.0


# Ends and errors of datasets


@pytest.mark.parametrize("loop", ["repeat", "while_loop", "two feeds"])
def test_the_end_of_a_dataset_names_the_feed(graph, named, loop):
    queue, other = named(counting(5)), IPUInfeedQueue(counting())

    def body(total, x):
        return total + x

    def net():
        if loop == "while_loop":
            return loops.while_loop(lambda total: total < 100.0, body, [0.0], queue)
        start = loops.repeat(9, body, [0.0], other) if loop == "two feeds" else [0.0]
        return loops.repeat(6, body, start, queue)

    total = compiled(net)
    session = opened(queue.initializer, other.initializer)
    with pytest.raises(tf.errors.OutOfRangeError, match=EXHAUSTED):
        session.run(total)


def test_the_end_of_a_dataset_names_the_feed_eagerly(named):
    queue = named(counting(5))
    initialize(queue)
    total = function_of(queue)
    assert total() == 3.0
    with pytest.raises(tf.errors.OutOfRangeError, match=EXHAUSTED):
        total()


def test_an_error_of_a_dataset_is_the_users(graph):
    def checked(x):
        return tf.debugging.check_numerics(1.0 / (x - 2.0), "of the user")

    queue = IPUInfeedQueue(counting().map(checked))
    total = summed(queue)
    session = opened(queue.initializer)
    with pytest.raises(tf.errors.InvalidArgumentError, match="of the user"):
        session.run(total)


def test_an_exception_in_a_dataset(graph):
    def fails(x):
        raise ValueError("of the user")

    dataset = counting().map(
        lambda x: tf.ensure_shape(tf.numpy_function(fails, [x], tf.float32), [])
    )
    queue = IPUInfeedQueue(dataset)
    total = summed(queue)
    session = opened(queue.initializer)
    with pytest.raises(tf.errors.InvalidArgumentError, match="ValueError: of the user"):
        session.run(total)


# Several queues, and several graphs


def test_two_queues_of_one_name_are_two(graph, named):
    first, second = named(counting()), named(counting(2))
    totals = summed(first), summed(second, 2)
    session = opened(first.initializer, second.initializer)
    assert session.run(totals) == (3.0, 1.0)
    with pytest.raises(tf.errors.OutOfRangeError, match=EXHAUSTED):
        session.run(totals[1])
    assert session.run(totals[0]) >= 12.0


def test_two_programs_share_a_queue(graph):
    queue = IPUInfeedQueue(counting())
    three, two = summed(queue, 3), summed(queue, 2)
    session = opened(queue.initializer)
    assert [session.run(one) for one in (three, two, three)] == [3.0, 7.0, 18.0]


def test_a_queue_of_another_graph(named):
    with tf.Graph().as_default():
        queue = named(counting())
    text = "only in the graph in which it was made.*Received: 'numbers', which was made in a graph"
    for use in (lambda: summed(queue), lambda: queue.initializer, lambda: queue.deleter):
        with tf.Graph().as_default(), pytest.raises(ValueError, match=f"{text}.*another one"):
            use()
    with pytest.raises(ValueError, match=f"{text}, and is used eagerly"):
        function_of(queue)()
    eager = IPUInfeedQueue(counting())
    with tf.Graph().as_default(), pytest.raises(ValueError, match="made eagerly, and is used in a"):
        summed(eager)


def test_sessions_end_while_feeds_read_ahead(run_forked):
    """Elements of all kinds of datasets come in stock's order, and the process ends well."""
    found = run_forked(
        """
        import gc, sys
        import numpy as np, tensorflow as tf
        from ipu_keras import ipu_compiler, loops, scopes
        from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
        from ipu_keras.ipu_outfeed_queue import IPUOutfeedQueue
        v1, Dataset = tf.compat.v1, tf.data.Dataset

        def numbers():
            number = 0.0
            while True:
                yield number
                number += 1.0

        def table(x):
            keys = tf.range(10, dtype=tf.int64)
            values = tf.lookup.KeyValueTensorInitializer(keys, 3.0 * tf.range(10.0))
            return Dataset.range(10).map(tf.lookup.StaticHashTable(values, -1.0).lookup).repeat()

        def counting(x):
            return Dataset.range(100).map(lambda k: tf.cast(k, tf.float32))

        KINDS = [
            lambda x: Dataset.from_tensor_slices(x).repeat(),
            lambda x: Dataset.from_generator(
                numbers, output_signature=tf.TensorSpec([], tf.float32)),
            lambda x: counting(x).shuffle(20, seed=5).repeat(),
            table,
        ]
        FED = np.arange(30.0)

        def stock(kind):
            with tf.Graph().as_default():
                x = v1.placeholder(tf.float32, [30])
                iterator = v1.data.make_initializable_iterator(kind(x))
                element = iterator.get_next()
                with v1.Session() as session:
                    session.run(v1.tables_initializer())
                    session.run(iterator.initializer, {x: FED})
                    return [session.run(element) for _ in range(20)]

        expected = [stock(kind) for kind in KINDS]
        for turn in range(40):
            kind = turn % len(KINDS)
            with tf.Graph().as_default():
                x = v1.placeholder(tf.float32, [30])
                infeed = IPUInfeedQueue(KINDS[kind](x), prefetch_depth=50)
                outfeed = IPUOutfeedQueue()
                with scopes.ipu_scope("/device:IPU:0"):
                    program = ipu_compiler.compile(
                        lambda: loops.repeat(10, lambda x: outfeed.enqueue(x), [], infeed))
                dequeued = outfeed.dequeue()
                session = v1.Session()
                session.run(v1.tables_initializer())
                session.run(infeed.initializer, {x: FED})
                session.run(program)
                if turn % 3 == 0:
                    session.close()
                    del session
                    continue
                if turn % 3 == 1:
                    session.run(program)
                found = session.run(dequeued).tolist()
                assert found == expected[kind][:len(found)], (kind, found)
                if turn % 3 == 1:
                    session.close()
                del session, infeed, outfeed, program, dequeued
                gc.collect()
        print("ended well")
        """
    )
    assert found.stdout == "ended well\n"


def test_programs_with_other_replicas_read_feeds_of_their_own():
    configure(2)
    with tf.Graph().as_default():
        queue = IPUInfeedQueue(counting())
        two = compiled(lambda: loops.repeat(2, lambda sum, x: sum + x, [0.0], queue))

        def sharded():
            with scopes.ipu_shard(1):
                return loops.repeat(2, lambda sum, x: sum + x, [0.0], queue)

        one = compiled(sharded)
        session = opened(queue.initializer)
        assert session.run(two) == [2.0]
        text = (
            "Iterator for feed infeed.* has already been setup with a replication factor of 2 "
            "when it should have 1.Infeeds must"
        )
        with pytest.raises(tf.errors.FailedPreconditionError, match=text):
            session.run(one)
    configure(1)
