"""Finds the first node whose result is infinite or no number, for `enableFloatingPointChecks`.

An IPU stops where that happens. Programs of the host go on, and return for each micro-batch
which node it was; that works wherever the steps run, in XLA too.
"""

import contextlib
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from ipu_keras.popart.exceptions import poplar_exception
from ipu_keras.popart.model.graph import Node, OnnxGraph
from ipu_keras.popart.operations.subgraph import Environment
from ipu_keras.popart.operations.values import LaidOutTensor


def first_wrong(
    graph: OnnxGraph,
    environment: Environment,
    around: Callable[[Node], contextlib.AbstractContextManager],
    gradients: Sequence[tf.Tensor] = (),
) -> tf.Tensor:
    """Returns the position of the first node whose result is not finite, an int32 scalar.

    Gradients count behind the nodes. If all is finite, it is the number of nodes and gradients.

    Args:
        graph: The main graph. What is within a node, such as a loop's body, counts as that node.
        around: Opens a context for the operations that are added beside a node.
    """
    num_nodes = len(graph.nodes)
    first = tf.constant(num_nodes + len(gradients), tf.int32)
    for position, node in enumerate(graph.nodes):
        tensors = [tensor for name in node.outputs for tensor in _computed(environment.get(name))]
        if tensors:
            with around(node):
                first = _first(first, tensors, position)
    for position, gradient in enumerate(gradients, num_nodes):
        first = _first(first, [gradient], position)
    return first


def _first(first: tf.Tensor, tensors: Sequence[tf.Tensor], position: int) -> tf.Tensor:
    finite = [tf.reduce_all(tf.math.is_finite(tensor)) for tensor in tensors]
    return tf.where(tf.reduce_all(tf.stack(finite)), first, tf.minimum(first, position))


def check_numbers(graph: OnnxGraph, weights: Sequence[str], first: np.ndarray) -> None:
    """Raises a `poplar_exception` that names the first node or gradient that is not finite.

    Args:
        weights: Names of those that have gradients.
        first: What `first_wrong` returned, for each micro-batch.
    """
    titles = [node.title for node in graph.nodes]
    titles += [f"the gradient of the weight {name!r}" for name in weights]
    position = int(first.min(initial=len(titles)))
    if position < len(titles):
        trained = (
            "The device has the weights that the step left: weightsFromHost takes those of the "
            "host again. "
        )
        micro_batch = int(np.argmax(first == position))
        raise poplar_exception(
            f"Floating point exception in {titles[position]}: its result is infinite or "
            f"no number (overflow, division by zero or an invalid operation), in micro-batch "
            f"{micro_batch} of the step. Nothing was written to the anchors. "
            f"{trained if weights else ''}Leave "
            "SessionOptions.enableFloatingPointChecks False to get such results."
        )


def _computed(value: object) -> list[tf.Tensor]:
    """Returns the floating tensors of a value that a device computes; constants are none."""
    if isinstance(value, list):
        return [tensor for one in value for tensor in _computed(one)]
    if (
        not isinstance(value, LaidOutTensor)
        or value.known is not None
        or not value.dtype.is_floating
    ):
        return []
    return [value.in_order(value.order)]
