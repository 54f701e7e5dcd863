"""Corrects gradients at zero and infinity, where XLA's are not those of TensorFlow's kernels.

Where a result is infinite, or a root zero, and the gradient that arrives is zero, XLA computes
zero times infinity, and all weights are lost to NaN: `keras.ops.normalize` of zeros cuts off
infinity by a minimum, whose gradient is such a zero. TensorFlow's kernels return zero. At zero,
where `selu` has a bend, they take the slope of its right side, and XLA that of its left.
"""

import contextlib

import tensorflow as tf

from ipu_keras.host.rewrites.replacement import replaced
from ipu_keras.tracing.as_written import Replaced

# Gradients that are operations of their own, and whose kernels test for a gradient of zero.
_ZERO_OF_ZERO = frozenset({"ReciprocalGrad", "RsqrtGrad", "SqrtGrad"})

_SELU_SCALE = 1.0507009873554804934193349852946


def edge_gradients() -> contextlib.AbstractContextManager[list[Replaced]]:
    """While this is open, gradients that are traced are those of TensorFlow's kernels at edges."""
    return replaced(_ZERO_OF_ZERO | {"SeluGrad"}, _as_of_kernel)


def _as_of_kernel(inputs, output) -> tf.Tensor:
    zero = tf.zeros([], output.dtype)
    if output.op.type in _ZERO_OF_ZERO:
        _, gradient = inputs
        return tf.where(tf.equal(gradient, zero), zero, output)
    gradient, activated = inputs
    return tf.where(tf.equal(activated, zero), gradient * _SELU_SCALE, output)
