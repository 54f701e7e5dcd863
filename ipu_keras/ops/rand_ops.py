"""Dropout, which documents have as `ipu.rand_ops` and `ipu.ops.rand_ops`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.ops.argument_checks import (
    check_floating,
    check_integer,
    check_rate,
    check_tensor,
    converted,
    received,
    static,
)
from ipu_keras.ops.random_keys import fresh_key
from ipu_keras.settings.arguments import noted
from ipu_keras.tracing.poplar_operation import poplar_operation

# `tf.random.Algorithm.PHILOX`, whose numbers programs draw with XLA too, bit by bit.
_PHILOX = 1


def dropout(
    x: Any,
    rate: float = 0.5,
    noise_shape: Sequence[int | None] | None = None,
    seed: Any = None,
    name: str | None = None,
    **kwargs: Any,
) -> tf.Tensor:
    """Sets elements to zero at random, and scales up the others so that the mean stays.

    N. Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting",
    2014. The gradient passes where the values did.

    Without a seed, each call and each step of a program draws its own mask, and so does each
    replica, unless `reset_ipu_seed` had all of them draw the same; it seeds these masks too.
    With a seed the mask is the same whenever and wherever it is drawn: eagerly, in a
    `tf.function`, and in the programs of this package. Only XLA in a function with
    `jit_compile=True` of the user's has other random numbers.

    Args:
        x: A tensor of float16 or float32.
        rate: The probability of an element to be dropped, from 0 up to but not including 1.
        noise_shape: Shape of the mask, which is repeated along the axes where it has size 1. `None`
            for an axis, and `None` or `[]` for the whole, is as `x`.
        seed: Two integers of 32 bits, in a tensor, an array or a sequence.
        name: Name of the operation.
        **kwargs: `ref`, a tensor of the shape of the mask. An IPU draws each number on the tile
            where it is needed, so that masks of one seed are equal only if they are laid out
            as a common reference is. Here they do not depend on a layout, and are equal
            without it; `True` and `False` are as `None`.

    Returns:
        A tensor of the shape and type of `x`.

    Raises:
        TypeError: `x` is not of a floating point type, or there is an unknown argument.
        ValueError: `rate`, `noise_shape`, `seed` or `ref` is not as above.

    Example:

    >>> x = tf.ones(8)
    >>> print(dropout(x, rate=0.5, seed=[1, 2]).numpy())
    [0. 2. 0. 0. 0. 2. 2. 2.]
    """
    x, rate = check_floating("x", x), check_rate(rate)
    shape = _mask_shape(x, noise_shape)
    _check_reference(shape, kwargs.pop("ref", None))
    if kwargs:
        raise TypeError(
            "`dropout` takes `ref` besides its named arguments. "
            f"Received: {', '.join(sorted(kwargs))}"
        )
    if rate == 0:
        return tf.identity(x, name=name)
    with poplar_operation("Dropout"):
        key = fresh_key() if seed is None else _key(seed)
        kept = _uniform(_static_or_dynamic(shape, x), key) >= rate
        scaled = x * tf.cast(1.0 / (1.0 - rate), x.dtype)
        return tf.where(kept, scaled, tf.zeros([], x.dtype), name=name)


def _mask_shape(x: tf.Tensor, noise_shape: Sequence[int | None] | None) -> list[int | None]:
    """Returns the sizes of the mask, None where `x` has one that is not known yet."""
    sizes = None if noise_shape is None else converted("noise_shape", _sizes, noise_shape)
    if not sizes:
        return x.shape.as_list()
    if len(sizes) != x.shape.rank:
        raise noted(
            ValueError("The length of noise_shape must equal the rank of x."),
            f"Received: noise_shape={sizes} for x of shape {x.shape}",
        )
    for size, of_x in zip(sizes, x.shape, strict=True):
        if size not in (None, 1) and of_x not in (None, size):
            raise ValueError(
                "Each size in noise_shape must be 1 or that of x. "
                f"Received: noise_shape={sizes} for x of shape {x.shape}"
            )
    return [of_x if size is None else size for size, of_x in zip(sizes, x.shape, strict=True)]


def _sizes(noise_shape: Any) -> list[int | None]:
    known = static(noise_shape)
    if tf.is_tensor(known):
        raise TypeError("it must be known while the program is traced")
    return [None if size is None else check_integer("noise_shape", size) for size in known]


def _static_or_dynamic(shape: list[int | None], x: tf.Tensor) -> Any:
    # A size is open only while Keras makes a model.
    if None not in shape:
        return shape
    sizes = tf.shape(x)
    return tf.stack([sizes[axis] if size is None else size for axis, size in enumerate(shape)])


def _check_reference(shape: list[int | None], ref: Any) -> None:
    # Upstream has a switch here, which asks for the layout of the mask as a result.
    if ref is None or isinstance(ref, bool):
        return
    of_reference = check_tensor("ref", ref).shape
    if not of_reference.is_compatible_with(shape):
        raise ValueError(
            "`ref` must have the shape of the mask. "
            f"Received: ref of shape {of_reference} for a mask of shape {tf.TensorShape(shape)}"
        )


def _key(seed: Any) -> tf.Tensor:
    if not tf.is_tensor(seed):
        seed = _unsigned(converted("seed", np.asarray, seed))
    if seed.shape != (2,) or seed.dtype not in (tf.int32, tf.uint32):
        raise ValueError(
            "The seed must be a tensor of two 32-bit integers. "
            f"Received: seed of shape {seed.shape} and type {seed.dtype.name}"
        )
    # The two integers are the halves of the key.
    return tf.reshape(tf.bitcast(seed, tf.uint64), [1])


def _unsigned(seed: np.ndarray) -> np.ndarray:
    """Returns Python's integers as 32 bits, if they fit."""
    if seed.dtype.kind not in "iu" or not np.all((seed >= -(2**31)) & (seed < 2**32)):
        raise ValueError(
            f"The seed must be two 32-bit integers. Received: {received('seed', seed.tolist())}"
        )
    return (seed.astype(np.int64) % 2**32).astype(np.uint32)


def _uniform(shape: Any, key: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.StatelessRandomUniformV2(
        shape=shape, key=key, counter=tf.zeros([2], tf.uint64), alg=_PHILOX
    )
