"""Marks what is one operation on an IPU and many in TensorFlow.

Poplar's libraries have a whole LSTM, a beam search or a group normalisation as one operation.
TensorFlow computes them here from its own operations, in a scope that says what they are
together, so that the cost model shows one.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

# No default name of a Keras layer has a full stop.
_PREFIX = "poplar."

# What `pipelining_ops.recomputation_checkpoint` is called; it computes nothing.
RECOMPUTATION_CHECKPOINT = "RecomputationCheckpoint"


@contextlib.contextmanager
def poplar_operation(kind: str) -> Iterator[None]:
    """What is traced within is one operation of the IPU; so is its gradient.

    Args:
        kind: What reports call it, such as `"PopnnLSTM"`.

    Example:

    >>> @tf.function
    ... def double(x):
    ...     with poplar_operation("Double"):
    ...         return tf.add(x, x)
    >>> graph = double.get_concrete_function(tf.TensorSpec([])).graph
    >>> graph.get_operations()[1].name
    'poplar.Double/Add'
    """
    with tf.name_scope(_PREFIX + kind):
        yield


def differentiable(function: Callable, *tensors: Any) -> Any:
    """What a function returns that returns its gradient too.

    The gradient is named after the place of the call, as those of TensorFlow's operations are,
    so that the cost model knows whose it is. `tf.custom_gradient` alone leaves it without.

    Args:
        function: As `tf.custom_gradient` takes it.
        *tensors: Its arguments.
    """
    scope = tf.get_current_name_scope()

    @tf.custom_gradient
    def named(*tensors):
        results, gradient = function(*tensors)

        def named_gradient(*upstream, **variables):
            with tf.name_scope(f"gradient_tape/{scope}/" if scope else "gradient_tape/"):
                return gradient(*upstream, **variables)

        return results, named_gradient

    return named(*tensors)
