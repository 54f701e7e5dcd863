"""Random numbers and dropout, which draw from the seed of the session."""

from dataclasses import replace
from typing import Any

import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.element_types import type_of
from ipu_keras.popart.operations.operation import operation
from ipu_keras.popart.operations.sizes import sizes_of


@operation("RandomNormal", is_random=True)
def random_normal(*, shape, dtype, mean, scale, seed=None, context):
    return _normal(shape, type_of(dtype), mean, scale, _seed(seed, context))


@operation("RandomNormalLike", is_random=True)
def random_normal_like(x, *, dtype=None, mean, scale, seed=None, context):
    dtype = x.dtype if dtype is None else type_of(dtype)
    return _normal(sizes_of(x), dtype, mean, scale, _seed(seed, context))


@operation("RandomUniform", is_random=True)
def random_uniform(*, shape, dtype, low, high, seed=None, context):
    return _uniform(shape, type_of(dtype), low, high, _seed(seed, context))


@operation("RandomUniformLike", is_random=True)
def random_uniform_like(x, *, dtype=None, low, high, seed=None, context):
    dtype = x.dtype if dtype is None else type_of(dtype)
    return _uniform(sizes_of(x), dtype, low, high, _seed(seed, context))


@operation("Multinomial", since=7, is_random=True)
def multinomial(x, *, dtype, sample_size, seed=None, context):
    return tf.random.stateless_categorical(
        x, sample_size, _seed(seed, context), dtype=type_of(dtype)
    )


@operation("Bernoulli", since=15, is_random=True)
def bernoulli(x, *, dtype=None, seed=None, context):
    dtype = x.dtype if dtype is None else type_of(dtype)
    drawn = tf.random.stateless_uniform(sizes_of(x), _seed(seed, context))
    return tf.cast(drawn < tf.cast(x, drawn.dtype), dtype)


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
        _check_no_seed(seed)
    return _dropped(x, share, replace(context, is_training=True), tf.bool)


@operation("Dropout", since=7, elementwise=True, is_random=True)
def dropout_7(x, *, ratio, context):
    return _dropped(x, ratio, context, x.dtype)


@operation("Dropout", since=6, elementwise=True, is_random=True)
def dropout_6(x, *, is_test, ratio, context):
    return _dropped(x, ratio, context, x.dtype, is_test)


def _normal(shape: Any, dtype: tf.DType, mean: float, scale: float, seed: Any) -> Any:
    return tf.random.stateless_normal(shape, seed, mean, scale, dtype)


def _uniform(shape: Any, dtype: tf.DType, low: float, high: float, seed: Any) -> Any:
    return tf.random.stateless_uniform(shape, seed, low, high, dtype)


def _seed(attribute: float | None, context: Any) -> Any:
    _check_no_seed(attribute)
    return context.seed()


def _check_no_seed(attribute: float | None) -> None:
    """Raises a `popart_exception` if a node has a seed of its own."""
    if attribute is not None:
        raise popart_exception(
            "The optional attribute `seed` is not supported: a session has one seed for all "
            f"its random numbers. Received: seed={attribute}. Use session.setRandomSeed instead."
        )


def _dropped(x, ratio, context, mask_dtype, is_test=False):
    if not 0 <= ratio < 1:
        raise popart_exception(f"`ratio` must be at least 0 and less than 1. Received: {ratio}")
    if is_test or not context.is_training or ratio == 0:
        return x, tf.ones_like(x, mask_dtype)
    random = tf.random.stateless_uniform(tf.shape(x), context.seed())
    kept = random >= ratio
    # Not `tf.where`, which would hide what is not finite: on IPUs it stays so.
    return x * tf.cast(kept, x.dtype) * (1 / (1 - ratio)), tf.cast(kept, mask_dtype)
