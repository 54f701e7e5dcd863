"""Loops over batches, and decides what becomes of the results of all of them."""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.settings.gradient_accumulation import GradientAccumulationReductionMethod as Method

# Takes the tensors of a batch, or of many stacked batches, and returns a list of tensors.
Run = Callable[[Sequence[Any]], list[Any]]


class Collect(enum.Enum):
    """What becomes of a result that every batch has.

    - `ALL`: all results are stacked along a new first axis.
    - `LAST`: only the last result is kept.
    - `LAST_OF_EACH`: the last result of each replica is kept, along a new first axis.
    - `SUM_OF_EACH`: the results of each replica are added up, along a new first axis.
    - `SUM`: all results are added up.
    - `REDUCED`: all results are accumulated, as gradients are.
    - `REDUCED_OF_EACH`: the results of each replica are accumulated, along a new first axis.
    """

    ALL = "all"
    LAST = "last"
    LAST_OF_EACH = "last_of_each"
    SUM_OF_EACH = "sum_of_each"
    SUM = "sum"
    REDUCED = "reduced"
    REDUCED_OF_EACH = "reduced_of_each"

    @property
    def is_of_each(self) -> bool:
        """Whether the results of replicas are kept apart, but not those of steps."""
        return self.of_stacked is not self

    @property
    def of_stacked(self) -> "Collect":
        """The same for results that already have all replicas along their first axis."""
        stacked = {
            Collect.LAST_OF_EACH: Collect.LAST,
            Collect.SUM_OF_EACH: Collect.SUM,
            Collect.REDUCED_OF_EACH: Collect.REDUCED,
        }
        return stacked.get(self, self)


@dataclass(frozen=True)
class Reduction:
    """How gradients become one: over steps by a method, and over the replicas' batches as a sum."""

    method: Method = Method.SUM
    num_steps: int = 1
    num_replicas: int = 1

    def add(self, accumulated: Any, gradient: Any, index: Any) -> Any:
        """Returns the accumulated gradients after that of the batch number `index`."""
        if self.method is not Method.RUNNING_MEAN:
            return accumulated + self.method.share(gradient, 0, self.num_steps)
        # A running mean scales down what it has once a step, so only at the first replica's
        # batch.
        num_before = tf.cast(index // self.num_replicas, gradient.dtype)
        first = tf.equal(index % self.num_replicas, 0)
        kept = tf.where(first, self.method.kept(accumulated, num_before), accumulated)
        return kept + self.method.share(gradient, num_before, self.num_steps)


def unrolled(
    run: Run,
    count: int,
    feeds: Sequence[Any],
    collect: Sequence[Collect],
    reduction: Reduction,
) -> list[Any]:
    """Calls a function for each batch, without a loop."""
    batches = zip(*map(tf.unstack, feeds), strict=True) if feeds else [()] * count
    found = zip(*(run(batch) for batch in batches), strict=True)
    return [_collected(how, values, reduction) for how, values in zip(collect, found, strict=True)]


def _collected(how: Collect, values: Sequence[Any], reduction: Reduction) -> Any:
    if how is Collect.ALL:
        return tf.stack(values)
    if how is Collect.LAST:
        return values[-1]
    if how is Collect.LAST_OF_EACH:
        return tf.stack(values[-reduction.num_replicas :])
    if how is Collect.SUM_OF_EACH:
        each = range(reduction.num_replicas)
        return tf.stack([tf.add_n(values[k :: reduction.num_replicas]) for k in each])
    if how is Collect.SUM or reduction.method is Method.SUM:
        return tf.add_n(values)
    accumulated = tf.zeros_like(values[0])
    for index, value in enumerate(values):
        accumulated = reduction.add(accumulated, value, index)
    return accumulated


def loop(
    run: Run,
    specs: Sequence[Any],
    count: int,
    feeds: Sequence[Any],
    collect: Sequence[Collect],
    reduction: Reduction = Reduction(),
    parallel_steps: int = 1,
    carried: Sequence[Any] = (),
) -> list[Any]:
    """Calls a function for each batch in a TensorFlow loop; its results have the given `specs`.

    Each step also takes what the one before it returned after its results; the first takes
    `carried`. What the last one returned comes after the results of all.
    """

    def start(how: Collect, spec: Any) -> Any:
        if how is Collect.ALL:
            return tf.TensorArray(spec.dtype, count, element_shape=spec.shape)
        each = (reduction.num_replicas,) if how.is_of_each else ()
        return tf.zeros((*each, *static_sizes(spec)), spec.dtype)

    def after(how: Collect, before: Any, result: Any, index: Any) -> Any:
        if how is Collect.ALL:
            return before.write(index, result)
        replica = [[index % reduction.num_replicas]]
        if how is Collect.LAST_OF_EACH:
            return tf.tensor_scatter_nd_update(before, replica, result[None])
        if how is Collect.SUM_OF_EACH:
            return tf.tensor_scatter_nd_add(before, replica, result[None])
        if how is Collect.SUM:
            return before + result
        return result if how is Collect.LAST else reduction.add(before, result, index)

    num_results = len(collect)

    def body(index, *state):
        returned = run([*(feed[index] for feed in feeds), *state[num_results:]])
        triples = zip(collect, state, returned, strict=False)
        collected = [after(*triple, index) for triple in triples]
        return index + 1, *collected, *returned[num_results:]

    _, *state = tf.while_loop(
        lambda index, *_: index < count,
        body,
        [tf.constant(0), *map(start, collect, specs), *carried],
        parallel_iterations=parallel_steps,
        maximum_iterations=count,
    )
    pairs = zip(collect, state, strict=False)
    results = [value.stack() if how is Collect.ALL else value for how, value in pairs]
    return results + state[num_results:]
