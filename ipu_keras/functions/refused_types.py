"""Checks the data types of what functions for an IPU take, read and return."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.internals.tensorflow.functions import leaves_with_paths
from ipu_keras.ir import Graph
from ipu_keras.program.data_types import IPU_DTYPES, refuse_bfloat16, unsupported

# Kinds of operations whose results are elements of a dataset, and the kind that makes the
# optional ones. Gradients of branches have optional values, too: what the branch has computed.
_READS = frozenset({"IteratorGetNext", "OptionalGetValue"})
_OPTIONAL_ELEMENT = "IteratorGetNextAsOptional"


def refuse_dtypes(what: str, structure: Any) -> None:
    """Raises a `TypeError` for tensors of types that IPUs lack, or datasets with such elements.

    Args:
        what: Either `"input"` or `"output"`, for the error.
    """
    if all(dtype in IPU_DTYPES for leaf in tf.nest.flatten(structure) for dtype in _dtypes(leaf)):
        return
    for path, leaf in leaves_with_paths(structure):
        for dtype in _dtypes(leaf):
            if dtype not in IPU_DTYPES:
                raise unsupported(what, dtype, f"{_place(path)}{leaf!r}")


def refuse_computed_dtypes(graph: Graph) -> None:
    """Raises a `TypeError` for a function in bfloat16, or that reads types that IPUs lack."""
    reads = _READS if _OPTIONAL_ELEMENT in graph.kinds else _READS - {"OptionalGetValue"}
    for op in graph.walk():
        for dtype in {spec.dtype for spec in op.outputs}:
            # What loops hand to their gradients is a variant.
            if op.kind in reads and dtype not in (*IPU_DTYPES, "variant"):
                raise unsupported("input", dtype, f"elements that {op.name!r} reads")
    refuse_bfloat16(graph)


def _dtypes(value: Any) -> Iterator[str]:
    """Yields names of the types of tensors in a value; a constant of Python's has none."""
    if isinstance(value, tf.data.Iterator | tf.data.Dataset):
        for spec in tf.nest.flatten(value.element_spec):
            yield from _dtypes(spec)
        return
    dtype = getattr(value, "dtype", None)
    if isinstance(dtype, tf.DType):
        yield dtype.name
    elif isinstance(value, np.ndarray | np.generic):
        # NumPy's own name also covers what TensorFlow has no type for, such as dates.
        yield "string" if value.dtype.kind in "US" else value.dtype.name
    elif isinstance(dtype, str):  # Keras's variables and layers have their types as text
        yield dtype


def _place(path: tuple) -> str:
    """Says where in the structure a leaf is."""
    if not path:
        return ""
    first, *rest = path
    return f"{first}{''.join(f'[{part!r}]' for part in rest)} is "
