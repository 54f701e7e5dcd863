"""Dropout with the random masks of an IPU's operation."""

import keras
import tensorflow as tf

from ipu_keras.ops.argument_checks import (
    check_integer,
    check_rate,
    converted,
    integer_in,
    received,
    static,
)
from ipu_keras.ops.rand_ops import dropout


@keras.saving.register_keras_serializable(package="ipu_addons")
class Dropout(keras.layers.Layer):
    """Sets inputs to zero at random while it trains, and scales up the others.

    Each step, and each replica, has a mask of its own, unless `seed` is a pair of integers: that
    is the seed of the mask itself, which then is always the same.

    Args:
        rate: The probability of an element to be dropped, from 0 up to but not including 1.
        noise_shape: Shape of the mask, with 1 for the axes along which it is repeated, and
            `None` for those where it is as the inputs. By default it has the shape of the
            inputs.
        seed: Two integers of 32 bits, in a sequence or an array; or one, from which the seeds of
            all masks follow; or `None`, to have them follow from Keras's global seed.
        **kwargs: Further arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: A tensor of any rank.
        training: Whether to drop anything; without it the inputs are returned.

    Raises:
        TypeError: `noise_shape` or `seed` contains something that is not an integer.
        ValueError: `rate` or `seed` is not as above, or `noise_shape` does not fit the inputs.

    Example:

    >>> layer = Dropout(0.5, seed=(1, 2))
    >>> print(layer(tf.ones((1, 8)), training=True).numpy())
    [[0. 2. 0. 0. 0. 2. 2. 2.]]
    """

    def __init__(self, rate, noise_shape=None, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate = check_rate(rate)
        self.noise_shape = None if noise_shape is None else _listed("noise_shape", noise_shape)
        if seed is None:
            self.seed: int | list | None = None
        elif integer_in(seed) is not None:
            self.seed = check_integer("seed", seed)
        else:
            self.seed = _listed("seed", seed)
        if isinstance(self.seed, list):
            if len(self.seed) != 2:
                raise ValueError(
                    "The seed must be an integer, or a pair of 32-bit integers. "
                    f"Received: seed={seed!r}"
                )
        elif rate > 0:
            # A pair is the seed of every mask, so only one integer or none needs a state.
            self.seed_generator = keras.random.SeedGenerator(self.seed)
        self.supports_masking = True
        self._build_at_init()

    def call(self, inputs, training=None):
        if not training or self.rate == 0:
            return inputs
        seed = self.seed
        if not isinstance(seed, list):
            seed = tf.cast(self.seed_generator.next(), tf.uint32)
        return dropout(inputs, self.rate, self.noise_shape, seed)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        config = {"rate": self.rate, "noise_shape": self.noise_shape, "seed": self.seed}
        return {**super().get_config(), **config}


def _listed(argument, numbers) -> list:
    """Returns a tensor, an array or a sequence as a list, which a model's config can hold."""
    listed = converted(argument, list, static(numbers))
    integers = [None if number is None else integer_in(number) for number in listed]
    if any(n is None and number is not None for n, number in zip(integers, listed, strict=True)):
        raise TypeError(f"`{argument}` must be integers. Received: {received(argument, numbers)}")
    return integers
