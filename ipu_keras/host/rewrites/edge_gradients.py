"""Gradients at zero and infinity, where XLA's are not those of TensorFlow's kernels.

Of a result that is infinite, or of a root that is zero, XLA computes zero times infinity where the
gradient that arrives is zero, and all weights are lost to NaN: `keras.ops.normalize` of zeros cuts
off what is infinite with a minimum, whose gradient is such a zero. TensorFlow's kernels return
zero for it. At zero, where `selu` has a bend, they take the slope of its right side, and XLA that
of its left.
"""

import contextlib

import tensorflow as tf

from ipu_keras.host.rewrites.replacement import replaced
from ipu_keras.tracing.as_written import Replaced

# Of the gradients that are operations of their own, those whose kernels look for zeros.
_ZERO_OF_ZERO = frozenset({"ReciprocalGrad", "RsqrtGrad", "SqrtGrad"})

_SELU_SCALE = 1.0507009873554804934193349852946


def edge_gradients() -> contextlib.AbstractContextManager[list[Replaced]]:
    """While tracing, corrects what XLA makes of gradients at zero and infinity.

    The numbers are those of TensorFlow's kernels.
    """
    return replaced(_ZERO_OF_ZERO | {"SeluGrad"}, _as_of_kernel)


def _as_of_kernel(inputs, output) -> tf.Tensor:
    zero = tf.zeros([], output.dtype)
    if output.op.type in _ZERO_OF_ZERO:
        _, gradient = inputs
        return tf.where(tf.equal(gradient, zero), zero, output)
    gradient, activated = inputs
    return tf.where(tf.equal(activated, zero), gradient * _SELU_SCALE, output)
