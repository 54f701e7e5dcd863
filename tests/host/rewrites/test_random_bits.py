"""Random numbers in XLA's programs: bit by bit those of TensorFlow's CPU kernel."""

import contextlib
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_keras.host.rewrites import random_bits
from ipu_keras.host.rewrites.random_bits import compilable_random

PHILOX = 1  # of `tf.random.Algorithm`
words = st.integers(0, 2**64 - 1)
# Where the low half of the counter, or a word of it, runs over.
edges = st.sampled_from([0, 1, 2**32 - 2, 2**32 - 1, 2**32, 2**64 - 2, 2**64 - 1])
counters = st.tuples(words | edges, words | edges)
shapes = st.lists(st.integers(0, 7), max_size=4)


def uint64(*values):
    return tf.constant(np.array(values, np.uint64))


def bits_of(floats):
    return np.asarray(floats).view(np.uint32)


@functools.cache
def compiled(size):
    """Draws so many numbers in one of XLA's programs."""
    return tf.function(
        lambda *given: random_bits.draw("uniform", (size,), *given), jit_compile=True
    )


def mantissas_of(numbers):
    """The 23 bits of each word that numbers from 0 to 1 keep."""
    return bits_of(numbers + np.float32(1)) & 0x7FFFFF


def by_kernel(shape, key, counter):
    return tf.raw_ops.StatelessRandomUniformV2(
        shape=tf.constant(shape, tf.int32), key=key, counter=counter, alg=PHILOX
    )


def philox_by_numpy(size, key, counter):
    """Philox 4x32-10 as the paper has it, block by block in Python's integers."""
    stream = []
    first = counter[0] | counter[1] << 64
    for block in range((size + 3) // 4):
        number = (first + block) % 2**128
        x = [number >> shift & 0xFFFFFFFF for shift in (0, 32, 64, 96)]
        k = [key & 0xFFFFFFFF, key >> 32]
        for _ in range(10):
            low, high = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
            x = [
                (high >> 32) ^ x[1] ^ k[0],
                high & 0xFFFFFFFF,
                (low >> 32) ^ x[3] ^ k[1],
                low & 0xFFFFFFFF,
            ]
            k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
        stream += x
    return np.array(stream[:size], np.uint32)


# -- the generator -------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "counter", "block"),
    [
        # The known answers that come with the Random123 library of the paper's authors.
        (0, (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (2**64 - 1, (2**64 - 1, 2**64 - 1), "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            0x299F31D0_A4093822,
            (0x85A308D3_243F6A88, 0x03707344_13198A2E),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_known_answers(key, counter, block):
    words_of_block = np.array([int(word, 16) for word in block.split()], np.uint32)
    np.testing.assert_array_equal(philox_by_numpy(4, key, counter), words_of_block)
    numbers = compiled(4)(uint64(key), uint64(*counter))
    np.testing.assert_array_equal(mantissas_of(numbers), words_of_block & 0x7FFFFF)


# The kernel computes 256 numbers at a time.
@settings(deadline=None)
@given(size=st.sampled_from([1, 2, 5, 255, 256, 257, 700]), key=words, counter=counters)
def test_the_stream(size, key, counter):
    numbers = compiled(size)(uint64(key), uint64(*counter))
    expected = philox_by_numpy(size, key, counter) & 0x7FFFFF
    np.testing.assert_array_equal(mantissas_of(numbers), expected)
    assert numbers.dtype == tf.float32


@pytest.mark.parametrize("past", [1, 63, 64, 65, 128])
@pytest.mark.parametrize("high", [0, 2**32 - 1, 2**64 - 1])
def test_carries_of_the_block_counter(past, high):
    counter = (2**64 - past, high)
    numbers = compiled(1000)(uint64(7), uint64(*counter))
    expected = philox_by_numpy(1000, 7, counter) & 0x7FFFFF
    np.testing.assert_array_equal(mantissas_of(numbers), expected)
    kernel = by_kernel([1000], uint64(7), uint64(*counter))
    np.testing.assert_array_equal(bits_of(numbers), bits_of(kernel))


# -- uniform numbers -----------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(shape=shapes, key=words, counter=counters)
def test_shapes(shape, key, counter):
    function = tf.function(
        lambda *given: random_bits.draw("uniform", shape, *given), jit_compile=True
    )
    ours = function(uint64(key), uint64(*counter))
    assert ours.shape == shape
    kernel = by_kernel(shape, uint64(key), uint64(*counter))
    np.testing.assert_array_equal(bits_of(ours), bits_of(kernel))


@pytest.mark.parametrize("shape", [[1_000_003], [64, 64, 128], [4, 1, 65_537]])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_large_tensors(shape, jit_compile):
    # TensorFlow's kernel gives each of its threads a part of the stream.
    key, counter = uint64(123456789), uint64(2**64 - 1000, 5)
    ours = tf.function(
        functools.partial(random_bits.draw, "uniform"), jit_compile=jit_compile, autograph=False
    )(shape, key, counter)
    np.testing.assert_array_equal(bits_of(ours), bits_of(by_kernel(shape, key, counter)))


def test_the_range():
    numbers = compiled(100_000)(uint64(1), uint64(0, 0)).numpy()
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    assert abs(numbers.mean() - 0.5) < 0.01


# -- normal numbers ------------------------------------------------------------

KERNELS = {
    "normal": tf.raw_ops.StatelessRandomNormalV2,
    "truncated_normal": tf.raw_ops.StatelessTruncatedNormalV2,
}


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("distribution", KERNELS)
@settings(max_examples=20, deadline=None)
@given(
    shape=shapes | st.sampled_from([[1], [255], [256], [257], [3, 100], [1031]]),
    key=words,
    counter=counters,
)
def test_normal_numbers_are_those_of_the_kernel_bit_by_bit(
    distribution, dtype, shape, key, counter
):
    """Also their last bits: logarithm, sine and cosine are those of the same C library."""
    kernel = KERNELS[distribution]

    def drawn(key, counter):
        with compilable_random():
            return kernel(shape=shape, key=key, counter=counter, alg=PHILOX, dtype=dtype)

    given_key, given_counter = uint64(key), uint64(*counter)
    ours = tf.function(drawn, jit_compile=True)(given_key, given_counter)
    expected = kernel(shape=shape, key=given_key, counter=given_counter, alg=PHILOX, dtype=dtype)
    assert ours.dtype == expected.dtype == dtype
    assert ours.shape == shape
    bits = np.uint32 if dtype == tf.float32 else np.uint16
    np.testing.assert_array_equal(ours.numpy().view(bits), expected.numpy().view(bits))


@pytest.mark.parametrize("distribution", KERNELS)
def test_many_normal_numbers(distribution):
    """So many that some truncated ones come from a third block of the stream."""
    key, counter = uint64(123456789), uint64(2**64 - 1000, 5)
    function = functools.partial(random_bits.draw, distribution, [1_000_003])
    ours = tf.function(function, jit_compile=True, autograph=False)(key, counter).numpy()
    kernel = KERNELS[distribution](shape=[1_000_003], key=key, counter=counter, alg=PHILOX)
    np.testing.assert_array_equal(bits_of(ours), bits_of(kernel))
    assert (abs(ours).max() < 2) == (distribution == "truncated_normal")


# -- while tracing -------------------------------------------------------------


def draws_in_use(concrete):
    """The kernel's ops in a traced function and in what it calls whose numbers are used."""
    graphs = [concrete.graph, *(f.graph for f in concrete.graph._functions.values())]
    return [
        op.name
        for graph in graphs
        for op in graph.get_operations()
        if op.type == "StatelessRandomUniformV2" and op.outputs[0].consumers()
    ]


def draw(seed):
    return tf.random.stateless_uniform([5, 7], seed=seed)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_draws_become_other_ops_with_the_same_numbers(jit_compile):
    def replaced(seed):
        with compilable_random():
            return draw(seed)

    seed = tf.constant([3, 4])
    function = tf.function(replaced, jit_compile=jit_compile)
    assert not draws_in_use(function.get_concrete_function(seed))
    np.testing.assert_array_equal(bits_of(function(seed)), bits_of(draw(seed)))


def test_draws_within_loops_branches_and_calls():
    @tf.function(autograph=False)
    def called(seed):
        return draw(seed)

    def everywhere(seed):
        looped = tf.while_loop(
            lambda step, _: step < 3,
            lambda step, total: (step + 1, total + draw(seed + step)),
            [0, tf.zeros([5, 7])],
        )[1]
        branched = tf.cond(seed[0] > 0, lambda: draw(seed), lambda: draw(seed + 1))
        return looped, branched, called(seed)

    def replaced(seed):
        with compilable_random():
            return everywhere(seed)

    seed = tf.constant([3, 4])
    function = tf.function(replaced, autograph=False)
    assert not draws_in_use(function.get_concrete_function(seed))
    stock = tf.function(everywhere, autograph=False)(seed)
    for ours, expected in zip(function(seed), stock, strict=True):
        np.testing.assert_array_equal(bits_of(ours), bits_of(expected))


def test_draws_under_a_tape():
    def gradient(x):
        with compilable_random(), tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(x * x * draw([3, 4]))
        return tape.gradient(y, x)

    x = tf.ones([5, 7])
    np.testing.assert_array_equal(tf.function(gradient)(x), 2 * draw([3, 4]))


@pytest.mark.parametrize(
    "drawing",
    [
        lambda seed: tf.random.stateless_uniform([4], seed, dtype=tf.float64),
        lambda seed: tf.random.stateless_uniform([4], seed, dtype=tf.float16),
        lambda seed: tf.random.stateless_uniform([4], seed, maxval=9, dtype=tf.int32),
        lambda seed: tf.random.stateless_normal([4], seed, dtype=tf.float64),
        lambda seed: tf.random.stateless_truncated_normal([4], seed, dtype=tf.bfloat16),
        lambda seed: tf.random.stateless_uniform(seed[:1] + 2, seed),  # of unknown shape
    ],
    ids=["float64", "float16", "int32", "float64 normal", "bfloat16", "unknown shape"],
)
def test_what_is_left_to_the_kernel(drawing):
    def replaced(seed):
        with compilable_random():
            return drawing(seed)

    seed = tf.constant([3, 4])
    np.testing.assert_array_equal(tf.function(replaced)(seed), drawing(seed))


def test_eager_draws_are_left_to_the_kernel():
    seed = tf.constant([3, 4])
    with compilable_random():
        inside = draw(seed)
    np.testing.assert_array_equal(inside, draw(seed))


def test_it_takes_itself_back():
    def after(seed):
        with compilable_random():
            pass
        return draw(seed)

    def after_a_mistake(seed):
        try:
            with compilable_random():
                raise ValueError
        except ValueError:
            return draw(seed)

    for function in (draw, after, after_a_mistake):
        concrete = tf.function(function).get_concrete_function(tf.constant([3, 4]))
        assert draws_in_use(concrete)


# -- Keras's dropout -----------------------------------------------------------


def masks(trace, jit_compile):
    """What three calls of a dropout layer leave of ones."""

    def call(x):
        with trace():
            return layer(x, training=True)

    layer = keras.layers.Dropout(0.4, seed=11)
    function = tf.function(call, jit_compile=jit_compile)
    return np.stack([function(tf.ones([6, 9])) for _ in range(3)])


def test_dropout_masks_are_those_of_stock_keras():
    stock = masks(contextlib.nullcontext, jit_compile=False)
    assert len({mask.tobytes() for mask in stock}) == 3
    np.testing.assert_array_equal(masks(compilable_random, jit_compile=False), stock)
    np.testing.assert_array_equal(masks(compilable_random, jit_compile=True), stock)
    # Which is why it is there: XLA draws other numbers than the kernel.
    assert not np.array_equal(masks(contextlib.nullcontext, jit_compile=True), stock)


# -- what XLA draws as the kernels do -------------------------------------------


@pytest.mark.parametrize("shape", [[1], [7, 9], [1031]])
@pytest.mark.parametrize(
    "drawing",
    [
        lambda shape, seed: tf.random.stateless_uniform(shape, seed, dtype=tf.float16),
        lambda shape, seed: tf.random.stateless_uniform(shape, seed, 0, 9, tf.int32),
        lambda shape, seed: tf.random.stateless_uniform(shape, seed, None, None, tf.uint32),
    ],
    ids=["float16", "int32", "uint32"],
)
def test_what_xla_draws_as_the_kernel_does(drawing, shape):
    """Which is why it is left to XLA; see `drawn_otherwise_by_xla` for all else."""
    seed = tf.constant([3, 4])
    compiled = tf.function(lambda seed: drawing(shape, seed), jit_compile=True)
    np.testing.assert_array_equal(compiled(seed), drawing(shape, seed))
