"""Dropout: its masks, and who draws which."""

import doctest

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER
from ipu_keras.host.rewrites.random_bits import compilable_random, draw
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops import rand_ops, random_keys
from ipu_keras.ops.all_to_all_op import all_gather
from ipu_keras.ops.rand_ops import dropout
from ipu_keras.utils import reset_ipu_seed

SEED = [123, 2**31 + 5]


def mask(shape, seed, rate):
    """Philox's numbers, where they are not below the rate."""
    key = tf.constant([seed[0] | seed[1] << 32], tf.uint64)
    return draw("uniform", shape, key, tf.zeros([2], tf.uint64)).numpy() >= rate


@pytest.fixture(scope="module")
def strategy():
    """On two IPUs."""
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = [2, 1]
    config.configure_ipu_system()
    yield IPUStrategy()
    SYSTEM.reset()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("rate", [0.2, 0.5])
def test_values(rate, dtype):
    x = np.random.default_rng(0).normal(size=(7, 5)).astype(dtype)
    found = dropout(x, rate=rate, seed=SEED)
    assert found.dtype == dtype
    expected = np.where(mask([7, 5], SEED, rate), x / (1 - rate), 0)
    np.testing.assert_allclose(found, expected, rtol=2e-3 if dtype == "float16" else 1e-6)


def test_the_share_that_is_dropped():
    found = dropout(tf.ones(100_000), rate=0.3).numpy()
    assert np.mean(found == 0) == pytest.approx(0.3, abs=0.01)
    assert np.mean(found) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("seed", [None, SEED])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_gradient_has_the_mask_of_the_values(seed, jit_compile):
    @tf.function(jit_compile=jit_compile)
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = dropout(x, 0.4, seed=seed)
        return y, tape.gradient(y, x)

    y, gradient = run(tf.fill([50], 3.0))
    np.testing.assert_allclose(3 * gradient, y, rtol=1e-6)
    assert 0 < np.count_nonzero(y) < 50


def test_gradients_are_those_of_differences():
    x = tf.constant(np.random.default_rng(0).normal(size=(3, 4)), tf.float32)
    theory, numeric = tf.test.compute_gradient(lambda x: dropout(x, seed=SEED), [x], delta=0.1)
    np.testing.assert_allclose(theory[0], numeric[0], atol=1e-4)


def test_a_seed_gives_one_mask_everywhere():
    x = tf.ones((4, 6))
    expected = dropout(x, seed=SEED)
    seeds = [
        np.array(SEED),
        tuple(SEED),
        tf.constant(SEED, tf.uint32),
        tf.constant([123, -(2**31) + 5], tf.int32),
        [123, -(2**31) + 5],
    ]
    for seed in seeds:
        np.testing.assert_array_equal(dropout(x, seed=seed), expected)
    function = tf.function(lambda x, seed: dropout(x, seed=seed))
    np.testing.assert_array_equal(function(x, tf.constant(SEED, tf.uint32)), expected)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        np.testing.assert_array_equal(session.run(dropout(tf.ones((4, 6)), seed=SEED)), expected)
    assert not np.array_equal(dropout(x, seed=[1, 2]), expected)


def test_the_programs_that_xla_compiles_have_the_same_mask():
    @tf.function(jit_compile=True)
    def run(x):
        with compilable_random():
            return dropout(x, seed=SEED)

    np.testing.assert_array_equal(run(tf.ones((4, 6))), dropout(tf.ones((4, 6)), seed=SEED))


@pytest.mark.parametrize("noise_shape", [(4, 1, 6), (1, 1, 1), (None, 1, None), (4, 5, 6)])
def test_noise_shape(noise_shape):
    found = dropout(tf.ones((4, 5, 6)), 0.5, noise_shape, seed=SEED)
    sizes = [
        of_x if size is None else size for size, of_x in zip(noise_shape, (4, 5, 6), strict=True)
    ]
    expected = np.broadcast_to(2.0 * mask(sizes, SEED, 0.5), (4, 5, 6))
    np.testing.assert_array_equal(found, expected)


def test_an_open_batch():
    function = tf.function(
        lambda x: dropout(x, 0.5, (None, 1), seed=SEED),
        input_signature=[tf.TensorSpec((None, 3))],
    )
    expected = np.repeat(2.0 * mask([5, 1], SEED, 0.5), 3, axis=1)
    np.testing.assert_array_equal(function(tf.ones((5, 3))), expected)


def test_no_sizes_and_no_reference():
    """What upstream takes for not given."""
    x = tf.ones((4, 6))
    expected = dropout(x, seed=SEED)
    for noise_shape in ([], (), np.zeros(0, np.int32), tf.zeros(0, tf.int32)):
        for ref in (False, True):
            found = dropout(x, noise_shape=noise_shape, seed=SEED, ref=ref)
            np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(dropout(x, noise_shape=tf.constant([4, 6]), seed=SEED), expected)


def test_a_reference_must_have_the_shape_of_the_mask():
    x = tf.ones((4, 6))
    found = dropout(x, noise_shape=(4, 1), seed=SEED, ref=tf.zeros((4, 1)))
    np.testing.assert_array_equal(found, dropout(x, noise_shape=(4, 1), seed=SEED))
    traced = tf.function(lambda x: dropout(x, seed=SEED, ref=x))
    np.testing.assert_array_equal(traced(x), dropout(x, seed=SEED))
    with pytest.raises(ValueError, match=r"ref of shape \(4, 6\) for a mask of shape \(4, 1\)"):
        dropout(x, noise_shape=(4, 1), ref=x)


def test_rates_at_which_nothing_is_dropped():
    np.testing.assert_array_equal(dropout(tf.ones(9), rate=0), np.ones(9))


def test_what_is_dropped_is_zero_whatever_it_was():
    found = dropout(tf.fill([64], np.inf), seed=SEED)
    assert set(found.numpy().tolist()) == {0.0, np.inf}


def masks_of(function, count=3):
    return [tuple(function(tf.ones(32)).numpy().tolist()) for _ in range(count)]


@pytest.mark.parametrize("jit_compile", [None, False, True])
def test_without_a_seed_each_call_has_its_own(jit_compile):
    function = dropout if jit_compile is None else tf.function(dropout, jit_compile=jit_compile)
    assert len(set(masks_of(function))) == 3


def test_without_a_seed_in_a_session():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        dropped = dropout(tf.ones(32))
        assert len({session.run(dropped).tobytes() for _ in range(3)}) == 3


@pytest.mark.parametrize("jit_compile", [False, True])
def test_replicas(strategy, jit_compile):
    """Each has masks of its own, which start anew with the seed; or all have the same."""

    @tf.function(jit_compile=jit_compile)
    def run(x):
        return all_gather(dropout(x), 2)

    def masks(seed, identical=False):
        reset_ipu_seed(seed, experimental_identical_replicas=identical)
        with strategy.scope():
            return np.stack([strategy.run(run, args=(tf.ones(32),)) for _ in range(2)])

    first, again, alike = masks(1), masks(1), masks(1, identical=True)
    assert len({mask.tobytes() for step in first for mask in step}) == 4
    np.testing.assert_array_equal(again, first)
    np.testing.assert_array_equal(alike[:, 0], alike[:, 1])
    assert not np.array_equal(alike[0], alike[1])
    assert not np.array_equal(masks(2), first)


def test_programs_of_several_devices(strategy):
    function = tf.function(dropout)
    for name in ("/device:IPU:0", "/device:IPU:1"):
        other = IPUStrategy(name)
        with other.scope():
            found = other.run(function, args=(tf.ones(8),))
        assert found.device.endswith(name)


def test_it_is_one_operation():
    graph = tf.function(dropout).get_concrete_function(tf.TensorSpec((4,))).graph
    draws = [op.name for op in graph.get_operations() if op.type == "StatelessRandomUniformV2"]
    assert draws == ["poplar.Dropout/StatelessRandomUniformV2"]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"rate": 1.0}, ValueError, r"The rate must be in the range \[0, 1\), but was 1\.0"),
        ({"rate": -0.5}, ValueError, r"range \[0, 1\), but was -0\.5"),
        ({"noise_shape": (4,)}, ValueError, "The length of noise_shape must equal the rank of x"),
        ({"noise_shape": (4, 2)}, ValueError, r"must be 1 or that of x.*noise_shape=\[4, 2\]"),
        ({"noise_shape": 4}, TypeError, r"^`noise_shape` is not what .*noise_shape=4\."),
        ({"noise_shape": (4, 1.5)}, TypeError, r"noise_shape=1\.5"),
        ({"rate": None}, ValueError, r"rate=None$"),
        ({"rate": True}, ValueError, r"rate=True$"),
        ({"seed": 3}, ValueError, r"two 32-bit integers.*shape \(\)"),
        ({"seed": [1, 2, 3]}, ValueError, r"two 32-bit integers.*shape \(3,\)"),
        ({"seed": [1, 2**32]}, ValueError, r"two 32-bit integers.*\[1, 4294967296\]"),
        ({"seed": [0.5, 1.0]}, ValueError, r"two 32-bit integers.*\[0\.5, 1\.0\]"),
        ({"seed": tf.constant([1, 2], tf.int64)}, ValueError, "type int64"),
        ({"scale": 2}, TypeError, "takes `ref` besides.*Received: scale"),
    ],
)
def test_mistakes(arguments, error, text):
    with pytest.raises(error, match=text):
        dropout(tf.ones((4, 6)), **arguments)


def test_integers():
    with pytest.raises(TypeError, match=r"`x` must be of a floating point type.*of int32"):
        dropout(tf.constant([1, 2]))


@pytest.mark.parametrize("module", [rand_ops, random_keys])
def test_examples(module):
    assert doctest.testmod(module).failed == 0
