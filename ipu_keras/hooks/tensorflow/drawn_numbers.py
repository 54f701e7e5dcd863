"""TensorFlow's operations that draw random numbers, each from a generator of its own."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_keras.hooks.installation import install
from ipu_keras.internals.tensorflow.operations import random_operations

_DRAWS = ("random_uniform", "random_uniform_int", "random_standard_normal", "truncated_normal")


def replace_draws(
    is_replaced: Callable[[], bool], draw: Callable[[str, tuple[Any, ...], int, int], tf.Tensor]
) -> None:
    """Lets another function draw random numbers.

    Args:
        is_replaced: Whether it does, asked at each draw.
        draw: Takes the name of TensorFlow's function, what it takes besides seeds, and the two
            seeds, which are both zero if none was given. Returns the numbers.
    """
    for name in _DRAWS:
        install(random_operations(), name, _wrapper(name, is_replaced, draw))


def _wrapper(name: str, is_replaced: Callable[[], bool], draw: Callable) -> Callable:
    def wrapper(original: Callable) -> Callable:
        def drawn(*args, seed=0, seed2=0, name=None, **options):
            if options or not is_replaced():
                return original(*args, seed=seed, seed2=seed2, name=name, **options)
            return tf.identity(draw(kind, args, seed, seed2), name=name)

        return drawn

    kind = name
    return wrapper
