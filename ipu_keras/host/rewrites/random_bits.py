"""Random numbers that XLA's programs draw as TensorFlow's own kernel does.

XLA on CPU needs some 50 times as long as TensorFlow's kernel for
`StatelessRandomUniformV2`, which every dropout layer uses, and draws other
numbers than the kernel does. A function of our own gives XLA the kernel's bits
in less time than the kernel.
"""

import contextlib
import functools
from collections.abc import Sequence

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from ipu_keras._device import address_of
from ipu_keras._xla_calls import register
from ipu_keras.host.rewrites.replacement import replaced
from ipu_keras.tracing.as_written import Replaced

# What XLA calls. Of TensorFlow's operations, only one reaches functions that XLA tells the shapes
# of their results: it has a module in MLIR, of this version at least.
_FUNCTION = "ipu_uniform"
_VERSION = 10
_MODULE = """module {{
  func.func public @main(%key: tensor<1xui64>, %counter: tensor<2xui64>) -> {result} {{
    %numbers = stablehlo.custom_call @{function}(%key, %counter) {{api_version = 4 : i32}}
      : (tensor<1xui64>, tensor<2xui64>) -> {result}
    return %numbers : {result}
  }}
}}"""


def compilable_random() -> contextlib.AbstractContextManager[list[Replaced]]:
    """While tracing, replaces float32 uniform draws by what XLA computes fast.

    The numbers are those of TensorFlow's CPU kernel, bit by bit.
    """

    def uniform_for_xla(inputs, output) -> tf.Tensor | None:
        if output.dtype != tf.float32 or not output.shape.is_fully_defined():
            return None
        _, key, counter, _ = inputs
        return uniform(output.shape, key, counter)

    return replaced({"StatelessRandomUniformV2"}, uniform_for_xla)


def uniform(shape: Sequence[int], key: tf.Tensor, counter: tf.Tensor) -> tf.Tensor:
    """Uniform numbers in [0, 1) as `StatelessRandomUniformV2` draws them on CPU, within XLA.

    Args:
        shape: Shape of the result.
        key: uint64 tensor `(1,)`, Philox's key.
        counter: uint64 tensor `(2,)`, Philox's first counter, low word first.

    Returns:
        A float32 tensor.
    """
    _register()
    result = f"tensor<{''.join(f'{size}x' for size in shape)}f32>"
    (numbers,) = gen_xla_ops.xla_call_module(
        [key, counter],
        version=_VERSION,
        module=_MODULE.format(function=_FUNCTION, result=result),
        Sout=[shape],
        Tout=[tf.float32],
        platforms=["CPU"],
    )
    return numbers


@functools.cache
def _register() -> None:
    register(address_of("_ZN3xla3ffi12GetXlaFfiApiEv"), _FUNCTION)
