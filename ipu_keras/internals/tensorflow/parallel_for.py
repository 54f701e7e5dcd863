"""TensorFlow's converter of operations to many batches.

`tf.vectorized_map` converts whole functions with it, and makes loops of what it cannot convert.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.internals.forms import Class, Function, PrivateName, Value

_REGISTRY = PrivateName(
    "tensorflow.python.ops.parallel_for.pfor", "_pfor_converter_registry", Value(dict)
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
    """Finds out before anything is converted whether all is as it has to be.

    Raises:
        FormError: A private name has another form.
    """
    for name in (_REGISTRY, _CONVERTER, _WRAP, _WRAPPED, _CREATE):
        name.get()


def has_converter(kind: str) -> bool:
    """Whether operations of a kind can be converted."""
    return kind in _REGISTRY.get()


def create_operation(
    kind: str, inputs: Sequence[tf.Tensor], dtypes: Sequence[tf.DType], attributes: Any
) -> tf.Operation:
    """Makes an operation of any kind, with the attributes of another one."""
    return _CREATE.get()(kind, inputs, dtypes, attributes)


class Converter:
    """Converts the operations of a graph for many batches as far as it is asked to.

    Args:
        graph: The graph of one batch.
        count: How many batches.
    """

    def __init__(self, graph: tf.Graph, count: int):
        # Of the index of a loop, of which there is none, `pfor` takes only a placeholder.
        index = tf.compat.v1.placeholder_with_default(tf.constant(0), ())
        self._pfor = _CONVERTER.get()(
            index, tf.constant(count), graph.get_operations(), fallback_to_while_loop=False
        )

    def give(self, tensor: tf.Tensor, value: tf.Tensor, *, stacked: bool) -> None:
        """Says what a tensor of the graph is: the same for all batches, or `stacked`."""
        self._pfor._add_conversion(tensor, _WRAP.get()(value, stacked))

    def stacked(self, tensor: tf.Tensor) -> tf.Tensor:
        """A tensor of all batches, along a new first axis."""
        return self._pfor.convert(tensor)

    def converted(self, tensor: tf.Tensor) -> Any:
        """A tensor of all batches, `t`, and whether it has a new first axis, `is_stacked`."""
        return self._pfor._convert_helper(tensor)
