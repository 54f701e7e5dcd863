"""Graphcore's operations with effects: they print, end a run, or exchange between replicas."""

import sys
from typing import Any

import tensorflow as tf

from ipu_keras.ops.collectives import all_gather, all_reduce_sum, replica_groups
from ipu_keras.popart.exceptions import popart_exception, poplar_exception
from ipu_keras.popart.operations.operation import graphcore_operation
from ipu_keras.settings.arguments import legible
from ipu_keras.tracing.poplar_operation import differentiable
from ipu_keras.tracing.replication import all_replicas, replica_index

# PopART's numbers of its `CommGroupType`, which nodes have as an attribute.
_ALL, _CONSECUTIVE, _ORTHOGONAL = range(3)

# PopART's prefix for the names of gradients.
_GRADIENT = "Gradient___"


@graphcore_operation("Abort", has_effects=True)
def abort(condition=None, *, context):
    text = f"The program was aborted, as its node {context.node.title} asks for."
    if condition is None:
        return _end_unless(tf.constant(False), text)
    # Poplar's `AbortOnCondition` ends the run if its condition is true.
    is_unset = tf.logical_not(tf.reduce_any(tf.cast(condition, tf.bool)))
    return _end_unless(is_unset, f"{text} Its input is not 0: {context.node.inputs[0]!r}")


@graphcore_operation("PrintTensor", has_effects=True)
def print_tensor(x, *, print_gradient=1, title="", context):
    title = title or context.node.inputs[0]

    def run(x):
        def gradient(upstream):
            if print_gradient:
                _print(_GRADIENT + title, upstream)
            return upstream

        _print(title, x)
        return tf.identity(x), gradient

    return differentiable(run, x) if x.dtype.is_floating else run(x)[0]


@graphcore_operation("ReplicatedAllReduce", has_effects=True)
def replicated_all_reduce(x, *, commGroup=None):
    kind, size = _group(commGroup)
    if kind != _ORTHOGONAL:
        return all_reduce_sum(x, replica_groups(None if kind == _ALL else size, "commGroup"))
    # The replicas of a group are as far apart as there are groups, and collectives know groups of
    # neighbours only: gather from all, then add up those of one's own group.
    num_groups = all_replicas() // replica_groups(size, "commGroup").size
    gathered = all_gather(x, replica_groups(None, "commGroup"))
    by_group = tf.reshape(gathered, [size, num_groups, *x.shape])
    return tf.reduce_sum(by_group, axis=0)[replica_index() % num_groups]


def _end_unless(goes_on: tf.Tensor, text: str) -> tuple[()]:
    def ended():
        end_program(text)
        return tf.constant(True)

    tf.cond(goes_on, lambda: tf.constant(False), ended)
    return ()


def end_program(text: str) -> None:
    """Ends the program when it gets here, with a `poplar_exception` that says `text`."""

    def end():
        raise poplar_exception(text)

    # XLA drops assertions silently, but an operation that calls Python is never compiled by it.
    tf.numpy_function(end, [], [])


def _print(title: str, x: tf.Tensor) -> None:
    tf.print(f"{legible(title)}:", x, output_stream=sys.stderr, summarize=-1)


def _group(given: Any) -> tuple[int, int | None]:
    """Returns the kind of replica group, and its size, which is `None` for all replicas."""
    if given is None:
        return _ALL, None
    kind, size = (*given, None, None)[:2]
    if kind not in (_ALL, _CONSECUTIVE, _ORTHOGONAL) or (kind != _ALL and not size):
        raise popart_exception(
            "`commGroup` has to be the number of a kind, 0 for all replicas, 1 for neighbours "
            "and 2 for those of different groups of neighbours, and how many replicas are in a "
            f"group. Received: commGroup={list(given)}"
        )
    return kind, size
