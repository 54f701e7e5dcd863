"""Activation functions that Poplar's libraries have as one operation each."""

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_keras.ops.argument_checks import check_flag, check_floating
from ipu_keras.tracing.poplar_operation import poplar_operation

_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)

# From here on the CDF of the normal distribution is 1, even in float64.
_FAR = 10.0


def gelu(x: Any, approximate: bool = True, name: str | None = None) -> tf.Tensor:
    """The Gaussian error linear unit of each element: `x` times the normal distribution's CDF.

    D. Hendrycks and K. Gimpel, "Gaussian Error Linear Units (GELUs)", 2016.

    Args:
        x: A tensor of float16 or float32, of any shape.
        approximate: Whether the CDF is approximated as
            `(1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2`, or computed with `erf`.
        name: Name of the operation.

    Returns:
        A tensor of the shape and type of `x`.

    Raises:
        TypeError: `x` is not of a floating point type.

    Example:

    >>> print(gelu([-1.0, 0.0, 1.0]).numpy().round(3))
    [-0.159  0.     0.841]
    """
    x, approximate = check_floating("x", x), check_flag("approximate", approximate)
    with poplar_operation("Gelu"):
        return _rounded_once(_approximate_gelu if approximate else _exact_gelu, x, name)


def hard_sigmoid(x: Any, name: str | None = None) -> tf.Tensor:
    """A sigmoid of three lines: `0.2 * x + 0.5`, but no less than 0 and no more than 1.

    The slope is Popnn's, and that of Keras 2; Keras 3 has one of 1/6.

    Args:
        x: A tensor of float16 or float32, of any shape.
        name: Name of the operation.

    Returns:
        A tensor of the shape and type of `x`.

    Raises:
        TypeError: `x` is not of a floating point type.

    Example:

    >>> print(hard_sigmoid([-3.0, 1.0, 3.0]).numpy())
    [0.  0.7 1. ]
    """
    x = check_floating("x", x)
    with poplar_operation("HardSigmoid"):
        # popnn maps an expression of halves here, which rounds the product as well.
        return tf.clip_by_value(0.2 * x + 0.5, 0.0, 1.0, name=name)


def swish(x: Any, name: str | None = None) -> tf.Tensor:
    """Each element times its sigmoid, also known as SiLU.

    P. Ramachandran et al., "Searching for activation functions", 2017.

    Args:
        x: A tensor of float16 or float32, of any shape.
        name: Name of the operation.

    Returns:
        A tensor of the shape and type of `x`.

    Raises:
        TypeError: `x` is not of a floating point type.

    Example:

    >>> print(swish([-1.0, 0.0, 1.0]).numpy().round(3))
    [-0.269  0.     0.731]
    """
    x = check_floating("x", x)
    with poplar_operation("Swish"):
        return _rounded_once(lambda x: x * tf.sigmoid(x), x, name)


def _rounded_once(
    function: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor, name: str | None
) -> tf.Tensor:
    """Computes a function of halves, and its gradient, in float32, and rounds the result."""
    wide = tf.cast(x, tf.float32) if x.dtype.size < tf.float32.size else x
    return tf.cast(tf.identity(function(wide), name), x.dtype)


def _exact_gelu(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.gelu(x, approximate=False)


def _approximate_gelu(x: tf.Tensor) -> tf.Tensor:
    # Clipped where the CDF is 0 or 1: the cube of a large number overflows, and the gradient would
    # be infinity times 0, NaN.
    near = tf.clip_by_value(x, -_FAR, _FAR)
    twice_the_angle = 2 * _SQRT_2_OVER_PI * (near + 0.044715 * near * near * near)
    # (1 + tanh(y)) / 2, of which small values would lose their digits.
    return x * tf.sigmoid(twice_the_angle)
