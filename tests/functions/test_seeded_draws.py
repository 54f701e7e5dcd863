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
        tf.random.shuffle(tf.range(40)),
        tf.random.categorical(tf.zeros([1, 100]), 9, seed=4, dtype=tf.int32),
        v1.multinomial(tf.zeros([1, 100]), 9, output_dtype=tf.int32),
        tf.random.gamma([2], [0.5, 2.0], dtype=tf.float16),
        tf.random.poisson([9], [3.0, 200.0], seed=5),
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
        return (
            tf.random.uniform([3], seed=5),
            tf.random.normal([3], seed=6),
            tf.random.gamma([3], [0.5, 4.0], seed=7),
        )

    on_ipu, stock = (tf.function(seeded, autograph=False) for _ in range(2))
    assert drawn(lambda: strategy.run(on_ipu)) == drawn(stock)


@pytest.mark.parametrize("replicas", [2], indirect=True)
def test_replicas_draw_apart_unless_they_are_told_to(replicas):
    @tf.function(autograph=False)
    def drawn():
        kinds = (
            tf.random.uniform([32]),
            tf.random.shuffle(tf.range(32.0)),
            tf.random.categorical(tf.zeros([1, 99]), 32, dtype=tf.int32)[0],
            tf.random.gamma([32], 1.0),
            tf.random.poisson([32], 9.0),
        )
        kinds = tf.stack([tf.cast(one, tf.float32) for one in kinds])
        return all_to_all_op.all_gather(kinds, replication_factor=2)

    strategy = IPUStrategy()
    reset_ipu_seed(1)
    apart = strategy.run(drawn).numpy()
    reset_ipu_seed(1, experimental_identical_replicas=True)
    alike = strategy.run(drawn).numpy()
    assert (apart[0] != apart[1]).mean(1).min() > 0.5
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
        v1.get_seed(None)  # which TensorFlow counts if it has a seed
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


def test_distributions(replicas):
    """What is drawn has the means and shares that it should, within four standard deviations."""
    count = 4096
    logits = tf.math.log([[0.1, 0.0, 0.3, 0.6], [1.0, 0.0, 0.0, 0.0]])

    @tf.function(autograph=False)
    def drawn():
        return (
            tf.random.shuffle(tf.reshape(tf.range(3 * count), [count, 3])),
            tf.random.shuffle(tf.constant(5)),
            tf.random.categorical(logits, count, dtype=tf.int32),
            tf.random.gamma([count], [0.5, 8.0], beta=2.0),
            tf.random.poisson([count], [0.5, 64.0]),
        )

    reset_ipu_seed(1)
    rows, one, chosen, gammas, poissons = (
        value.numpy().astype(np.float64) for value in IPUStrategy().run(drawn)
    )
    assert one == 5
    assert sorted(rows[:, 0]) == [*range(0, 3 * count, 3)]
    assert (rows - rows[:, :1] == [0, 1, 2]).all()
    # Places of a permutation have no correlation with what is there.
    assert abs(np.corrcoef(rows[:, 0], np.arange(count))[0, 1]) < 4 / count**0.5
    shares = np.bincount(chosen[0].astype(int), minlength=4) / count
    np.testing.assert_allclose(shares, [0.1, 0, 0.3, 0.6], atol=4 * 0.5 / count**0.5)
    assert (chosen[1] == 0).all()
    np.testing.assert_array_less(
        abs(gammas.mean(0) - [0.25, 4.0]), 4 * np.sqrt([0.125, 2.0]) / count**0.5
    )
    np.testing.assert_array_less(
        abs(poissons.mean(0) - [0.5, 64.0]), 4 * np.sqrt([0.5, 64.0]) / count**0.5
    )


def test_gradients_of_what_is_drawn(replicas):
    """A gamma's comes from its parameter; TensorFlow has none of shuffles."""

    @tf.function(autograph=False)
    def gradients(alpha, x):
        with tf.GradientTape() as tape:
            tape.watch((alpha, x))
            gamma, shuffled = tf.random.gamma([2], alpha), tf.random.shuffle(x)
        of_alpha, of_x = tape.gradient((gamma, shuffled), (alpha, x))
        assert of_x is None
        return gamma, of_alpha

    alpha = tf.constant([0.5, 3.0])
    gamma, of_alpha = IPUStrategy().run(gradients, [alpha, tf.ones(3)])
    expected = tf.raw_ops.RandomGammaGrad(alpha=tf.broadcast_to(alpha, [2, 2]), sample=gamma)
    np.testing.assert_allclose(of_alpha, tf.reduce_sum(expected, 0), rtol=1e-5)


def test_a_seed_is_of_one_device():
    reset_ipu_configuration()
    config = IPUConfig()
    config.auto_select_ipus = [1, 1]
    config.configure_ipu_system()
    function = tf.function(numbers, autograph=False)
    first, second = (IPUStrategy(f"/device:IPU:{k}") for k in range(2))
    reset_ipu_seed(1)
    whole = runs(lambda: first.run(function), count=3)
    reset_ipu_seed(1)
    found = runs(lambda: first.run(function))
    reset_ipu_seed(2, "/device:IPU:1")
    assert found + runs(lambda: first.run(function), count=1) == whole
    assert runs(lambda: second.run(function), count=1)[0] not in whole
    reset_ipu_configuration()
