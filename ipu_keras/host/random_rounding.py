"""What definitions of functions need to round float32 to halves at random, as an IPU does.

An operation's bits follow from a key and from what it has of its own. Keys are numbers of 64 bits:
an execution takes the next one of its device, and each call, branch and step of a loop has one
that follows from it. Kernels of TensorFlow's executor and functions that XLA's programs call
(`_cext/_rounding.pyx`) give the same bits.
"""

import functools

from ipu_keras._device import address_of
from ipu_keras._rounding import own_number, register_in_xla

# The multiplier of the generator of D. E. Knuth's MMIX ("The Art of Computer Programming", vol. 2),
# and the step of SplitMix64's counter, which keeps small salts far apart.
_MULTIPLIER = 6364136223846793005
_SPACING = 0x9E3779B97F4A7C15

# Operations of a function have salts from 1 on; that of what follows in a loop is 0.
NEXT_STEP = 0

_ROUNDING, _KEY = "ipu_round_randomly", "ipu_rounding_key"

# XLA knows all shapes when it compiles a module, and writes them into it.
_ROUND_MODULE = """module attributes {{jax.uses_shape_polymorphism = true}} {{
  func.func public @main(%wide: tensor<?xf32>, %key: tensor<i64>) -> tensor<?xf16> {{
    %size = stablehlo.get_dimension_size %wide, dim = 0 : (tensor<?xf32>) -> tensor<i32>
    %shape = stablehlo.reshape %size : (tensor<i32>) -> tensor<1xi32>
    %own = stablehlo.constant dense<{own}> : tensor<i64>
    %halves = stablehlo.custom_call @{function}(%wide, %key, %own, %shape)
      {{api_version = 4 : i32, indices_of_shape_operands = dense<[3]> : tensor<1xi64>}}
      : (tensor<?xf32>, tensor<i64>, tensor<i64>, tensor<1xi32>) -> tensor<?xf16>
    return %halves : tensor<?xf16>
  }}
}}"""
_KEY_MODULE = """module {{
  func.func public @main() -> tensor<i64> {{
    %stream = stablehlo.constant dense<{stream}> : tensor<i64>
    %key = stablehlo.custom_call @{function}(%stream)
      {{api_version = 4 : i32, has_side_effect = true}} : (tensor<i64>) -> tensor<i64>
    return %key : tensor<i64>
  }}
}}"""


def following_key(salt: int) -> tuple[int, int, int]:
    """Returns what makes a key of another: a term, a factor and a term, in this order."""
    return _signed(_SPACING * salt), _MULTIPLIER, 1


def module_that_rounds(salt: int, overflow: int) -> bytes:
    """Returns a module in MLIR that rounds float32 `[n]` by a key, int64, to float16 `[n]`."""
    _register_in_xla()
    return _ROUND_MODULE.format(own=own_number(salt, overflow), function=_ROUNDING).encode()


def module_of_keys(stream: int) -> bytes:
    """Returns a module in MLIR that gives the next of a device's keys, int64."""
    _register_in_xla()
    return _KEY_MODULE.format(stream=stream, function=_KEY).encode()


@functools.cache
def _register_in_xla() -> None:
    """Makes the functions known to XLA, once in a process."""
    register_in_xla(address_of("_ZN3xla3ffi12GetXlaFfiApiEv"), _ROUNDING, _KEY)


def _signed(number: int) -> int:
    """The lowest 64 bits of a number, as those of a signed integer."""
    return (number + 2**63) % 2**64 - 2**63
