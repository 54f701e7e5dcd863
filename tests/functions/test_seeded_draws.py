"""Random numbers of programs, which `reset_ipu_seed` starts anew although they are compiled."""

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras import ipu_compiler, loops, scopes
from ipu_keras.config import IPUConfig, reset_ipu_configuration
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.ops import all_to_all_op, rand_ops
from ipu_keras.utils import reset_ipu_seed

v1 = tf.compat.v1


@pytest.fixture(params=[1, 2], ids="{} replicas".format)
def replicas(request):
    reset_ipu_configuration()
    config = IPUConfig()
    config.auto_select_ipus = request.param
    config.configure_ipu_system()
    yield request.param
    reset_ipu_configuration()


def numbers():
    """One of each kind of draws, with and without seeds."""
    return (
        tf.random.uniform([2]),
        tf.random.uniform([2], maxval=1 << 30, dtype=tf.int32, seed=2),
        tf.random.normal([2], dtype=tf.float16, seed=3),
        tf.random.truncated_normal([2]),
        rand_ops.dropout(tf.ones(32)),
        loops.repeat(3, lambda x: x + tf.random.uniform([2]), [tf.zeros(2)]),
    )


def runs(run, seed=None, count=2):
    """What some runs draw that follow each other, the first of them with a new seed."""
    if seed is not None:
        reset_ipu_seed(seed)
    return [[np.asarray(value).tolist() for value in run()] for _ in range(count)]


def assert_restarts(run):
    """Equal seeds draw equal numbers, others others, and each run others than the one before."""
    before, first, other, again = runs(run), runs(run, 4), runs(run, 5), runs(run, 4)
    assert first == again
    for found in zip(*before, strict=True):
        assert found[0] != found[1]
    for found in zip(*first, *other, strict=True):
        assert all(one not in found[:place] for place, one in enumerate(found)), found


def test_computations_of_sessions(replicas):
    with tf.Graph().as_default(), v1.Session() as session:
        with scopes.ipu_scope("/device:IPU:0"):
            compiled = ipu_compiler.compile(numbers)
        assert_restarts(lambda: session.run(compiled))
        # Another session of the graph is seeded as well.
        with v1.Session() as other:
            assert runs(lambda: other.run(compiled), 4) == runs(lambda: session.run(compiled), 4)


def test_functions_of_a_strategy(replicas):
    strategy, function = IPUStrategy(), tf.function(numbers, autograph=False)
    assert_restarts(lambda: strategy.run(function))


def test_first_numbers_are_those_of_tensorflow(replicas):
    strategy = IPUStrategy()

    def drawn(run):
        tf.random.set_seed(1)
        return runs(run)

    def seeded():
        return tf.random.uniform([3], seed=5), tf.random.normal([3], seed=6)

    on_ipu, stock = (tf.function(seeded, autograph=False) for _ in range(2))
    assert drawn(lambda: strategy.run(on_ipu)) == drawn(stock)


@pytest.mark.parametrize("replicas", [2], indirect=True)
def test_replicas_draw_apart_unless_they_are_told_to(replicas):
    @tf.function(autograph=False)
    def drawn():
        return all_to_all_op.all_gather(tf.random.uniform([4]), replication_factor=2)

    strategy = IPUStrategy()
    reset_ipu_seed(1)
    apart = strategy.run(drawn).numpy()
    reset_ipu_seed(1, experimental_identical_replicas=True)
    alike = strategy.run(drawn).numpy()
    assert (apart[0] != apart[1]).all()
    assert (alike == apart[0]).all()


def test_a_seed_between_compilation_and_the_first_run(replicas):
    def drawn(seed):
        with tf.Graph().as_default(), v1.Session() as session:
            with scopes.ipu_scope("/device:IPU:0"):
                compiled = ipu_compiler.compile(lambda: tf.random.uniform([2]))
            reset_ipu_seed(seed)
            return session.run(compiled)[0].tolist()

    assert drawn(3) == drawn(3) != drawn(4)


def test_a_seed_from_before_the_trace_is_the_same_as_one_from_after_it(replicas):
    """Whether TensorFlow had a seed when an operation was traced changes nothing."""
    strategy = IPUStrategy()

    def seeded():
        tf.random.shuffle(tf.range(2))  # which TensorFlow counts if it has a seed
        return tf.random.uniform([2]), tf.random.uniform([2], seed=7), tf.random.normal([2])

    after, before = (tf.function(seeded, autograph=False) for _ in range(2))
    runs(lambda: strategy.run(after))
    first = runs(lambda: strategy.run(after), 3)
    assert runs(lambda: strategy.run(before), 3) == first
    assert runs(lambda: strategy.run(before), 3) == first
    # A seed of TensorFlow's, from after that, is the one of what is traced then.
    tf.random.set_seed(5)
    found, stock = (tf.function(seeded, autograph=False) for _ in range(2))
    assert runs(lambda: strategy.run(found), count=1) == runs(stock, count=1)
