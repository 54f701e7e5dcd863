"""Turns what TensorFlow, XLA and NumPy raise for a model into PopART's exceptions."""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence

import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception, poplar_exception
from ipu_keras.popart.model.graph import Node, OnnxGraph
from ipu_keras.popart.sessions.step import scope_of
from ipu_keras.tracing.lowering import LoweringError

# TensorFlow hands on what Python raises within a graph as a text: its name, and what it says.
_ABORTED = re.compile(r"\bpoplar_exception: ([^\n]*)")
# What TensorFlow's executor writes around the reason: that there is one, and where in its code.
_AROUND_REASONS = re.compile(
    r"Graph execution error:|Detected at |File \"|Stack trace for op|<stack traces unavailable>"
    r"|\d+ root error\(s\)|\[\["
)
# The status and the operation's name, which stand before and behind the reason.
_NOT_OF_REASONS = re.compile(
    r"^\(\d+\) *(?:[A-Z_]+: )?|\s*\[\[.*?\]\]|\{\{.*?\}\}\s*|\s*\[Op:.*|,? *node name: \S+"
)
# How TensorFlow marks the operation that failed.
_OPERATIONS = re.compile(r"\{\{(?:function_node|node) ([^}]+)\}\}")

_FAILURES = (
    *(tf.errors.OpError, LoweringError),
    *(ValueError, TypeError, ArithmeticError, LookupError, MemoryError),
)


@contextlib.contextmanager
def in_words_of_popart(graph: OnnxGraph, doing: str) -> Iterator[None]:
    """Turns what TensorFlow, XLA and NumPy raise within into a `popart_exception`.

    The exception names the node that failed, if TensorFlow says so. A program that aborts itself
    raises a `poplar_exception`; a program that does not fit keeps its `ResourceExhaustedError`.

    Args:
        doing: A verb for what is done, such as "run".
    """
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        if error.node_def is None and error.op is None and not _OPERATIONS.search(error.message):
            # The cost model's, which knows what would help.
            raise
        raise _failed(graph, doing, error) from error
    except _FAILURES as error:
        aborted = _ABORTED.search(str(error))
        if aborted is not None:
            raise poplar_exception(aborted[1].strip()) from error
        raise _failed(graph, doing, error) from error


def _failed(graph: OnnxGraph, doing: str, error: Exception) -> popart_exception:
    text = (getattr(error, "message", None) or str(error)).strip()
    node = _blamed(graph, text)
    where = f"The program failed to {doing}: " if node is None else f"In {node.title}: "
    notes = "".join(f". {note}" for note in getattr(error, "__notes__", ()))
    return popart_exception(f"{where}{_reason_in(text) or type(error).__name__}{notes}")


def _reason_in(text: str) -> str:
    """Returns the line that says why, of the many that TensorFlow writes."""
    lines = (_NOT_OF_REASONS.sub("", line.strip()) for line in text.splitlines())
    return next((line for line in lines if line and not _AROUND_REASONS.match(line)), "")


def _blamed(graph: OnnxGraph, text: str) -> Node | None:
    """Returns the node whose name scope TensorFlow says failed."""
    nodes: dict[str, list[Node]] = {}
    for node in graph.nodes:
        # TensorFlow takes names that differ only in their letters' case for one.
        nodes.setdefault(scope_of(node).lower(), []).append(node)
    for name in _OPERATIONS.findall(text):
        parts = name.lower().split("/")
        # A node's scope may be within others, and have slashes itself, so all runs of parts are
        # tried, from the outermost and longest on.
        for first in range(len(parts)):
            for end in range(len(parts), first, -1):
                found = _node_in(nodes, "/".join(parts[first:end]))
                if found is not None:
                    return found
    return None


def _node_in(nodes: Mapping[str, Sequence[Node]], scope: str) -> Node | None:
    if scope in nodes:
        return nodes[scope][0]
    # TensorFlow appends `_1`, `_2` ... to a scope that is opened again.
    numbered = re.fullmatch(r"(.+)_(\d+)", scope)
    if numbered is None or numbered[1] not in nodes:
        return None
    alike = nodes[numbered[1]]
    return alike[min(int(numbered[2]), len(alike) - 1)]
