"""Halves are rounded at random where options and scopes say so, wherever a program comes from."""

import pathlib
import zlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from configured_ipus import configured
from in_sessions import compiled, opened

from ipu_keras import loops, pipelining_ops, scopes
from ipu_keras.config import StochasticRoundingBehaviour
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.ipu_outfeed_queue import IPUOutfeedQueue
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.ops.all_to_all_op import all_gather
from ipu_keras.ops.cross_replica_ops import cross_replica_sum
from ipu_keras.ops.replication_ops import replication_index
from ipu_keras.optimizers import CrossReplicaOptimizer
from ipu_keras.pipelining_ops import OptimizerFunctionOutput
from ipu_keras.utils import reset_ipu_seed

pytestmark = pytest.mark.usefixtures("reset_afterwards")

ALIKE = StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY

# Halfway between the halves 1 and 1 + 2**-10.
ODD = np.float32(1 + 2**-11)
SIZE = 4096
# How far a share of one half may be off: four standard deviations.
OFF = 4 * 0.5 / SIZE**0.5


def with_rounding(esr=True, num_ipus=1, seed=1, num_devices=1):
    strategy = configured([num_ipus] * num_devices, esr=esr)
    reset_ipu_seed(seed)
    return strategy


def is_at_random(values):
    assert set(np.unique(values)) <= {np.float16(1), np.float16(1 + 2**-10)}
    share = (np.asarray(values) > 1).mean()
    assert share == 0 or abs(share - 0.5) < OFF
    return share > 0


in_both = pytest.mark.parametrize("jit_compile", [None, True])


@in_both
def test_shares(jit_compile):
    strategy = with_rounding()
    function = tf.function(lambda x: tf.cast(x, tf.float16), jit_compile=jit_compile)
    x = tf.fill([SIZE], np.float32(1 + 1e-3))
    first, second = (strategy.run(function, [x]).numpy() for _ in range(2))
    share = 1e-3 * 2**10 - 1  # beyond the first half after 1
    for found in (first, second):
        values, counts = np.unique(found, return_counts=True)
        np.testing.assert_array_equal(values, np.float16([1 + 2**-10, 1 + 2**-9]))
        sigma = (share * (1 - share) / SIZE) ** 0.5
        assert abs(counts[1] / SIZE - share) < 4 * sigma
    assert (first != second).any()
    reset_ipu_seed(1)
    np.testing.assert_array_equal(strategy.run(function, [x]), first)


@in_both
@pytest.mark.parametrize("esr", [False, True])
def test_small_updates(jit_compile, esr):
    strategy = with_rounding(esr)
    with strategy.scope():
        variable = tf.Variable(tf.ones([256], tf.float16))

    @tf.function(jit_compile=jit_compile)
    def function():
        for _ in tf.range(1000):
            variable.assign_sub(tf.fill([256], np.float16(1e-4)))
        return variable.read_value()

    found = strategy.run(function).numpy()
    if esr:
        assert abs(found.mean(dtype=np.float64) - 0.9) < 0.002
        assert len(np.unique(found)) > 10
    else:
        assert (found == 1).all()


@in_both
@pytest.mark.parametrize("esr", [False, True])
def test_scopes(jit_compile, esr):
    """The innermost scope counts, of calls as well, and what is in none does as configured."""
    strategy = with_rounding(esr)

    @tf.function
    def called(x):
        with scopes.stochastic_rounding(True):
            inner = tf.cast(x, tf.float16)
        return tf.cast(x, tf.float16), inner

    @tf.function(jit_compile=jit_compile)
    def function(x):
        with scopes.stochastic_rounding(False):
            off, on = called(x)
            _, looped = tf.while_loop(
                lambda k, _: k < 2, lambda k, _: (k + 1, tf.cast(x, tf.float16)), (0, off)
            )
        with scopes.stochastic_rounding(True):
            in_branch = tf.cond(x[0] > 0, lambda: tf.cast(x, tf.float16), lambda: off)
        outside = called(x)
        return off, on, looped, in_branch, *outside, tf.cast(x, tf.float16)

    found = strategy.run(function, [tf.fill([SIZE], ODD)])
    assert [*map(is_at_random, found)] == [False, True, False, True, esr, True, esr]


def test_both_ways_of_the_host_have_the_same_bits():
    """Of calls, loops and branches, which all round with keys of their own."""
    found = []
    for jit_compile in (False, True):
        strategy = with_rounding()
        called = tf.function(lambda x: x + np.float16(2**-11))

        @tf.function(jit_compile=jit_compile)
        def function(x, called=called):
            _, looped = tf.while_loop(
                lambda k, _: k < 3, lambda k, sums: (k + 1, sums + called(x)), (0, 0 * x)
            )
            chosen = tf.switch_case(tf.constant(1), [lambda: x, lambda: called(x)])
            return called(x), called(x), looped, chosen

        found.append([t.numpy() for t in strategy.run(function, [tf.ones([SIZE], tf.float16)])])
    np.testing.assert_array_equal(*found)
    first, second, looped, chosen = found[0]
    for one, other in ((first, second), (first, chosen), (second, chosen)):
        assert abs((one == other).mean() - 0.5) < OFF
    # Three sums of two halves each: equal in all turns they would be 3 or 3 + 3 * 2**-10.
    assert {3 + 2**-10, 3 + 2**-9} & set(np.unique(looped).tolist())


def model(strategy, **options):
    with strategy.scope():
        found = keras.Sequential(
            [
                keras.Input([SIZE], dtype="float16"),
                keras.layers.Rescaling(1.0, offset=2**-11, dtype="float16"),
            ]
        )
        found.compile(**options)
    return found


@pytest.mark.parametrize("jit_compile", [False, True])
def test_models(jit_compile):
    strategy = with_rounding()
    rounding = model(strategy, jit_compile=jit_compile, steps_per_execution=2)
    x = np.ones([4, SIZE], np.float16)
    found = rounding.predict(x, batch_size=1, verbose=0)
    assert is_at_random(found)
    for one in range(3):
        assert abs((found[one] == found[one + 1]).mean() - 0.5) < OFF
    assert not is_at_random(model(with_rounding(False)).predict(x, batch_size=4, verbose=0))


def trained(esr, seed=1, num_ipus=1, jit_compile="auto", optimizer=None, layers=lambda: []):
    strategy = with_rounding(esr, num_ipus, seed)
    keras.utils.set_random_seed(0)
    with strategy.scope():
        found = keras.Sequential(
            [
                keras.Input([64], dtype="float16"),
                *layers(),
                keras.layers.Dense(64, dtype="float16"),
            ]
        )
        found.compile(
            optimizer or keras.optimizers.SGD(0.01, momentum=0.9),
            "mse",
            steps_per_execution=2,
            jit_compile=jit_compile,
        )
    x = np.random.default_rng(0).uniform(0, 1, (16, 64)).astype(np.float16)
    found.fit(x, x, batch_size=4, epochs=2, shuffle=False, verbose=0)
    return found.get_weights()[0]


@pytest.mark.parametrize("jit_compile", [False, True])
def test_training(jit_compile):
    nearest = trained(False, jit_compile=jit_compile)
    first, second, again = (trained(True, seed, jit_compile=jit_compile) for seed in (1, 2, 1))
    np.testing.assert_array_equal(first, again)
    for one, other in ((first, second), (first, nearest)):
        assert (one != other).mean() > 0.2
        np.testing.assert_allclose(one, other, atol=0.01)


def convolution():
    """Layers whose steps XLA compiles one by one."""
    return [
        keras.layers.Reshape([8, 8, 1], dtype="float16"),
        keras.layers.Conv2D(2, 3, dtype="float16"),
        keras.layers.Flatten(dtype="float16"),
    ]


@pytest.mark.parametrize(
    ("num_ipus", "optimizer", "layers"),
    [(1, "adam", lambda: []), (2, None, lambda: []), (1, None, convolution)],
    ids=["scalars", "replicas", "convolution"],
)
def test_both_ways_of_the_host_train_alike(num_ipus, optimizer, layers):
    """Where sums are the same, a seed gives the same weights, whoever runs how much of it."""
    executor, xla = (
        trained(True, 1, num_ipus, jit_compile, optimizer, layers) for jit_compile in (False, True)
    )
    np.testing.assert_array_equal(executor, xla)


def test_the_same_in_another_process(run_forked):
    """Its hashes of texts may differ, and the threads that it has."""
    script = """
        import sys, zlib
        sys.path.insert(0, sys.argv[1])
        from test_stochastic_rounding import trained
        print(zlib.crc32(trained(True, jit_compile=True)))
    """
    found = run_forked(script, str(pathlib.Path(__file__).parent))
    assert int(found.stdout.split()[-1]) == zlib.crc32(trained(True, jit_compile=True))


def test_replicas_that_exchange_values():
    """Each replica rounds for itself, unless only what all of them compute is at random."""

    @tf.function
    def function(x):
        return tf.cast(x, tf.float16), cross_replica_sum(
            tf.cast(tf.cast(x, tf.float16), tf.float32)
        )

    strategy = with_rounding(num_ipus=2)
    _, sums = strategy.run(function, [tf.fill([SIZE], ODD)])
    values, counts = np.unique(sums, return_counts=True)
    np.testing.assert_array_equal(values, [2, 2 + 2**-10, 2 + 2**-9])
    assert abs(counts[1] / SIZE - 0.5) < OFF
    strategy = with_rounding(ALIKE, num_ipus=2)
    _, sums = strategy.run(function, [tf.fill([SIZE], ODD)])
    assert (sums.numpy() == 2).all()
    strategy = with_rounding(ALIKE)
    assert is_at_random(strategy.run(function, [tf.fill([SIZE], ODD)])[0])


def share_alike(rows):
    return np.mean([one == other for one, other in zip(rows[::2], rows[1::2], strict=True)])


@in_both
def test_identical_replicas_of_functions(jit_compile):
    """They round alike in calls, branches and loops, and each of these in its own way."""
    strategy = with_rounding(num_ipus=2)

    @tf.function
    def called(x):
        return x + np.float16(2**-11)

    @tf.function(jit_compile=jit_compile)
    def function(x):
        # All of them wait for a sum, so that there are two segments.
        x += cross_replica_sum(tf.zeros_like(x))
        _, looped = tf.while_loop(lambda k, _: k < 3, lambda k, y: (k + 1, y + called(x)), (0, x))
        every = tf.stack([called(x), called(x), looped])
        return tf.transpose(all_gather(every, replication_factor=2), [1, 0, 2])

    found = {}
    for identical in (False, True, False):
        reset_ipu_seed(1, experimental_identical_replicas=identical)
        kinds = [strategy.run(function, [tf.ones([SIZE], tf.float16)]).numpy() for _ in range(2)]
        for each in kinds:
            first, second, _ = each[:, 0]
            assert abs((first == second).mean() - 0.5) < OFF
            for rows in each:
                assert (share_alike(rows) == 1) if identical else (share_alike(rows) < 0.6)
        assert abs((kinds[0][0, 0] == kinds[1][0, 0]).mean() - 0.5) < OFF
        np.testing.assert_array_equal(found.setdefault(identical, kinds), kinds)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("esr", [False, True])
def test_identical_replicas_of_models(jit_compile, esr):
    """Whether they round at random as configured, or in a scope around the call."""
    strategy = with_rounding(esr, num_ipus=2)
    rounding = model(strategy, jit_compile=jit_compile, steps_per_execution=2)
    x = np.ones([8, SIZE], np.float16)
    for identical in (True, False):
        reset_ipu_seed(1, experimental_identical_replicas=identical)
        with scopes.stochastic_rounding(True):
            found = rounding.predict(x, batch_size=1, verbose=0)
        assert abs((found[0] == found[2]).mean() - 0.5) < OFF
        share = share_alike(found)
        assert share == 1 if identical else abs(share - 0.5) < OFF


def test_identical_replicas_of_sessions():
    """A loop that writes nothing, which is seeded anew when it has run."""
    with_rounding(num_ipus=2)
    with tf.Graph().as_default():
        data = tf.data.Dataset.from_tensors(np.ones([SIZE], np.float16)).repeat()
        infeed, outfeed = IPUInfeedQueue(data), IPUOutfeedQueue()

        def body(x):
            return outfeed.enqueue(x + np.float16(2**-11))

        run = compiled(lambda: loops.repeat(2, body, [], infeed))
        taken, session = outfeed.dequeue(), opened(infeed.initializer)
        for identical in (False, True):
            reset_ipu_seed(1, experimental_identical_replicas=identical)
            session.run(run)
            found = session.run(taken).reshape(-1, SIZE)
            assert abs((found[0] == found[2]).mean() - 0.5) < OFF
            share = share_alike(found)
            assert share == 1 if identical else abs(share - 0.5) < OFF


def test_scopes_of_calls_that_exchange_values():
    """Such calls are taken apart, and what is in them stays in the scopes of the calls."""
    strategy = with_rounding(False, num_ipus=2)

    @tf.function
    def called(x):
        with scopes.stochastic_rounding(False):
            nearest = tf.cast(x, tf.float16)
        return cross_replica_sum(tf.cast(tf.cast(x, tf.float16), tf.float32)), nearest

    @tf.function
    def function(x):
        with scopes.stochastic_rounding(True):
            return called(x)

    sums, nearest = strategy.run(function, [tf.fill([SIZE], ODD)])
    np.testing.assert_array_equal(np.unique(sums), [2, 2 + 2**-10, 2 + 2**-9])
    assert not is_at_random(nearest)


@pytest.mark.parametrize("esr", [False, True])
def test_scopes_of_loops_and_branches_that_exchange_values(esr):
    """They are made anew for all replicas, and so are sums, in the scopes that they were in."""
    strategy = with_rounding(not esr, num_ipus=2)

    @tf.function
    def function(x):
        # Its sums lie halfway between 1 and the next half.
        part = tf.where(replication_index() == 0, np.float16(1), np.float16(2**-11))
        part = tf.fill([SIZE], part)

        def once():
            return tf.cast(x + cross_replica_sum(0.0), tf.float16)

        with scopes.stochastic_rounding(esr):
            total = cross_replica_sum(part)
            looped = tf.while_loop(lambda k, _: k < 1, lambda k, _: (k + 1, once()), (0, part))[1]
            in_branch = tf.cond(tf.constant(1) > 0, once, lambda: part)
            in_case = tf.switch_case(tf.constant(0), [once])
        return total, looped, in_branch, in_case, once(), cross_replica_sum(part)

    found = strategy.run(function, [tf.fill([SIZE], ODD)])
    assert [*map(is_at_random, found)] == [esr] * 4 + [not esr] * 2


@pytest.mark.parametrize("esr", [False, True])
def test_scopes_of_loops_in_functions_that_xla_compiles_in_parts(esr):
    strategy = with_rounding(not esr)
    data = tf.data.Dataset.from_tensors(np.full([SIZE], ODD)).repeat()

    @tf.function(jit_compile=True)
    def function(iterator):
        def once():
            return tf.cast(next(iterator), tf.float16)

        with scopes.stochastic_rounding(esr):
            first = once()
            fed = tf.while_loop(lambda k, _: k < 1, lambda k, _: (k + 1, once()), (0, first))[1]
            in_branch = tf.cond(first[0] > 0, once, lambda: first)
            mapped = tf.map_fn(
                lambda row: row + np.float16(2**-11), tf.ones([2, SIZE // 2], tf.float16)
            )
        return first, fed, in_branch, tf.reshape(mapped, [-1]), once()

    found = strategy.run(function, [iter(data)])
    assert [*map(is_at_random, found)] == [esr, esr, esr, esr, not esr]


def test_only_updates_of_replicas_are_at_random():
    """With weights of 0 and gradients that are exact, only what updates them rounds."""
    nearest, alike, everywhere = (trained(esr, num_ipus=2) for esr in (False, ALIKE, True))
    assert (alike != nearest).mean() > 0.2
    assert (alike != everywhere).mean() > 0.2
    np.testing.assert_allclose(alike, nearest, atol=0.01)


def test_pipelines_update_replicas_alike():
    """Each update is 2**-13, a quarter of what lies between the halves below 1."""
    found = []
    for esr in (False, ALIKE):
        with_rounding(esr, num_ipus=4)
        with tf.Graph().as_default():
            data = tf.data.Dataset.from_tensors(np.ones([SIZE], np.float16)).repeat()
            infeed, outfeed = IPUInfeedQueue(data), IPUOutfeedQueue()

            def loss(x):
                weights = tf.compat.v1.get_variable(
                    "weights", initializer=np.ones([SIZE], np.float16), use_resource=True
                )
                return tf.reduce_sum(x * weights * np.float16(2**-6))

            def optimizer(loss):
                descent = tf.compat.v1.train.GradientDescentOptimizer(2**-9)
                return OptimizerFunctionOutput(CrossReplicaOptimizer(descent), loss)

            def net(infeed=infeed, outfeed=outfeed, loss=loss, optimizer=optimizer):
                return pipelining_ops.pipeline(
                    [tf.identity, loss],
                    4,
                    infeed_queue=infeed,
                    outfeed_queue=outfeed,
                    optimizer_function=optimizer,
                )

            run, session = compiled(net), opened(infeed.initializer)
            session.run(run)
            found.append(session.run(tf.compat.v1.global_variables()[0]))
    nearest, alike = found
    assert (nearest == 1).all()
    assert set(np.unique(alike)) == {np.float16(1), np.float16(1 - 2**-11)}
    # Four standard deviations.
    assert abs((alike < 1).mean() - 0.25) < 4 * (0.25 * 0.75 / SIZE) ** 0.5


def test_sessions():
    with_rounding()
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float16, [SIZE])

        def net(x):
            def body(sums):
                return sums + np.float16(2**-11)

            with scopes.stochastic_rounding(False):
                nearest = x + np.float16(2**-11)
            return x + np.float16(2**-11), nearest, loops.repeat(2, body, [x])

        results = compiled(net, [x])
        ones, session = {x: np.ones(SIZE, np.float16)}, opened()
        with_rounding()
        first, second = (session.run(results, ones) for _ in range(2))
        reset_ipu_seed(1)
        again = session.run(results, ones)
    assert [is_at_random(found) for found in first[:2]] == [True, False]
    assert 1 + 2**-9 in first[2]
    assert abs((first[0] == second[0]).mean() - 0.5) < OFF
    np.testing.assert_array_equal(first, again)


def test_a_seed_is_of_one_device():
    with_rounding(num_devices=2)
    function = tf.function(lambda x: tf.cast(x, tf.float16))
    x = tf.fill([SIZE], ODD)
    first, second = (IPUStrategy(f"/device:IPU:{k}") for k in range(2))

    def found(strategy):
        return strategy.run(function, [x]).numpy()

    reset_ipu_seed(1, "/device:IPU:1")
    before = [found(second) for _ in range(2)]
    reset_ipu_seed(1, "/device:IPU:1")
    assert (found(second) == before[0]).all()
    reset_ipu_seed(1, "/device:IPU:0")
    assert (found(second) == before[1]).all()
    assert (found(first) == before[0]).all()
