"""Calls a traced function for many batches as if they were one larger batch.

The host computes a large batch in less time than its parts: it fills the vector units and
caches of CPUs better, and there are fewer operations to start. TensorFlow's `pfor` converts
most operations. Here is what it lacks: sums over the batches, such as of weight gradients, are
computed as those of one large batch, and calls that XLA compiles stay such.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.host.splitting import before_return
from ipu_keras.internals.fallbacks import fallbacks
from ipu_keras.internals.tensorflow import parallel_for
from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.tracing.concrete import called_functions
from ipu_keras.tracing.extraction import feeds_of
from ipu_keras.tracing.frontend_attributes import attributes_of, says_numerics

# An operation on a batch `(b, ...)` becomes one for `n` batches in one of three forms:
#
#     stacked      (n, b, ...)    by `pfor`, for most operations
#     rows         (n * b, ...)   for convolutions, pooling, bias and relu; such operations pass
#                                 rows to each other without a reshape in between
#     one by one   n of (b, ...)  for what neither of these can do, such as batch normalization
#
# Each batch must get the result that it would get alone: what looks across a batch, as a batch
# normalization does, must still see its own. A result of which only the sum over the batches is
# wanted, such as a gradient, is not made for each batch if there is a rule in `_SUMS`.

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})

# `pfor` makes loops, transposed copies, or one text for all batches of operations whose names
# begin like this. Unless it is listed below, what needs one of these for each batch, or has
# state, is not joined at all.
_CONVERTED_BADLY = (
    "Conv2DBackpropFilter",
    "DepthwiseConv2d",
    "FusedBatchNorm",
    "SparseSegment",
    "Stateless",
    "StringFormat",
    "TensorArray",
    "TensorList",
    "TensorScatter",
    "UnsortedSegment",
)

# These have no way to take many batches, and are done for one after the other. What they take
# and give is small beside the work of the others, or is copied faster than the others are
# computed in parts.
_ONE_BY_ONE = frozenset(
    {
        "FusedBatchNormGradV3",
        "FusedBatchNormV3",
        "StatelessRandomGetKeyCounter",
        "StatelessRandomUniformV2",
        "XlaCallModule",
    }
)

# Converted to rows if this number of their first operands, and no others, depend on the batch.
# `pfor` stacks the operands of most operations and unstacks those of others, and with reshapes
# in between TensorFlow does not see what it can compute together: a convolution with its
# activation, or pooling with its gradient.
_ROW_BY_ROW: Mapping[str, int] = {
    "AvgPool": 1,
    "BiasAdd": 1,
    "Bitcast": 1,  # `pfor` has no converter for it
    "Conv2D": 1,
    "MaxPool": 1,
    "MaxPoolGrad": 3,
    "Relu": 1,
    "ReluGrad": 2,
    "Relu6": 1,
    "Relu6Grad": 2,
}

# Converted here if only the first operand depends on the batch. `pfor` leaves it to TensorFlow
# to broadcast the other operand. Of operands `(n, 1, m, k)` and `(k, j)`, TensorFlow 2.21's
# product with oneDNN and AVX-512 writes behind its result, which ends processes at random.
_PRODUCTS = frozenset({"BatchMatMulV2", "BatchMatMulV3"})

# What depends on shapes alone or on nothing, or only reads, is the same for all batches.
_FIXED = frozenset(
    {
        "BroadcastGradientArgs",
        "Const",
        "InvertPermutation",
        "NoOp",
        "Placeholder",
        "Range",
        "ReadVariableOp",
    }
)

# A sum over the batches without a rule of its own needs all values at the same time. That takes
# longer than to add each to the sum: of 8 batches, 0.0 ms if they are 0.1 MB, 0.24 if 0.5 MB,
# 0.8 if 2 MB, 3.5 if 8 MB (processor time, medians of 41 rounds). At this size it is what
# joining 8 batches of the smallest model spares elsewhere, 0.4 ms (the benchmarks' MLP,
# `predict`: 0.18 and 0.13 ms a batch).
_MAX_SUMMED_BYTES = 1 << 20


def can_join(function: Any, summed: Sequence[bool], count: int) -> bool:
    """Whether it pays to call a traced function for many batches at once.

    Of results that are `summed`, only the sum over the batches is wanted.
    """
    return fallbacks().attempt("joint batches", _can_join, function, summed, count) or False


def _can_join(function: Any, summed: Sequence[bool], count: int) -> bool:
    parallel_for.check()
    results = zip(_results(function), summed, strict=True)
    sums = (tensor for tensor, is_summed in results if is_summed)
    return all(map(_is_joined, _for_each_batch(function, summed))) and all(
        _is_summed_well(tensor, count) for tensor in sums
    )


def bytes_of_batch(function: Any, summed: Sequence[bool]) -> int:
    """Returns the bytes of all that a jointly called function computes for each batch.

    They do not all exist at the same time.
    """
    return sum(
        tensor.shape.num_elements() * tensor.dtype.size
        for op in _for_each_batch(function, summed)
        if op.type not in _FIXED
        for tensor in op.outputs
        if tensor.shape.is_fully_defined()
    )


def joint_function(
    function: Any, summed: Sequence[bool], count: int, *, compiled: bool = False
) -> Any:
    """Makes a function for many batches at once from one for which `can_join` says yes.

    The new function takes what the other takes, with the batches along a new first axis, and
    returns a list: the sum of each result that is `summed`, and all batches of any other along
    a new first axis. It is `None` if an operation cannot be converted for such operands.

    Example:

    >>> square = tf.function(lambda x: x * x).get_concrete_function(tf.TensorSpec(()))
    >>> [total] = joint_function(square, [True], 3)(tf.constant([1.0, 2.0, 3.0]))
    >>> float(total)
    14.0
    """

    def joint(*feeds):
        graph = _JointGraph(function.graph, count)
        for inner, feed in zip(feeds_of(function), feeds, strict=True):
            graph.give(inner, feed, stacked=True)
        for outer, inner in function.graph.captures:
            graph.give(inner, outer, stacked=False)
        graph.convert_calls()
        return [
            graph.sum_of(tensor) if is_summed else graph.stacked(tensor)
            for tensor, is_summed in zip(_results(function), summed, strict=True)
        ]

    specs = [tf.TensorSpec((count, *static_sizes(feed)), feed.dtype) for feed in feeds_of(function)]
    traced = tf.function(joint, autograph=False, jit_compile=compiled)
    # `pfor` has no error of its own for what it cannot convert, and logs each case with all its
    # details.
    with _silent(tf.get_logger()):
        try:
            return traced.get_concrete_function(*specs)
        except (AssertionError, NotImplementedError, TypeError, ValueError):
            return None


@contextlib.contextmanager
def _silent(logger: logging.Logger) -> Iterator[None]:
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _results(function: Any) -> list[tf.Tensor]:
    return [before_return(t) for t in tf.nest.flatten(function.structured_outputs)]


def _for_each_batch(function: Any, summed: Sequence[bool]) -> set[tf.Operation]:
    """Returns the operations that are computed for each batch, or once for all batches."""
    pending = [
        before.op
        for tensor, is_summed in zip(_results(function), summed, strict=True)
        for before in (_operands_of_sum(tensor) if is_summed else [tensor])
    ]
    found = set(pending)
    while pending:
        before = {tensor.op for tensor in pending.pop().inputs} - found
        found |= before
        pending += before
    return found


def _operands_of_sum(tensor: tf.Tensor) -> Iterator[tf.Tensor]:
    """Yields the tensors that the sum of a tensor over the batches is computed from."""
    op = tensor.op
    if _rule_of(op) is None:
        yield tensor
    elif op.type in _PASSED_ON:
        for operand in op.inputs[: _PASSED_ON[op.type]]:
            yield from _operands_of_sum(operand)
    else:
        yield from op.inputs


def _is_joined(op: tf.Operation) -> bool:
    if op.type in _FIXED:
        return True
    if says_numerics(attributes_of(op)):
        # `pfor` makes other operations, which would be in no scope.
        return False
    if op.type in _CALLS:
        body = _body_of(op)
        return body is not None and all(map(_is_joined, body.get_operations()))
    if op.type == "Bitcast":
        # Between types of other sizes it changes the shape, too.
        return op.inputs[0].dtype.size == op.outputs[0].dtype.size
    if op.type in _ONE_BY_ONE:
        return True
    converted = parallel_for.has_converter(op.type)
    return converted and not op.type.startswith(_CONVERTED_BADLY) and not op.op_def.is_stateful


def _body_of(call: tf.Operation) -> Any:
    """Returns the graph of a called function, or `None` for TensorFlow 1's `Defun`."""
    function = called_functions(call.graph).get(call.get_attr("f").name)
    return None if function is None else function.graph


def _is_summed_well(tensor: tf.Tensor, count: int) -> bool:
    op = tensor.op
    if tensor.dtype not in (tf.float32, tf.float64):
        # The sum over all batches could overflow in a short type, where that over some, or a
        # mean, does not.
        return False
    if op.type in _PASSED_ON:
        return all(_is_summed_well(each, count) for each in op.inputs[: _PASSED_ON[op.type]])
    if _rule_of(op) is not None:
        return True
    size = tensor.shape.num_elements()
    return size is not None and count * size * tensor.dtype.size <= _MAX_SUMMED_BYTES


class _JointGraph:
    """Converts the graph of one batch for `count` batches, as far as it is asked to."""

    def __init__(self, graph: Any, count: int):
        self._graph = graph
        self._count = count
        self._rows: dict[Any, tf.Tensor] = {}
        self._pfor = parallel_for.Converter(graph, count)

    def give(self, tensor: tf.Tensor, value: tf.Tensor, *, stacked: bool) -> None:
        """Says what a tensor of the graph is: one value for all batches, or a stacked one."""
        self._pfor.give(tensor, value, stacked=stacked)

    def stacked(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns a tensor for all batches, stacked along a new first axis."""
        return self._pfor.stacked(tensor)

    def rows(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns a tensor for all batches with their rows along its first axis, as one batch."""
        if tensor.ref() not in self._rows:
            shape = (-1, *static_sizes(tensor)[1:])
            self._rows[tensor.ref()] = tf.reshape(self.stacked(tensor), shape)
        return self._rows[tensor.ref()]

    def convert_calls(self) -> None:
        """Converts the operations that are converted here; `pfor` takes the others as needed."""
        for op in self._graph.get_operations():
            if op.type in _CALLS:
                self._convert_call(op)
            # In inference a normalization uses given statistics, so that it treats each row by
            # itself.
            elif op.type in _ROW_BY_ROW or (
                op.type == "FusedBatchNormV3" and not op.get_attr("is_training")
            ):
                self._convert_row_by_row(op)
            elif op.type in _PRODUCTS:
                self._convert_product(op)
            elif op.type in _ONE_BY_ONE:
                self._convert_one_by_one(op)

    def _convert_product(self, op: tf.Operation) -> None:
        """Multiplies the matrices of all batches by one that is the same for all of them."""
        left, right = map(self._pfor.converted, op.inputs)
        matrices, matrix = op.inputs
        shape = matrix.shape[-2:]
        if (
            not left.is_stacked
            or right.is_stacked
            or matrix.shape.num_elements() != shape.num_elements()
            or matrix.shape.rank > matrices.shape.rank
        ):
            return
        # As one product of two matrices, the batches and all axes but the last are rows of the
        # first one. If the first operand is to be transposed, its last two axes stay matrices.
        of_columns = op.get_attr("adj_x")
        rows = static_sizes(matrices)[-2:] if of_columns else static_sizes(matrices)[-1:]
        product = tf.matmul(
            tf.reshape(left.t, (-1, *rows)),
            tf.reshape(right.t, shape),
            adjoint_a=of_columns,
            adjoint_b=op.get_attr("adj_y"),
        )
        value = tf.reshape(product, (self._count, *static_sizes(op.outputs[0])))
        self.give(op.outputs[0], value, stacked=True)

    def _convert_one_by_one(self, op: tf.Operation) -> None:
        given = [self._pfor.converted(tensor) for tensor in op.inputs]
        if not any(each.is_stacked for each in given):
            return
        each_input = [
            tf.unstack(one.t, self._count) if one.is_stacked else [one.t] * self._count
            for one in given
        ]
        dtypes = [tensor.dtype for tensor in op.outputs]
        each_output = [
            parallel_for.create_operation(op.type, inputs, dtypes, op.node_def.attr).outputs
            for inputs in zip(*each_input, strict=True)
        ]
        for tensor, values in zip(op.outputs, zip(*each_output, strict=True), strict=True):
            self.give(tensor, tf.stack(values), stacked=True)

    def _convert_row_by_row(self, op: tf.Operation) -> None:
        given = [self._pfor.converted(tensor) for tensor in op.inputs]
        num_stacked = _ROW_BY_ROW.get(op.type, 1)
        if [one.is_stacked for one in given] != [k < num_stacked for k in range(len(given))]:
            return
        operands = [*map(self.rows, op.inputs[:num_stacked]), *(o.t for o in given[num_stacked:])]
        dtypes = [tensor.dtype for tensor in op.outputs]
        created = parallel_for.create_operation(op.type, operands, dtypes, op.node_def.attr)
        (tensor, *others), (value, *other_values) = op.outputs, created.outputs
        self._rows[tensor.ref()] = value
        self.give(tensor, tf.reshape(value, (self._count, *static_sizes(tensor))), stacked=True)
        # The further results of a normalization are the statistics that it was given.
        for other, other_value in zip(others, other_values, strict=True):
            self.give(other, other_value, stacked=False)

    def _convert_call(self, op: tf.Operation) -> None:
        body = _body_of(op)
        given = [self._pfor.converted(tensor) for tensor in op.inputs]

        def run(*tensors):
            joint = _JointGraph(body, self._count)
            for inner, tensor, outer in zip(body.inputs, tensors, given, strict=True):
                joint.give(inner, tensor, stacked=outer.is_stacked)
            joint.convert_calls()
            return [joint.stacked(tensor) for tensor in body.outputs]

        compiled = op.node_def.attr["_XlaMustCompile"].b
        # Converted in place, the operations of a call that XLA compiles would be TensorFlow's.
        call = tf.function(run, autograph=False, jit_compile=compiled)
        values = call(*(each.t for each in given))
        for tensor, value in zip(op.outputs, values, strict=True):
            self.give(tensor, value, stacked=True)

    def sum_of(self, tensor: tf.Tensor) -> tf.Tensor:
        rule = _rule_of(tensor.op)
        if rule is None:
            return tf.reduce_sum(self.stacked(tensor), axis=0)
        return rule(self, tensor.op)


def _sum_of_same(joint: _JointGraph, op: tf.Operation) -> tf.Tensor:
    return joint.sum_of(op.inputs[0])


def _sum_of_reshaped(joint: _JointGraph, op: tf.Operation) -> tf.Tensor:
    return tf.reshape(joint.sum_of(op.inputs[0]), op.outputs[0].shape)


def _sum_of_sums(joint: _JointGraph, op: tf.Operation) -> tf.Tensor:
    return tf.add_n([joint.sum_of(tensor) for tensor in op.inputs])


# The sum of `x^T y` over the batches is one product `X^T Y` over all of their rows. The same
# holds of gradients of filters and biases below.
def _sum_of_products(joint: _JointGraph, op: tf.Operation) -> tf.Tensor:
    a, b = (joint.rows(factor) for factor in op.inputs)
    return tf.matmul(a, b, transpose_a=True)


def _sum_of_bias_gradients(joint: _JointGraph, op: tf.Operation) -> tf.Tensor:
    rows = joint.rows(op.inputs[0])
    return tf.raw_ops.BiasAddGrad(out_backprop=rows, data_format=op.get_attr("data_format"))


def _sum_of_filter_gradients(joint: _JointGraph, op: tf.Operation) -> tf.Tensor:
    images, _, gradient = op.inputs
    names = ("strides", "use_cudnn_on_gpu", "padding", "explicit_paddings", "data_format")
    return tf.raw_ops.Conv2DBackpropFilter(
        input=joint.rows(images),
        filter_sizes=tf.constant(op.outputs[0].shape.as_list()),
        out_backprop=joint.rows(gradient),
        dilations=op.get_attr("dilations"),
        **{name: op.get_attr(name) for name in names},
    )


# Operations for which the sum over the batches is cheaper than the values of all batches.
_SUMS: Mapping[str, Callable[[_JointGraph, tf.Operation], tf.Tensor]] = {
    "AddN": _sum_of_sums,
    "BiasAddGrad": _sum_of_bias_gradients,
    "Conv2DBackpropFilter": _sum_of_filter_gradients,
    "Identity": _sum_of_same,
    "MatMul": _sum_of_products,
    "Reshape": _sum_of_reshaped,
}

# These are linear, so sums pass through to this number of their first operands, `None` for all.
_PASSED_ON: Mapping[str, int | None] = {"AddN": None, "Identity": 1, "Reshape": 1}


def _rule_of(op: tf.Operation) -> Callable[[_JointGraph, tf.Operation], tf.Tensor] | None:
    """Returns how to sum an operation's result without the results of all batches, if possible."""
    # Only a product `x^T y` adds up rows of the batch: any other one keeps them.
    adds_rows = op.type != "MatMul" or (
        op.get_attr("transpose_a") and not op.get_attr("transpose_b")
    )
    return _SUMS.get(op.type) if adds_rows else None
