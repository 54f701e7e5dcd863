"""Graphcore's operations that are layers: normalization, LSTM, convolutions and dropout."""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from ipu_keras.ops.multi_convolution import multi_conv as together
from ipu_keras.ops.normalized_groups import normalize_groups, operation_of
from ipu_keras.ops.recurrent import lstm as lstm_sequence
from ipu_keras.ops.recurrent import lstm_inference
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model import annotation_names
from ipu_keras.popart.model.graph import Node
from ipu_keras.popart.operations import convolutions
from ipu_keras.popart.operations.operation import graphcore_operation
from ipu_keras.tracing.frontend_attributes import MEMORY_PROPORTION, PARTIALS_TYPE, attributed
from ipu_keras.tracing.poplar_operation import poplar_operation

# PopART's LSTM has Poplar's order of gates: forget, input, cell, output. The sequence functions in
# `ops` have Keras's, which begins with the input gate.
_TO_INPUT_FIRST = [1, 0, 2, 3]


@graphcore_operation("GroupNormalization", images=["x"], num_images=1)
def group_normalization(x, scale, bias, *, num_groups, epsilon=1e-5, context):
    channels = x.shape[-1]
    if not 1 <= num_groups <= channels or channels % num_groups:
        raise popart_exception(
            "`num_groups` has to divide the number of channels. Received: "
            f"num_groups={num_groups} for {channels} channels"
        )
    normalized, mean, variance = normalize_groups(
        x,
        scale,
        bias,
        groups=num_groups,
        channels_axis=-1,
        epsilon=epsilon,
        strided=context.strides_groups,
        kind=operation_of("GroupNorm", training=context.is_training),
    )
    inverse = tf.math.rsqrt(variance + epsilon)
    return normalized, *(tf.cast(tf.reshape(each, [-1]), x.dtype) for each in (mean, inverse))


@graphcore_operation("LSTM")
def lstm(x, weights, bias=None, initial=None, *, outputFullSequence=1, context):
    units = weights.shape[-1]
    if x.shape.rank != 3 or weights.shape != (4, x.shape[-1] + units, units):
        raise popart_exception(
            "An LSTM takes a sequence (steps, batch, features) and weights (4, features + units, "
            f"units). Received: a tensor of shape {x.shape.as_list()} and weights of shape "
            f"{weights.shape.as_list()}"
        )
    zeros = tf.zeros([tf.shape(x)[1] if x.shape[1] is None else x.shape[1], units], x.dtype)
    h, c = (zeros, zeros) if initial is None else tf.unstack(initial)
    gates = tf.gather(weights, _TO_INPUT_FIRST)
    matrix = tf.reshape(tf.transpose(gates, [1, 0, 2]), [-1, 4 * units])
    offsets = tf.zeros([4 * units], x.dtype)
    if bias is not None:
        offsets = tf.reshape(tf.gather(bias, _TO_INPUT_FIRST), [-1])
    kernel, recurrent = matrix[: x.shape[-1]], matrix[x.shape[-1] :]
    tensors = (x, h, c, kernel, recurrent, offsets)
    with poplar_operation("PopnnLSTM"):
        if context.is_training:
            outputs, cell = lstm_sequence(*tensors)
            return (outputs if outputFullSequence else outputs[-1]), cell
        return lstm_inference(*tensors, return_sequences=bool(outputFullSequence))


@graphcore_operation("MultiConv", images=["x"], kernels=["w"], num_images=2**31, recurs=True)
def multi_conv(
    x,
    w,
    b=None,
    *more,
    dilations=(),
    inDilations=(),
    pads=(),
    outPads=(),
    strides=(),
    context,
):
    # Each convolution has images, a kernel and a bias, of which the last may leave out the bias.
    inputs = [x, w, b, *more]
    inputs += [None] * (-len(inputs) % 3)
    triples = [inputs[first : first + 3] for first in range(0, len(inputs), 3)]
    ranks = [len(kernel.shape) - 2 for _, kernel, _ in triples]
    sides = [2 * rank for rank in ranks]
    attributes = {
        "dilations": _per_convolution("dilations", dilations, ranks),
        "in_dilations": _per_convolution("inDilations", inDilations, ranks),
        "pads": _per_convolution("pads", pads, sides, 0),
        "out_pads": _per_convolution("outPads", outPads, sides, 0),
        "strides": _per_convolution("strides", strides, ranks),
    }

    def run(*_):
        results = []
        for number, triple in enumerate(triples):
            with _chosen(context.node, number):
                own = {name: each[number] for name, each in attributes.items()}
                results.append(_convolution(*triple, **own))
        return results

    plan = context.node.annotations.get(annotation_names.PLAN_TYPE)
    run_together = together(run, options=None if plan is None else {"planType": plan})
    return tuple(run_together(*(each for triple in triples for each in triple[:2])))


@graphcore_operation("ShapedDropout", is_random=True)
def shaped_dropout(x, *, shape, ratio=0.5, context):
    if not 0.0 <= ratio < 1.0:
        raise popart_exception(
            f"`ratio` has to be at least 0 and less than 1. Received: ratio={ratio}"
        )
    sizes = x.shape.as_list()
    trailing = sizes[len(sizes) - len(shape) :]
    fits = len(shape) <= len(sizes)
    if not fits or any(s not in (1, size) for s, size in zip(shape, trailing, strict=True)):
        raise popart_exception(
            "`shape` has to broadcast to that of the tensor. Received: "
            f"shape={list(shape)} for a tensor of shape {sizes}"
        )
    if not context.is_training or ratio == 0.0:
        return tf.identity(x)
    with poplar_operation("Dropout"):
        drawn = tf.random.stateless_uniform(shape, context.seed())
        factors = tf.where(drawn >= ratio, 1.0 / (1.0 - ratio), 0.0)
        return x * tf.cast(factors, x.dtype)


def _per_convolution(
    name: str, flat: Sequence[int], lengths: Sequence[int], default: int = 1
) -> list[list[int]]:
    """Splits a flat attribute, which has the numbers of all convolutions one after the other."""
    if not flat:
        return [[default] * length for length in lengths]
    if len(flat) != sum(lengths):
        raise popart_exception(
            f"`{name}` has to have {sum(lengths)} numbers, {list(lengths)} for the convolutions, "
            f"or none. Received: {name}={list(flat)}"
        )
    ends = np.cumsum(lengths)
    return [list(flat[end - length : end]) for end, length in zip(ends, lengths, strict=True)]


@contextlib.contextmanager
def _chosen(node: Node, number: int) -> Iterator[None]:
    """Attaches one convolution's partials type and memory proportion to operations made here."""
    graph = tf.compat.v1.get_default_graph()
    with contextlib.ExitStack() as opened:
        for name, attribute in (
            (annotation_names.PARTIALS_TYPE, PARTIALS_TYPE),
            (annotation_names.AVAILABLE_MEMORY, MEMORY_PROPORTION),
        ):
            values = node.annotations.get(name)
            if isinstance(values, list) and not tf.executing_eagerly():
                opened.enter_context(attributed(graph, attribute, str(values[number]).lower()))
        yield


def _convolution(x, w, b, *, dilations, in_dilations, pads, out_pads, strides):
    if max(in_dilations) > 1:
        x = _dilated(x, in_dilations)
    result = convolutions.conv(
        x,
        w,
        auto_pad="NOTSET",
        dilations=dilations,
        group=x.shape[-1] // w.shape[-2],
        pads=pads,
        strides=strides,
    )
    if any(out_pads):
        before, after = out_pads[: len(out_pads) // 2], out_pads[len(out_pads) // 2 :]
        result = tf.pad(result, [[0, 0], *zip(before, after, strict=True), [0, 0]])
    return result if b is None else result + b


def _dilated(x: tf.Tensor, dilations: Sequence[int]) -> tf.Tensor:
    """Puts zeros between neighbouring pixels of images."""
    for axis, dilation in enumerate(dilations, start=1):
        size = tf.shape(x)[axis] if x.shape[axis] is None else x.shape[axis]
        sizes = [tf.shape(x)[a] if s is None else s for a, s in enumerate(x.shape.as_list())]
        x = tf.expand_dims(x, axis + 1)
        x = tf.pad(x, [[0, dilation - 1 if a == axis + 1 else 0] for a in range(x.shape.rank)])
        x = tf.reshape(x, [*sizes[:axis], size * dilation, *sizes[axis + 1 :]])
        x = tf.gather(x, tf.range(size * dilation - dilation + 1), axis=axis)
    return x
