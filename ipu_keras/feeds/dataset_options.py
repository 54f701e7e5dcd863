"""Whether TensorFlow may rearrange datasets to be read faster."""

import tensorflow as tf


def with_optimizations(dataset: tf.data.Dataset, are_applied: bool) -> tf.data.Dataset:
    """A dataset as TensorFlow runs it by default, or as it was written.

    Args:
        dataset: The dataset.
        are_applied: Whether its steps may be fused, run in more threads and read ahead.
    """
    if are_applied:
        return dataset
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)
