"""Lets XLA's programs draw the random numbers that TensorFlow's own kernels draw.

For `StatelessRandomUniformV2`, which every dropout layer uses, XLA on a CPU needs some 50 times
as long as TensorFlow's kernel, and it draws other numbers, as it does for normal ones.
Functions of our own give XLA the kernels' bits, uniform ones in less time than the kernel.
`ipu_keras.host.operation_kinds` knows what else XLA draws in its own way: TensorFlow's executor
runs such steps.
"""

import contextlib
import functools
from collections.abc import Sequence

import tensorflow as tf

from ipu_keras._device import address_of
from ipu_keras._xla_calls import register
from ipu_keras.host.rewrites.replacement import replaced
from ipu_keras.internals.fallbacks import fallbacks
from ipu_keras.internals.tensorflow.xla import call_module
from ipu_keras.tracing.as_written import Replaced

# The distribution that each operation draws from.
_DISTRIBUTIONS = {
    "StatelessRandomUniformV2": "uniform",
    "StatelessRandomNormalV2": "normal",
    "StatelessTruncatedNormalV2": "truncated_normal",
}
# `XlaCallModule` is the only operation of TensorFlow's that reaches functions to which XLA
# tells the shapes of their results. It takes a module in MLIR, of a version that TensorFlow 2.19
# knows too.
_VERSION = 9

# The kernels draw normal numbers of 16 bits as float32, and round them. Uniform numbers of
# float16 are made from other bits, and XLA draws the same ones.
_DTYPES = {
    "uniform": (tf.float32,),
    "normal": (tf.float32, tf.float16),
    "truncated_normal": (tf.float32, tf.float16),
}

# TensorFlow's number for the generator Philox.
_PHILOX = 1

_MODULE = """module {{
  func.func public @main(%key: tensor<1xui64>, %counter: tensor<2xui64>) -> {result} {{
    %numbers = stablehlo.custom_call @{function}(%key, %counter) {{api_version = 4 : i32}}
      : (tensor<1xui64>, tensor<2xui64>) -> {result}
    return %numbers : {result}
  }}
}}"""


def compilable_random() -> contextlib.AbstractContextManager[list[Replaced]]:
    """While this is open, uniform, normal and truncated draws are such that XLA computes them fast.

    The numbers are those of TensorFlow's CPU kernels, bit by bit.
    """

    def for_xla(inputs, output) -> tf.Tensor | None:
        distribution = _DISTRIBUTIONS[output.op.type]
        known = output.shape.is_fully_defined()
        if not known or output.dtype not in _DTYPES[distribution]:
            return None
        _, key, counter, _ = inputs
        numbers = draw(distribution, output.shape, key, counter)
        return None if numbers is None else tf.cast(numbers, output.dtype)

    return replaced(frozenset(_DISTRIBUTIONS), for_xla)


def draw(
    distribution: str, shape: Sequence[int], key: tf.Tensor, counter: tf.Tensor
) -> tf.Tensor | None:
    """Draws float32 numbers as TensorFlow's operations do on a CPU, within XLA.

    The result is `None` if the XLA of this TensorFlow cannot draw them.

    Args:
        distribution: A value of `_DISTRIBUTIONS`; uniform numbers are in [0, 1).
        key: A uint64 tensor `(1,)` with Philox's key.
        counter: A uint64 tensor `(2,)` with Philox's first counter, low word first.
    """
    given = (shape, key, counter)
    numbers = fallbacks().attempt("random bits", _by_our_function, distribution, *given)
    if numbers is None and distribution == "uniform":
        return _of_whole_words(*given)
    return numbers


def _by_our_function(
    distribution: str, shape: Sequence[int], key: tf.Tensor, counter: tf.Tensor
) -> tf.Tensor:
    result = f"tensor<{''.join(f'{size}x' for size in shape)}f32>"
    module = _MODULE.format(function=_registered(distribution), result=result)
    return call_module([key, counter], version=_VERSION, module=module, shape=shape)


def _of_whole_words(shape: Sequence[int], key: tf.Tensor, counter: tf.Tensor) -> tf.Tensor:
    """Makes uniform numbers of words, which XLA draws as the kernel does, but in more time."""
    words = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=shape, key=key, counter=counter, alg=_PHILOX, dtype=tf.uint32
    )
    # As the kernel does: 23 bits are the mantissa of a number from 1 to 2, from which 1 is
    # subtracted.
    mantissas = tf.bitwise.bitwise_and(words, tf.constant(0x7FFFFF, tf.uint32))
    floats = tf.bitwise.bitwise_or(mantissas, tf.constant(0x3F800000, tf.uint32))
    return tf.bitcast(floats, tf.float32) - 1.0


@functools.cache
def _registered(distribution: str) -> str:
    """Registers the function that XLA calls for a distribution, and returns its name."""
    name = f"ipu_{distribution}"
    register(address_of("_ZN3xla3ffi12GetXlaFfiApiEv"), name, distribution)
    return name
