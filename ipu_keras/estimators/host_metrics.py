"""Metrics that a function of the host computes from what programs on IPUs send."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.estimators.specs import pairs_of
from ipu_keras.functions.loop_bodies import call_with_element


class HostMetrics:
    """Metrics in a session's graph, fed with the results of one batch of one replica at a time.

    So the function gets tensors of the shapes that the program computes, whatever it does with
    them; to give it the results of all batches at once, the batch's axis would have to be known.

    Args:
        function: Takes the results, by name if they are a dict; returns a dict of pairs of a
            value and its update.
        results: What a program sends, stacked: a structure of tensors of
            `(iterations, [replicas,] ...)`.
        num_axes: How many axes are before those of a batch, 1 or 2.
        source: What errors call the metrics.
        plain: Names of metrics that are plain tensors, of which the mean is taken.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        results: Any,
        num_axes: int,
        source: str,
        plain: Sequence[str] = (),
    ):
        self._fed = tf.nest.map_structure(
            lambda stacked: tf.compat.v1.placeholder(stacked.dtype, stacked.shape[num_axes:]),
            results,
        )
        self._num_axes = num_axes
        element = self._fed if isinstance(self._fed, Mapping) else tuple(_listed(self._fed))
        found = call_with_element(source, function, (), element)
        missing = [name for name in plain if not isinstance(found, Mapping) or name not in found]
        if missing:
            raise ValueError(
                f"{source} must be a dict that has {', '.join(map(repr, missing))}. "
                f"Received: {found!r}"
            )
        self._plain = {name: found[name] for name in plain}
        self._pairs = pairs_of(
            {name: pair for name, pair in found.items() if name not in plain}
            if isinstance(found, Mapping)
            else found,
            source,
        )
        self._means: dict[str, list[Any]] = {name: [] for name in plain}

    @property
    def pairs(self) -> Mapping[str, tuple[Any, Any]]:
        return self._pairs

    def update(self, session: Any, results: Any) -> None:
        """Updates the metrics with the arrays that a call of the session has returned."""
        flat = [
            array.reshape(-1, *array.shape[self._num_axes :]) for array in tf.nest.flatten(results)
        ]
        updates = [self._plain, [update for _, update in self._pairs.values()]]
        for row in zip(*flat, strict=True):
            feed = dict(zip(tf.nest.flatten(self._fed), row, strict=True))
            found, _ = session.run(updates, feed)
            for name, value in found.items():
                self._means[name].append(value)

    def values(self, session: Any) -> dict[str, Any]:
        """Returns the metrics of all that they were updated with."""
        found = session.run({name: value for name, (value, _) in self._pairs.items()})
        return found | {name: np.mean(values) for name, values in self._means.items()}


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, list | tuple) else [results]
