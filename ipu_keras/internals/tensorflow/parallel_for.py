"""TensorFlow's converter of operations to many batches.

`tf.vectorized_map` applies it to whole functions, and makes loops of what it cannot convert.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.internals.forms import Class, Function, InstanceOf, PrivateName

_REGISTRY = PrivateName(
    "tensorflow.python.ops.parallel_for.pfor", "_pfor_converter_registry", InstanceOf(dict)
)
_CONVERTER = PrivateName(
    "tensorflow.python.ops.parallel_for.pfor",
    "PFor",
    Class(
        members={
            "__init__": Function(
                "self", "loop_var", "loop_len", "pfor_ops", keywords=("fallback_to_while_loop",)
            ),
            "_add_conversion": Function("self", "old_output", "new_output"),
            "_convert_helper": Function("self", "op_or_tensor"),
            "convert": Function("self", "y"),
        }
    ),
)
_WRAP = PrivateName(
    "tensorflow.python.ops.parallel_for.pfor", "wrap", Function("tensor", "is_stacked")
)
_WRAPPED = PrivateName(
    "tensorflow.python.ops.parallel_for.pfor", "WrappedTensor", Class("t", "is_stacked")
)
_CREATE = PrivateName(
    "tensorflow.python.ops.parallel_for.pfor",
    "_create_op",
    Function("op_type", "inputs", "op_dtypes", "attrs"),
)


def check() -> None:
    """Raises a `FormError` before anything is converted if a private name has another form."""
    for name in (_REGISTRY, _CONVERTER, _WRAP, _WRAPPED, _CREATE):
        name.get()


def has_converter(kind: str) -> bool:
    """Whether operations of a kind can be converted."""
    return kind in _REGISTRY.get()


def create_operation(
    kind: str, inputs: Sequence[tf.Tensor], dtypes: Sequence[tf.DType], attributes: Any
) -> tf.Operation:
    """Makes an operation of any kind with given attributes."""
    return _CREATE.get()(kind, inputs, dtypes, attributes)


class Converter:
    """Converts operations of the graph of one batch to many batches, as far as it is asked to."""

    def __init__(self, graph: tf.Graph, count: int):
        # `pfor` requires a placeholder for the index of its loop, though nothing here reads an
        # index.
        index = tf.compat.v1.placeholder_with_default(tf.constant(0), ())
        self._pfor = _CONVERTER.get()(
            index, tf.constant(count), graph.get_operations(), fallback_to_while_loop=False
        )

    def give(self, tensor: tf.Tensor, value: tf.Tensor, *, stacked: bool) -> None:
        """Says what a tensor of the graph is: one value for all batches, or a stacked one."""
        self._pfor._add_conversion(tensor, _WRAP.get()(value, stacked))

    def stacked(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns a tensor for all batches, stacked along a new first axis."""
        return self._pfor.convert(tensor)

    def converted(self, tensor: tf.Tensor) -> Any:
        """Returns a tensor for all batches, `t`, and whether it is stacked, `is_stacked`."""
        return self._pfor._convert_helper(tensor)
