"""Calls of functions with other data than the host's, with `--use_synthetic_data` and its like."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.feeds.dataset_iterators import synthetic_dataset
from ipu_keras.host.synthetic_parameters import SyntheticParameters
from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.settings.flags import PoplarFlags, current_flags
from ipu_keras.settings.synthetic_data import replaces_infeeds, synthetic_array


class SyntheticCall:
    """What a function is called with in place of what a user gives it.

    Args:
        parameters: The function's variables on the device; `None` if these, arguments and results
            are the host's.
    """

    def __init__(self, flags: PoplarFlags, parameters: SyntheticParameters | None):
        self._flags = flags
        self._parameters = parameters
        # By the position of the iterator among the arguments.
        self._iterators: dict[int, tf.data.Iterator] = {}

    @classmethod
    def if_asked_for(cls, variables: Iterable[Any]) -> "SyntheticCall | None":
        """Returns that of a function with these variables; `None` if no flag asks for it."""
        flags, parameters = current_flags(), SyntheticParameters.if_asked_for(variables)
        is_asked_for = replaces_infeeds(flags) or parameters is not None
        return cls(flags, parameters) if is_asked_for else None

    def __call__(self, function: Callable, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Calls a function in the user's place, and returns what reaches the host."""
        leaves = enumerate(tf.nest.flatten((args, kwargs)))
        given = [self._instead_of(leaf, number) for number, leaf in leaves]
        args, kwargs = tf.nest.pack_sequence_as((args, kwargs), given)
        if self._parameters is None:
            return function(*args, **kwargs)
        with self._parameters.on_device():
            returned = function(*args, **kwargs)
        return tf.nest.map_structure(
            lambda result: tf.zeros_like(result) if tf.is_tensor(result) else result, returned
        )

    def _instead_of(self, leaf: Any, number: int) -> Any:
        if isinstance(leaf, tf.data.Iterator):
            if not replaces_infeeds(self._flags):
                return leaf
            if number not in self._iterators:
                found = iter(synthetic_dataset(leaf.element_spec, self._flags))
                self._iterators[number] = found
            return self._iterators[number]
        is_array = isinstance(leaf, np.ndarray | np.generic)
        if self._parameters is None or not (is_array or isinstance(leaf, tf.Tensor)):
            return leaf
        dtype = tf.as_dtype(leaf.dtype).name
        array = synthetic_array(self._flags, static_sizes(leaf), dtype, number)
        return array if is_array else tf.constant(array)
