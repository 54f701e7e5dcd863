"""Dropout, which draws random numbers in training only."""

from dataclasses import replace

import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.operation import operation
from ipu_keras.popart.operations.random import check_no_seed


@operation("Dropout", since=10, elementwise=True, is_random=True)
def dropout(x, *, ratio, context):
    return _dropped(x, ratio, context, tf.bool)


@operation("Dropout", since=12, static=["ratio", "training_mode"], is_random=True)
def dropout_12(x, ratio=None, training_mode=None, *, seed=None, context):
    # Since version 12 the input decides, whatever the session does: exporters set it in models that
    # are to be trained. Before, PopART drops in training sessions.
    if training_mode is None or not training_mode.item():
        return x, tf.ones_like(x, tf.bool)
    share = 0.5 if ratio is None else float(ratio.item())
    if share and seed is not None:
        check_no_seed(seed)
    return _dropped(x, share, replace(context, is_training=True), tf.bool)


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
    # Not `tf.where`, which would hide what is not finite: on IPUs it stays so.
    return x * tf.cast(kept, x.dtype) * (1 / (1 - ratio)), tf.cast(kept, mask_dtype)
