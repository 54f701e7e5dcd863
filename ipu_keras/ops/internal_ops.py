"""Utilities for programs on an IPU."""

import sys
from typing import Any

import tensorflow as tf


def print_tensor(input: Any, name: str = "") -> Any:
    """Prints a tensor to the standard error whenever the program gets there.

    All elements are printed, after the name. In a `tf.function` or a layer it prints whenever
    the function runs; in a graph of TensorFlow 1, when it is run itself or something that waits
    for it. XLA cannot compile it: steps of a model or a strategy that have it run without XLA.

    Args:
        input: Tensor whose elements are printed.
        name: What is printed before it, and the name of the operation. Defaults to
            `"print_tensor"`.

    Returns:
        The operation that prints; `None` in eager mode, where it has printed.

    Example:

        @tf.function
        def double(x):
            print_tensor(x, name="x")  # x: [1 2]
            return 2 * x
    """
    tensor = tf.convert_to_tensor(input)
    name = name or "print_tensor"
    return tf.print(f"{name}:", tensor, output_stream=sys.stderr, summarize=-1, name=name)
