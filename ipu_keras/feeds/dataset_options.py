"""Turns TensorFlow's rearrangements of datasets off."""

import tensorflow as tf


def with_optimizations(dataset: tf.data.Dataset, are_applied: bool) -> tf.data.Dataset:
    """Returns a dataset as TensorFlow runs it by default, or exactly as it was written.

    Args:
        are_applied: Whether its steps may be fused, run in more threads and read ahead.
    """
    if are_applied:
        return dataset
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)
