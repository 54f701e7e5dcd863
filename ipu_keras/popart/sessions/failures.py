"""What TensorFlow, XLA and NumPy say of a model that fails, in PopART's exceptions."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception, poplar_exception
from ipu_keras.popart.model.graph import Graph, Node
from ipu_keras.popart.sessions.step import scope_of
from ipu_keras.tracing.lowering import LoweringError

# TensorFlow hands on what Python raises within a graph as a text: its name, and what it says.
_ABORTED = re.compile(r"\bpoplar_exception: ([^\n]*)")
# Which of its operations TensorFlow says failed.
_OPERATIONS = re.compile(r"\{\{(?:function_node|node) ([^}]+)\}\}")

_FAILURES = (
    *(tf.errors.OpError, LoweringError),
    *(ValueError, TypeError, ArithmeticError, LookupError, MemoryError),
)


@contextlib.contextmanager
def in_words_of_popart(graph: Graph, doing: str) -> Iterator[None]:
    """Makes popart exceptions of what TensorFlow, XLA and NumPy raise within.

    Args:
        graph: The main graph, one of whose nodes may be to blame.
        doing: What was done, such as "run".

    Raises:
        popart_exception: Anything went wrong but what raises exceptions of its own.
        poplar_exception: The program ended itself.
        tf.errors.ResourceExhaustedError: The program does not fit on its device.
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


def _failed(graph: Graph, doing: str, error: Exception) -> popart_exception:
    text = (getattr(error, "message", None) or str(error)).strip()
    node = _blamed(graph, text)
    where = f"The program failed to {doing}: " if node is None else f"In {node.title}: "
    # Where in TensorFlow's code it was follows in lines of their own.
    lines = (line.strip() for line in text.splitlines())
    first: Any = next((line for line in lines if line and not line.startswith("Detected at")), text)
    plain = re.sub(r"\s*\[\[.*?\]\]|\{\{.*?\}\}\s*|\s*\[Op:.*", "", first).strip()
    return popart_exception(f"{where}{plain or type(error).__name__}")


def _blamed(graph: Graph, text: str) -> Node | None:
    """The node whose scope TensorFlow says failed."""
    nodes = {scope_of(node): node for node in graph.nodes}
    for name in _OPERATIONS.findall(text):
        parts = name.split("/")
        for first in range(len(parts)):
            for end in range(len(parts), first, -1):
                node = nodes.get("/".join(parts[first:end]))
                if node is not None:
                    return node
    return None
