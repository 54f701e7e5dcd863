"""Computes square roots of equal scalars once.

For every `Sqrt`, TensorFlow builds MLIR passes when it lowers a program for XLA, which takes 4
to 5 ms. Keras's Adam has two for each variable, one of which is of a scalar that is the same
for all. Not those of halves, each of which may be rounded at random for itself.
"""

import contextlib
from collections.abc import Hashable, Sequence

import tensorflow as tf

from ipu_keras.host.rewrites.replacement import replaced
from ipu_keras.tracing.as_written import Replaced

# Kinds of operations whose scalar results are decided by their types and operands.
_DECIDED_BY_OPERANDS = frozenset({"Add", "AddV2", "Cast", "Mul", "Pow", "RealDiv", "Sub"})


def shared_roots() -> contextlib.AbstractContextManager[list[Replaced]]:
    """While this is open for XLA, roots of scalars that are written alike are computed once."""
    first: dict[Hashable, tf.Tensor] = {}

    def known(inputs: Sequence[tf.Tensor], output: tf.Tensor) -> tf.Tensor | None:
        if output.shape.rank != 0 or output.dtype == tf.float16:
            return None
        found = first.setdefault((id(output.graph), _expression(inputs[0])), output)
        # Through an identity, so that what takes this root can be told from what takes the
        # first one when it is undone.
        return None if found is output else tf.identity(found)

    return replaced({"Sqrt"}, known)


def _expression(tensor: tf.Tensor) -> Hashable:
    """Returns what a scalar was computed from, which is equal for scalars that must be equal."""
    op = tensor.op
    if op.type == "Const":
        return "Const", op.get_attr("value").SerializeToString()
    if op.type == "ReadVariableOp" and _is_only_read(op.inputs[0]):
        return op.type, op.inputs[0].ref()
    if op.type in _DECIDED_BY_OPERANDS and tensor.dtype != tf.float16:
        return op.type, tensor.dtype, *map(_expression, op.inputs)
    return tensor.ref()


def _is_only_read(variable: tf.Tensor) -> bool:
    """Whether nothing that was traced until now may have written a variable."""
    return all(op.type == "ReadVariableOp" for op in variable.consumers())
