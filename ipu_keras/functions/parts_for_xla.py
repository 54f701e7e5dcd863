"""Compiles for XLA, in parts, what users want compiled and what does something that XLA lacks."""

import functools
import inspect
from typing import Any

import tensorflow as tf

from ipu_keras.functions.graph_programs import programs_in
from ipu_keras.host.operation_kinds import CONVOLUTIONS, drawn_otherwise_by_xla
from ipu_keras.host.replicas.segments import replicate
from ipu_keras.internals.tensorflow.functions import autograph_of
from ipu_keras.ir import Graph
from ipu_keras.tracing import graph_of


def is_worth_compiling(concrete: Any, graph: Graph) -> bool:
    """Whether XLA should compile parts of a function, rather than none of it.

    XLA's convolutions are slower than TensorFlow's, and some of its draws have other numbers. A
    program in the function is compiled already.
    """
    return (
        not CONVOLUTIONS & graph.kinds
        and drawn_otherwise_by_xla(graph) is None
        and not programs_in(concrete.graph)
    )


def compiled_in_parts(function: Any, concrete: Any) -> Any:
    """Returns a user's `tf.function` of which XLA compiles what it can; `concrete` is one trace.

    Reading an iterator, say, is left to TensorFlow, and XLA compiles what is before and after
    it, in loops and branches as well.
    """
    if not is_worth_compiling(concrete, graph_of(concrete)):
        return tf.function(function.python_function, autograph=autograph_of(function))

    def with_all(given: dict[str, Any]) -> Any:
        return function.python_function(*given["args"], **given["kwargs"])

    plain = tf.function(with_all, autograph=autograph_of(function))

    def in_parts(*args, **kwargs):
        given = {"args": args, "kwargs": kwargs}
        concrete = plain.get_concrete_function(given)
        if not is_worth_compiling(concrete, graph_of(concrete)):
            return plain(given)
        tensors = filter(tf.is_tensor, tf.nest.flatten(given, expand_composites=True))
        (results,) = replicate(concrete, 1, parts_for_xla=True)([list(tensors)])
        return results

    # TensorFlow warns of functions that it traces too often, by name, which should be the
    # user's.
    signature = inspect.signature(in_parts)
    functools.update_wrapper(in_parts, function.python_function)
    in_parts.__signature__ = signature  # type: ignore[attr-defined]
    return tf.function(in_parts, autograph=False)
