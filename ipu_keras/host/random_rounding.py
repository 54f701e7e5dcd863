"""What definitions of functions need to round as an IPU does: at random, and partial sums.

An operation's bits follow from a key and from what it has of its own. Keys are numbers of 64 bits:
an execution takes the next one of its device, and each call, branch and step of a loop has one
that follows from it. Kernels of TensorFlow's executor and functions that XLA's programs call
(`_cext/_rounding.pyx`) give the same bits.
"""

import functools
from collections.abc import Sequence

import tensorflow as tf

from ipu_keras._device import address_of
from ipu_keras._rounding import own_number, register
from ipu_keras._rounding import register_in_xla as register_functions
from ipu_keras.internals.tensorflow.xla import call_module

# The multiplier of the generator of D. E. Knuth's MMIX ("The Art of Computer Programming", vol. 2),
# and the step of SplitMix64's counter, which keeps small salts far apart.
_MULTIPLIER = 6364136223846793005
_SPACING = 0x9E3779B97F4A7C15
# Between the keys of replicas, with which no salts may meet: the multiplier for 64 bits of
# G. L. Steele and S. Vigna, "Computationally easy, spectrally good multipliers", 2022.
_OF_REPLICA = 0xD1342543DE82EF95

# Operations of a function have salts from 1 on; that of what follows in a loop is 0.
NEXT_STEP = 0

_ROUNDING, _KEY, _SUMS = "ipu_round_randomly", "ipu_rounding_key", "ipu_partial_sums"
NOTING, KEEPING = "ipu_note_not_finite", "ipu_keep"

# Of the serialization format of MLIR, see `rewrites/random_bits.py`.
MODULE_VERSION = 9

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


# Sizes of results follow from those of what is added up, and of a tensor that has their places.
_SUMS_MODULE = """module attributes {{jax.uses_shape_polymorphism = true}} {{
  func.func public @main(
    %images: tensor<?x?x?x?x?x?xf32>, %filters: tensor<?x?x?x?x?x?xf32>,
    %geometry: tensor<15xi64>, %key: tensor<i64>, %own: tensor<i64>, %places: tensor<?x?x?xi8>
  ) -> tensor<?x?x?x?x?x?xf32> {{
{sizes}
    %shape = stablehlo.concatenate %s0, %s1, %s2, %s3, %s4, %s5, dim = 0
      : ({types}) -> tensor<6xi32>
    %sums = stablehlo.custom_call @{function}(%images, %filters, %geometry, %key, %own, %shape)
      {{api_version = 4 : i32, indices_of_shape_operands = dense<[5]> : tensor<1xi64>}}
      : (tensor<?x?x?x?x?x?xf32>, tensor<?x?x?x?x?x?xf32>, tensor<15xi64>, tensor<i64>,
         tensor<i64>, tensor<6xi32>) -> tensor<?x?x?x?x?x?xf32>
    return %sums : tensor<?x?x?x?x?x?xf32>
  }}
}}"""
_SIZE = """    %n{k} = stablehlo.get_dimension_size %{tensor}, dim = {dim}
      : (tensor<{type}>) -> tensor<i32>
    %s{k} = stablehlo.reshape %n{k} : (tensor<i32>) -> tensor<1xi32>"""
_SIX, _PLACES = "?x?x?x?x?x?xf32", "?x?x?xi8"
# By dimension of the result.
_SIZES_OF_SUMS = (
    ("images", 0, _SIX),
    ("images", 1, _SIX),
    ("places", 0, _PLACES),
    ("places", 1, _PLACES),
    ("places", 2, _PLACES),
    ("filters", 5, _SIX),
)


def following_key(salt: int) -> tuple[int, int, int]:
    """Returns what makes a key of another: a term, a factor and a term, in this order.

    The lowest bit stays: it says whether replicas have keys of their own.
    """
    return _signed(2 * _SPACING * salt), _MULTIPLIER, 2


def distance_of_replica(replica: int) -> int:
    """Returns what is added to a key of all replicas for one of them, if its lowest bit is set."""
    return _signed(2 * _OF_REPLICA * replica)


def module_that_rounds(salt: int, overflow: int) -> bytes:
    """Returns a module in MLIR that rounds float32 `[n]` by a key, int64, to float16 `[n]`."""
    register_in_xla()
    return _ROUND_MODULE.format(own=own_number(salt, overflow), function=_ROUNDING).encode()


def module_of_keys(stream: int) -> bytes:
    """Returns a module in MLIR that gives the next of a device's keys, int64."""
    register_in_xla()
    return _KEY_MODULE.format(stream=stream, function=_KEY).encode()


def call_that_adds_up(given: Sequence[tf.Tensor]) -> tf.Tensor:
    """Has XLA call what adds up convolutions in passes.

    Args:
        given: What the kernel of `IpuPartialSums` takes.
    """
    register_in_xla()
    sizes = "\n".join(
        _SIZE.format(k=k, tensor=tensor, dim=dim, type=kind)
        for k, (tensor, dim, kind) in enumerate(_SIZES_OF_SUMS)
    )
    types = ", ".join(["tensor<1xi32>"] * len(_SIZES_OF_SUMS))
    module = _SUMS_MODULE.format(sizes=sizes, types=types, function=_SUMS)
    # XLA compiles what has these sizes, and computes nothing of it.
    places = tf.zeros(given[2][:3], tf.int8)
    shape = tf.TensorShape([None] * len(_SIZES_OF_SUMS))
    return call_module([*given, places], version=MODULE_VERSION, module=module, shape=shape)


@functools.cache
def register_kernels() -> None:
    """Makes `IpuRound` and the like known to TensorFlow, once in a process."""
    register(address_of)


@functools.cache
def register_in_xla() -> None:
    """Makes the functions known to XLA, once in a process."""
    names = (_ROUNDING, _KEY, _SUMS, NOTING, KEEPING)
    register_functions(address_of("_ZN3xla3ffi12GetXlaFfiApiEv"), *names)


def _signed(number: int) -> int:
    """The lowest 64 bits of a number, as those of a signed integer."""
    return (number + 2**63) % 2**64 - 2**63
