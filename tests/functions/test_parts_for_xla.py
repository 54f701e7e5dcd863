"""Functions for XLA that do what XLA lacks, as `strategy.run` runs them."""

import numpy as np
import pytest
import tensorflow as tf
from in_sessions import configure

from ipu_keras.device import device_for
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops.cross_replica_ops import cross_replica_sum


@pytest.fixture(autouse=True)
def one_ipu():
    configure(1)
    yield
    SYSTEM.reset()


@pytest.fixture
def strategy():
    return IPUStrategy()


@pytest.fixture
def device():
    device = device_for(0)
    device.reset_counters()
    return device


# Of each style of reading, a function and how many elements a call reads.


def once(data):
    return next(data["x"])["number"]


def in_a_loop(data):
    total = tf.zeros(())
    for _ in tf.range(3):
        total += next(data["x"])["number"]
    return total


def in_a_loop_of_unknown_length(data):
    total = tf.zeros(())
    for _ in tf.range(data["steps"]):
        total += next(data["x"])["number"]
    return total


def of_two_iterators(data):
    a, (b,) = next(data["x"])["number"], next(data["others"][0])["pair"]
    return a + tf.cast(b, tf.float32)


def in_a_branch(data):
    return next(data["x"])["number"] if data["steps"] > 1 else tf.zeros(())


def in_a_function(data):
    return tf.function(once)(data)


READS = {
    once: 1,
    in_a_loop: 3,
    in_a_loop_of_unknown_length: 2,
    of_two_iterators: 1,
    in_a_branch: 1,
    in_a_function: 1,
}


def iterator_of(numbers):
    dataset = tf.data.Dataset.from_tensor_slices(tf.cast(numbers, tf.float32))
    return iter(dataset.map(lambda x: {"number": x, "pair": (tf.cast(10 * x, tf.int32),)}))


@pytest.mark.parametrize("read", READS, ids=lambda read: read.__name__)
def test_iterators_of_a_function_for_xla(strategy, device, read):
    """XLA of the host cannot read datasets, which an IPU's programs do with infeeds."""
    results, ends = [], []
    for jit_compile in (None, True):
        data = {"x": iterator_of([1, 2, 3, 4, 5, 6]), "steps": tf.constant(2)}
        data["others"] = [iterator_of([7, 8, 9, 10, 11, 12])]
        function = tf.function(read, jit_compile=jit_compile)
        found = [float(strategy.run(function, [data])) for _ in range(6 // READS[read])]
        results.append(found)
        with pytest.raises(tf.errors.OutOfRangeError, match="End of sequence") as caught:
            strategy.run(function, kwargs={"data": data})
        ends.append(type(caught.value))
    assert results[0] == results[1]
    assert len(set(results[1])) == len(results[1])
    assert ends[0] is ends[1]
    assert device.counters().num_function_calls == 2 * (6 // READS[read])


def test_a_captured_iterator_of_a_function_for_xla(strategy):
    iterator = iterator_of([1, 2])
    plus = tf.function(lambda x: x + next(iterator)["number"], jit_compile=True)
    assert [float(strategy.run(plus, [tf.constant(1.0)])) for _ in range(2)] == [2, 3]
    with pytest.raises(tf.errors.OutOfRangeError, match="End of sequence"):
        strategy.run(plus, [tf.constant(1.0)])


def test_a_function_for_xla_that_another_one_runs_reads_an_iterator(strategy):
    inner = tf.function(once, jit_compile=True)

    @tf.function
    def total(data):
        result = tf.zeros(())
        for _ in tf.range(3):
            result += strategy.run(inner, args=(data,))
        return result

    data = {"x": iterator_of([1, 2, 3])}
    with strategy.scope():
        assert total(data).numpy() == 6


def test_what_only_the_hosts_xla_lacks_runs_without_it(strategy):
    draw = tf.function(
        lambda shape: tf.random.stateless_gamma([3], [1, 2], shape), jit_compile=True
    )
    expected = tf.random.stateless_gamma([3], [1, 2], 2.0)
    np.testing.assert_array_equal(strategy.run(draw, [tf.constant(2.0)]), expected)


def test_a_function_for_xla_that_reads_an_iterator_computes_what_it_does_without(strategy):
    runs = []
    for jit_compile in (None, True):
        with strategy.scope():
            weight = tf.Variable(tf.eye(32))

        def loop(iterator, weight=weight):
            for _ in tf.range(20):
                x = next(iterator)
                weight.assign_add(0.001 * tf.matmul(x, tf.tanh(x @ weight), transpose_a=True))
            return tf.reduce_sum(weight)

        data = iter(tf.data.Dataset.from_tensors(tf.ones((32, 32))).repeat())
        function = tf.function(loop, jit_compile=jit_compile)
        runs.append(lambda function=function, data=data: strategy.run(function, [data]).numpy())

    np.testing.assert_allclose(runs[0](), runs[1](), rtol=1e-4)


def test_convolutions_and_draws_are_left_to_tensorflow(strategy):
    """So that they are as fast, and the numbers the same."""
    kernel = tf.ones((3, 3, 1, 1))
    data = [tf.reshape(tf.range(16.0), (1, 4, 4, 1))]
    dataset = tf.data.Dataset.from_tensor_slices(data).repeat()

    def convolution(iterator):
        return tf.nn.conv2d(next(iterator), kernel, 1, "SAME")

    def draw(iterator):
        return next(iterator) + tf.random.stateless_uniform((1, 4, 4, 1), [1, 2])

    for function in (convolution, draw):
        plain, compiled = tf.function(function), tf.function(function, jit_compile=True)
        found = strategy.run(compiled, [iter(dataset)])
        np.testing.assert_array_equal(found, plain(iter(dataset)))


@pytest.mark.parametrize("jit_compile", [None, True])
def test_replicas_read_in_turn_and_exchange_in_a_loop(jit_compile):
    """Replica 0 reads 0, 2 and 4, and replica 1 the others; each adds all to its own variable."""
    configure(2)
    strategy = IPUStrategy()
    with strategy.scope():
        total = tf.Variable(1.0)
    iterator = iterator_of(list(range(12)))

    @tf.function(jit_compile=jit_compile)
    def loop(iterator):
        for _ in tf.range(3):
            number = next(iterator)["number"]
            total.assign_add(cross_replica_sum(number))
        return number, total.read_value()

    assert [float(value) for value in strategy.run(loop, [iterator])] == [4.0, 16.0]
    assert [float(value) for value in strategy.run(loop, [iterator])] == [10.0, 67.0]
    assert float(total) == 67.0


def test_tensorflow_warns_of_the_function_of_a_user_that_it_traces_often(
    strategy, caplog, monkeypatch
):
    """Functions of several users are not one that is traced often."""
    # Other tests may have left TensorFlow's logger silent.
    monkeypatch.setattr(tf.get_logger(), "propagate", True)
    monkeypatch.setattr(tf.get_logger(), "disabled", False)
    caplog.set_level("WARNING", logger="tensorflow")

    def made(name):
        scope = {}
        exec(f"def {name}(iterator): return next(iterator)['number']", scope)
        return tf.function(scope[name], jit_compile=True, autograph=False)

    for k in range(8):
        assert float(strategy.run(made(f"plus_{k}"), [iterator_of([k])])) == k
    assert "retracing" not in caplog.text
    often = made("often").python_function
    for _ in range(8):
        function = tf.function(often, jit_compile=True, autograph=False)
        strategy.run(function, [iterator_of([1])])
    assert "<function often at" in caplog.text
    assert "in_parts" not in caplog.text


def test_integers_from_outside_the_function(strategy):
    """TensorFlow makes constants of few of them, and captures them all the same."""
    rows = tf.constant([0, 0, 1])

    @tf.function(jit_compile=True)
    def sums(x):
        return tf.math.segment_sum(x, rows)  # XLA has no kernel for it

    assert strategy.run(sums, [tf.constant([1.0, 2.0, 5.0])]).numpy().tolist() == [3.0, 5.0]
