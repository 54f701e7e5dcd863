"""What a comparison of halves with NumPy is, and the numbers that comparisons are given.

The tables are `halves_of_operations.py` and its neighbours, and `test_half_comparisons.py` computes
what is in them.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from half_arithmetic import Halves, differences, halves


@dataclass(frozen=True)
class Case:
    """What is computed, and what is right.

    Args:
        compute: From tensors to a tensor.
        value: The same from arrays.
        given: One or several sets of arrays of the same shapes. Halves among them have gradients,
            which are compared for the first set.
        slopes: From what arrives and the arrays of the first set to the gradients of the halves.
        ulps: By how many halves results may be off.
        slope_ulps: By how many halves gradients may be off.
        roundings: By how many halves gradients may be off besides, where they lie as they do near
            the largest one: that is what roundings before the last one do to sums that cancel.
        in_xla: Whether XLA has the bits of TensorFlow's kernels. Not where it approximates a
            function in its own way, or adds up float32 in another order: then it is right as well.
        eagerly: Whether single operations have the bits of a function.
    """

    compute: Callable
    value: Callable
    given: Sequence[tuple]
    slopes: Callable | None = None
    ulps: float = 1
    slope_ulps: float = 1
    roundings: float = 0
    in_xla: bool = True
    eagerly: bool = True

    @functools.cached_property
    def upstream(self):
        # No zeros: next to a NaN or a pole, TensorFlow's kernels make zeros of them, and XLA NaN.
        value = self.value(*as_halves(self.given[0]))
        found = np.random.default_rng(0).choice([-2, -0.625, 0.125, 1, 1.75], value.shape)
        return found.astype(np.float16 if isinstance(value, Halves) else np.float32)

    def run(self, upstream, *tensors):
        """Returns the result and, if there is something to compare them with, the gradients."""
        if self.slopes is None:
            return [self.compute(*tensors)]
        sources = [tensor for tensor in tensors if tensor.dtype == tf.float16]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            result = self.compute(*tensors)
        found = tape.gradient(result, sources, upstream, unconnected_gradients="zero")
        return [result, *map(tf.convert_to_tensor, found)]


CASES: dict[str, dict[str, Case]] = {}


def add(group, name, compute, value, *given, step=None, **options):
    """Adds a case, whose gradients are compared with differences if they have a step.

    Those are exact for a step of 1 if the value is linear in each of its arguments.
    """
    if step is not None:
        options["slopes"] = functools.partial(differences, value, step=step)
    cases = CASES.setdefault(group, {})
    assert name not in cases
    cases[name] = Case(compute, value, given, **options)


def as_halves(arrays):
    return [halves(array) if array.dtype == np.float16 else array for array in arrays]


class Numbers:
    """Numbers at random for one table, which do not depend on the cases of others."""

    def __init__(self):
        self.random = np.random.default_rng(49)

    def usual(self, *shape):
        return np.float16(self.random.normal(size=shape))

    def eighths(self, *shape):
        """Numbers whose products add up without an error in float32, in whatever order."""
        return np.float16(self.random.integers(-16, 17, shape) / 8)

    def positive(self, *shape):
        return np.float16(self.random.uniform(0.1, 2, shape))


def layer(make, num_inputs=1, **options):
    """Returns what calls a layer of Keras with tensors as inputs and as all of its weights."""

    @functools.cache
    def built(*shapes):
        made = make(dtype="float16")
        made.build(shapes[0] if num_inputs == 1 else list(shapes))
        return made

    def computed(*tensors):
        inputs, weights = tensors[:num_inputs], tensors[num_inputs:]
        made = built(*(tuple(tensor.shape) for tensor in inputs))
        values = dict(zip((id(each) for each in made.weights), weights, strict=True))
        states = (
            [values.get(id(each), each.value) for each in variables]
            for variables in (made.trainable_variables, made.non_trainable_variables)
        )
        given = inputs[0] if num_inputs == 1 else list(inputs)
        return made.stateless_call(*states, given, **options)[0]

    return computed
