"""TensorFlow's operations that draw random numbers, each from a generator of its own."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from ipu_keras.hooks.installation import install
from ipu_keras.internals.tensorflow.operations import random_operations


def replace_draws(
    kinds: Iterable[str],
    is_replaced: Callable[[], bool],
    draw: Callable[[str, Mapping[str, Any], int, int], tf.Tensor],
) -> None:
    """Lets another function draw random numbers.

    Args:
        kinds: The names of TensorFlow's functions that draw.
        is_replaced: Whether it does, asked at each draw.
        draw: Takes the name of TensorFlow's function, what that takes besides seeds, and the two
            seeds, which are both zero if none was given. Returns the numbers.
    """
    for kind in kinds:
        install(random_operations(), kind, _wrapper(kind, is_replaced, draw))


def _wrapper(kind: str, is_replaced: Callable[[], bool], draw: Callable) -> Callable:
    def wrapper(original: Callable) -> Callable:
        parameters = inspect.signature(original)

        def drawn(*args, **options):
            if not is_replaced():
                return original(*args, **options)
            given = parameters.bind(*args, **options).arguments
            seeds = (given.pop("seed", 0), given.pop("seed2", 0))
            name = given.pop("name", None)
            return tf.identity(draw(kind, given, *seeds), name=name)

        return drawn

    return wrapper
