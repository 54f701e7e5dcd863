"""The check that a Python function is an expression which one elementwise vertex can compute."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.ops.user_operations import holds_numbers

# TensorFlow's operations that compute each element of the result from one of each operand, and
# that the vertices which Poplar generates from expressions have, too.
_UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Cast Ceil Cos Cosh Elu Erf Erfc Exp Expm1 Floor "
    "Identity Inv Invert IsFinite IsInf IsNan LeakyRelu Log Log1p LogicalNot Neg Reciprocal "
    "Relu Relu6 Rint Round Rsqrt Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Square "
    "StopGradient Tan Tanh OnesLike ZerosLike"
)
_BINARY = (
    "Add AddV2 Atan2 BitwiseAnd BitwiseOr BitwiseXor Div DivNoNan Equal FloorDiv FloorMod "
    "Greater GreaterEqual LeftShift Less LessEqual LogicalAnd LogicalOr Maximum Minimum Mod Mul "
    "MulNoNan NotEqual Pow RealDiv RightShift SquaredDifference Sub TruncateDiv TruncateMod "
    "Xdivy Xlog1py Xlogy"
)
_OTHER = "AddN ClipByValue Const NoOp Placeholder Select SelectV2"
_ELEMENTWISE = frozenset(f"{_UNARY} {_BINARY} {_OTHER}".split())


def check_expression(expression: Callable[..., Any], tensors: Sequence[tf.Tensor]) -> None:
    """Traces a function, and refuses it unless it is an elementwise expression of these tensors.

    It may read nothing else, and returns one tensor of the shape to which they broadcast.
    """
    if not callable(expression):
        raise TypeError(
            "`vertex_expression` must be a Python function of tensors. "
            f"Received: vertex_expression={expression!r}"
        )
    shape = _common_shape(tensors)
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
    # The lambda hides the signature, so that a wrong number of arguments raises when it is
    # called, as it would for users. AutoGraph would turn branches into operations that are not
    # elementwise.
    traced = tf.function(lambda *args: expression(*args), autograph=False)
    try:
        concrete = traced.get_concrete_function(*specs)
    except TypeError as error:
        raise TypeError(
            f"`vertex_expression` must be a function of {len(tensors)} tensors that returns one: "
            f"it is given all of `args`. Received: {error}"
        ) from error
    _check_operations(concrete)
    result = concrete.structured_outputs
    if not tf.is_tensor(result) or not result.shape.is_compatible_with(shape):
        raise ValueError(
            "`vertex_expression` must return one tensor of the shape of its arguments, as they "
            f"broadcast, {shape}. Received: {result}"
        )


def _common_shape(tensors: Sequence[tf.Tensor]) -> tf.TensorShape:
    if not tensors:
        raise ValueError(
            "`codelet_expression_op` needs at least one tensor after `vertex_expression`. "
            "Received: args=()"
        )
    for position, tensor in enumerate(tensors):
        if not holds_numbers(tensor.dtype):
            raise TypeError(
                "All `args` must be tensors of numbers. "
                f"Received: a tensor of {tensor.dtype.name} at position {position}"
            )
    try:
        return functools.reduce(tf.broadcast_static_shape, (tensor.shape for tensor in tensors))
    except ValueError as error:
        raise ValueError(
            "All `args` must have shapes that broadcast to one: an expression is computed for "
            "each element alone. "
            f"Received: tensors of the shapes {', '.join(str(tensor.shape) for tensor in tensors)}"
        ) from error


def _check_operations(concrete: Any) -> None:
    others = [op for op in concrete.graph.get_operations() if op.type not in _ELEMENTWISE]
    if others:
        kinds = ", ".join(dict.fromkeys(op.type for op in others))
        raise ValueError(
            "`vertex_expression` must consist of elementwise operations, which a vertex computes "
            "for each element alone: move all others out of it, and give it their results. "
            f"Received: {kinds}"
        )
    if concrete.captured_inputs:
        names = ", ".join(str(getattr(t, "name", t)) for t in concrete.graph.external_captures)
        raise ValueError(
            "`vertex_expression` may read nothing but its arguments and constants: give it all "
            f"tensors in `args`. Received: a function that also reads {names}"
        )
