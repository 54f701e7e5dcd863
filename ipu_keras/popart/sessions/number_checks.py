"""Finds the first node whose result is infinite or no number, for `enableFloatingPointChecks`.

An IPU stops where that happens. Programs of the host go on, and return for each micro-batch which
node it was; that works wherever the steps run, in XLA too.
"""

import contextlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ipu_keras.popart.exceptions import poplar_exception
from ipu_keras.popart.model.graph import Graph, Node
from ipu_keras.popart.operations.subgraph import Environment
from ipu_keras.popart.operations.values import Value


def first_wrong_node(
    graph: Graph,
    environment: Environment,
    around: Callable[[Node], contextlib.AbstractContextManager],
) -> tf.Tensor:
    """The position of the first node with a result that is not finite; if there is none, as many
    as there are nodes.

    Args:
        graph: The main graph. What is within its nodes counts as these.
        environment: All its tensors.
        around: Opened for what is added beside a node.
    """
    first = tf.constant(len(graph.nodes), tf.int32)
    for position, node in enumerate(graph.nodes):
        tensors = [tensor for name in node.outputs for tensor in _computed(environment.get(name))]
        if not tensors:
            continue
        with around(node):
            finite = [tf.reduce_all(tf.math.is_finite(tensor)) for tensor in tensors]
            is_right = tf.reduce_all(tf.stack(finite))
            first = tf.where(is_right, first, tf.minimum(first, position))
    return first


def check_numbers(graph: Graph, first: np.ndarray) -> None:
    """Refuses what a step has computed, if any of it is not finite.

    Args:
        graph: The main graph.
        first: What `first_wrong_node` found in each micro-batch.

    Raises:
        poplar_exception: Something is; the text names the first node.
    """
    position = int(first.min(initial=len(graph.nodes)))
    if position < len(graph.nodes):
        micro_batch = int(np.argmax(first == position))
        raise poplar_exception(
            f"Floating point exception in {graph.nodes[position].title}: its result is infinite or "
            f"no number (overflow, division by zero or an invalid operation), in micro-batch "
            f"{micro_batch} of the step. Nothing was written to the anchors. Leave "
            "SessionOptions.enableFloatingPointChecks False to get such results."
        )


def _computed(value: object) -> list[tf.Tensor]:
    """The floating tensors of a value that a device computes."""
    if isinstance(value, list):
        return [tensor for one in value for tensor in _computed(one)]
    if not isinstance(value, Value) or value.known is not None or not value.dtype.is_floating:
        return []
    return [value.in_order(value.order)]
