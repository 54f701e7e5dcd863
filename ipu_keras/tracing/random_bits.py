"""Random numbers that XLA computes as fast as TensorFlow's own kernel.

XLA on CPU needs some 50 times as long as TensorFlow's kernel for
`StatelessRandomUniformV2`, which every dropout layer uses, and draws other
numbers than the kernel does. The same Philox generator written in TensorFlow
ops, with two words packed into one integer so that XLA fuses its ten rounds
into a single loop, takes the time of the kernel and gives the same bits.
"""

import contextlib
import math
from collections.abc import Sequence

import tensorflow as tf

from ipu_keras.tracing.replacement import Replaced, replaced

# The kind of operation that is replaced; it stays in the graph, without a use.
RANDOM_UNIFORM = "StatelessRandomUniformV2"

# Philox 4x32 with 10 rounds: J. K. Salmon et al., "Parallel random numbers: as
# easy as 1, 2, 3", SC'11.
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

_and = tf.bitwise.bitwise_and
_or = tf.bitwise.bitwise_or
_xor = tf.bitwise.bitwise_xor


def compilable_random() -> contextlib.AbstractContextManager[list[Replaced]]:
    """While tracing, replaces float32 uniform draws by calls of what XLA compiles well.

    The numbers are those of TensorFlow's CPU kernel, bit by bit.
    """
    # Traced once for each shape: its hundred operations take longer than a whole layer.
    function = tf.function(uniform, autograph=False)

    def uniform_for_xla(inputs, output) -> tf.Tensor | None:
        if output.dtype != tf.float32 or not output.shape.is_fully_defined():
            return None
        _, key, counter, _ = inputs
        return function(tuple(output.shape), key, counter)

    return replaced(RANDOM_UNIFORM, uniform_for_xla)


def uniform(shape: Sequence[int], key: tf.Tensor, counter: tf.Tensor) -> tf.Tensor:
    """Uniform numbers in [0, 1) as `StatelessRandomUniformV2` draws them on CPU.

    Args:
        shape: Shape of the result.
        key: uint64 tensor `(1,)`, Philox's key.
        counter: uint64 tensor `(2,)`, Philox's first counter, low word first.

    Returns:
        A float32 tensor.
    """
    bits = philox(math.prod(shape), key, counter)
    # 23 bits of mantissa under the exponent of 1 give [1, 2).
    mantissa = _and(bits, tf.constant(0x7FFFFF, tf.uint32))
    one_to_two = tf.bitcast(_or(mantissa, tf.constant(0x3F800000, tf.uint32)), tf.float32)
    return tf.reshape(one_to_two - 1.0, shape)


def philox(size: int, key: tf.Tensor, counter: tf.Tensor) -> tf.Tensor:
    """The first `size` words of a Philox stream, as a uint32 vector."""
    keys = tf.unstack(tf.bitcast(key[0], tf.uint32), num=2)
    words = _counters((size + 3) // 4, counter)
    # Ten calls take a third of the time to trace that ten times its operations take. XLA puts
    # them in their place.
    mix = tf.function(_round, autograph=False)
    for round_index in range(_ROUNDS):
        if round_index:
            keys = [k + tf.constant(w, tf.uint32) for k, w in zip(keys, _WEYL, strict=True)]
        words = mix(words, keys)
    pairs = tf.stack([_join(words[0], words[1]), _join(words[2], words[3])], axis=1)
    return tf.reshape(tf.bitcast(pairs, tf.uint32), [-1])[:size]


def _counters(num_blocks: int, counter: tf.Tensor) -> list[tf.Tensor]:
    """The four words of each block's 128-bit counter."""
    low = counter[0] + tf.cast(tf.range(num_blocks), tf.uint64)
    high = counter[1] + tf.cast(low < counter[0], tf.uint64)
    return [*_split(low), *_split(high)]


def _round(words: list[tf.Tensor], keys: list[tf.Tensor]) -> list[tf.Tensor]:
    low0, high0 = _split(tf.constant(_MULTIPLIERS[0], tf.uint64) * tf.cast(words[0], tf.uint64))
    low1, high1 = _split(tf.constant(_MULTIPLIERS[1], tf.uint64) * tf.cast(words[2], tf.uint64))
    return [
        _xor(_xor(high1, words[1]), keys[0]),
        low1,
        _xor(_xor(high0, words[3]), keys[1]),
        low0,
    ]


def _split(wide: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    high = tf.bitwise.right_shift(wide, tf.constant(32, tf.uint64))
    return tf.cast(wide, tf.uint32), tf.cast(high, tf.uint32)


def _join(low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    shifted = tf.bitwise.left_shift(tf.cast(high, tf.uint64), tf.constant(32, tf.uint64))
    return _or(tf.cast(low, tf.uint64), shifted)
