"""Dropout, which needs random numbers in training only."""

import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.operation import operation


@operation("Dropout", since=10, elementwise=True, is_random=True)
def dropout(x, *, ratio, context):
    return _dropped(x, ratio, context, tf.bool)


@operation("Dropout", since=7, elementwise=True, is_random=True)
def dropout_7(x, *, ratio, context):
    return _dropped(x, ratio, context, x.dtype)


@operation("Dropout", since=6, elementwise=True, is_random=True)
def dropout_6(x, *, is_test, ratio, context):
    return _dropped(x, ratio, context, x.dtype, is_test)


def _dropped(x, ratio, context, mask_dtype, is_test=False):
    if not 0 <= ratio < 1:
        raise popart_exception(f"`ratio` must be at least 0 and less than 1. Received: {ratio}")
    if is_test or not context.is_training or ratio == 0:
        return x, tf.ones_like(x, mask_dtype)
    random = tf.random.stateless_uniform(tf.shape(x), context.seed())
    kept = random >= ratio
    # Not `where`: what is not finite stays so, as on IPUs.
    return x * tf.cast(kept, x.dtype) * (1 / (1 - ratio)), tf.cast(kept, mask_dtype)
