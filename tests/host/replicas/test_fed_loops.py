"""Loops that read datasets, which functions for XLA have."""

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.host.replicas import fed_loops
from ipu_keras.host.replicas.fed_loops import FedLoop
from ipu_keras.host.replicas.segments import replicate


@pytest.fixture
def found(monkeypatch):
    """What was made of the loops of a function."""
    loops = []
    of = FedLoop.of

    def noting(*given):
        loops.append(of(*given))
        return loops[-1]

    monkeypatch.setattr(FedLoop, "of", noting)
    return loops


def numbers(end=100):
    dataset = tf.data.Dataset.range(end).map(lambda number: tf.cast(number, tf.float32))
    return iter(dataset.map(lambda number: {"number": number, "pair": (number, [number] * 3)}))


def in_parts(function, *given):
    """Runs a function as XLA compiles its parts; it is given values and iterators."""
    concrete = tf.function(function).get_concrete_function(*given)
    run = tf.function(replicate(concrete, 1, parts_for_xla=True), autograph=False)
    (results,) = run([tf.nest.flatten(given, expand_composites=True)])
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), results)


def test_numbers_are_read_before_the_loop(found):
    weight = tf.Variable(1.0)

    def function(iterator, scale):
        last = tf.zeros(3)
        for turn in tf.range(2, 10, 3):
            element = next(iterator)
            weight.assign_add(element["number"] * scale)
            last = last + element["pair"][1] * tf.cast(turn, tf.float32)
        return last, weight.read_value()

    iterator = numbers()
    last, total = in_parts(function, iterator, tf.constant(10.0))
    # Turns 2, 5 and 8 read 0, 1 and 2.
    np.testing.assert_array_equal(last, [5 + 16] * 3)
    assert total == weight.numpy() == 31.0
    assert next(iterator)["number"] == 3.0
    assert [loop._count for loop in found] == [3]


def test_two_datasets_and_two_reads(found):
    def function(first, second):
        total = 0.0
        for _ in tf.range(4):
            total = 10.0 * total + next(first)["number"] - next(second)["number"]
            total += next(first)["number"]
        return total

    first, second = numbers(), numbers()
    expected = 0.0
    for turn in range(4):
        expected = 10 * expected + 2 * turn - turn + 2 * turn + 1
    assert in_parts(function, first, second) == expected
    assert (next(first)["number"], next(second)["number"]) == (8.0, 4.0)
    assert [loop._count for loop in found] == [4]


def test_the_end_of_a_dataset_changes_nothing(found):
    weight = tf.Variable(1.0)

    def function(iterator):
        for _ in tf.range(3):
            weight.assign_add(next(iterator)["number"])

    with pytest.raises(tf.errors.OutOfRangeError, match="End of sequence"):
        in_parts(function, numbers(2))
    assert weight.numpy() == 1.0
    assert found[0] is not None


def test_a_condition_that_counts(found):
    def function(iterator):
        number, total = tf.constant(1), tf.constant(0.0)
        while number < 100:
            total += next(iterator)["number"]
            number *= 3
        return number, total

    assert in_parts(function, numbers()) == (243, 10.0)
    assert [loop._count for loop in found] == [5]


def until_a_value(iterator):
    total = tf.constant(0.0)
    while total < 10.0:
        total += next(iterator)["number"]
    return total


def in_a_branch(iterator):
    total = tf.constant(0.0)
    for number in tf.range(6):
        if number % 2 == 0:
            total += next(iterator)["number"] ** 2
    return total + 5.0


def with_an_array(iterator):
    found = tf.TensorArray(tf.float32, 5, element_shape=())
    for number in tf.range(5):
        found = found.write(number, next(iterator)["number"])
    return tf.reduce_sum(found.stack())


def with_an_array_and_constants_from_outside(iterator):
    """XLA needs the axis and the shape when it compiles; of the array nobody has said a shape."""
    axis, shape = tf.constant([1]), tf.constant([1, 3])
    found = tf.TensorArray(tf.float32, 5)
    for number in tf.range(5):
        values = tf.reshape(next(iterator)["pair"][1], shape)
        found = found.write(number, tf.reduce_mean(values, axis))
    return tf.reduce_sum(found.stack())


def of_shapes_that_grow(iterator):
    total = tf.zeros([0])
    for _ in tf.range(5):
        tf.autograph.experimental.set_loop_options(
            shape_invariants=[(total, tf.TensorShape([None]))]
        )
        total = tf.concat([total, [next(iterator)["number"]]], 0)
    return tf.reduce_sum(total)


def with_a_break(iterator):
    total = tf.constant(0.0)
    for _ in tf.range(10):
        total += next(iterator)["number"]
        if total >= 10.0:
            break
    return total


def test_a_loop_without_an_end_of_its_own(found):
    weight = tf.Variable(1.0)

    def function(iterator):
        while tf.constant(True):
            weight.assign_add(next(iterator)["number"])

    with pytest.raises(tf.errors.OutOfRangeError, match="End of sequence"):
        in_parts(function, numbers(4))
    assert weight.numpy() == 7.0
    assert found == [None]


@pytest.mark.parametrize(
    "function",
    [
        until_a_value,
        in_a_branch,
        with_an_array,
        with_an_array_and_constants_from_outside,
        of_shapes_that_grow,
        with_a_break,
    ],
)
def test_other_loops_read_as_they_go(found, function):
    """0 + 1 + 2 + 3 + 4, or what comes to as much."""
    assert in_parts(function, numbers()) == 10.0
    assert found == [None]


def test_what_would_take_too_much_memory_is_read_as_the_loop_goes(found, monkeypatch):
    def function(iterator):
        total = 0.0
        for _ in tf.range(5):
            total += next(iterator)["number"]
        return total

    monkeypatch.setattr(fed_loops, "_MAX_BYTES", 5 * 20)
    assert in_parts(function, numbers()) == 10.0
    monkeypatch.setattr(fed_loops, "_MAX_BYTES", 5 * 20 - 1)
    assert in_parts(function, numbers()) == 10.0
    assert [loop is None for loop in found] == [False, True]
