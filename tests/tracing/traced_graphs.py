"""Graphs of functions, as XLA lowers them."""

import contextlib

import tensorflow as tf
from hlo_graphs import missing_references

from ipu_keras.ir import TensorSpec
from ipu_keras.tracing import traced_for_xla
from ipu_keras.tracing.hlo import hlo_graph


def trace(function, *specs):
    return tf.function(function, autograph=False).get_concrete_function(*specs)


def read(function, *specs, for_xla=False):
    """The graph of a function, which is consistent whatever the function is."""

    def step(*tensors):
        with traced_for_xla() if for_xla else contextlib.nullcontext():
            return function(*tensors)

    graph = hlo_graph(trace(step, *specs))
    assert missing_references(graph) == []
    assert graph.form == "hlo"
    assert all(called.form == "hlo" for called in graph.functions.values())
    return graph


def ops(graph, kind):
    """All operations of a kind, those of called graphs included."""
    return [op for op in graph.walk() if op.kind == kind]


def op(graph, kind):
    (found,) = ops(graph, kind)
    return found


def spec(*shape, dtype="float32"):
    return TensorSpec(shape, dtype)
