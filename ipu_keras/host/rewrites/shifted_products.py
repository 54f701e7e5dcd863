"""Computes convolutions of images with few channels as sums of shifted images times weights.

With one channel and windows of 3 by 3 pixels, each result is a sum of nine products, and a
library spends more time on arranging them than on computing them. XLA makes one loop of the
nine, the bias, the activation and the pooling, so nothing larger than what the pooling returns
reaches memory.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ipu_keras.host.operation_kinds import CONVOLUTION_GRADIENTS
from ipu_keras.host.rewrites.replacement import rebuilt
from ipu_keras.internals.tensorflow.shapes import static_sizes

# The number of products in each result. Measured with 32 images of 28 by 28 pixels, 32 filters,
# bias and relu, on two cores, time of oneDNN by that of these, medians of 7 rounds: 4 (2x2)
# 2.2, 8 1.6, 9 1.6, 12 1.1, 18 1.1, 25 1.1, 27 0.8, 49 0.7. Without oneDNN 9 3.2, 18 2.1. A
# single product is a copy.
_LEAST_PRODUCTS = 2
_MOST_PRODUCTS = 12

# With pooling, which otherwise reads what a convolution has written: 4 3.5, 8 2.3, 9 2.6, 12
# 2.1, 18 1.5, 25 1.8, 27 1.1 (windows of 2 by 2); 9 2.2 (3 by 3), 2.8 (4 by 4). Without oneDNN
# 9 5.6, 25 4.2, 27 2.8. For images of 32 by 32 pixels, whole models with 27 run 1.01 to 1.07
# times as fast, but first compile for 0.6 s more.
_MOST_POOLED_PRODUCTS = 25

# A window of the pooling has the products of all its pixels in one loop, and XLA takes time to
# compile them: 36 0.2 s, 100 0.4 s, 196 0.8 s.
_MOST_IN_A_WINDOW = 150

# The elements of a convolution's result. To call XLA takes 0.05 ms: 32 filters of a single
# image, 21632 elements, take 0.7 to 1.6 of the time by others, and 8 images 1.3 to 2.7.
_LEAST_ELEMENTS = 1 << 16

# Functions that do not decrease, so the largest element of a window may be found before they
# are applied.
_ACTIVATIONS = frozenset({"LeakyRelu", "Relu", "Relu6"})
_SUMS = frozenset({"Add", "AddV2", "BiasAdd"})

_Pair = tuple[int, int]


@dataclass(frozen=True)
class _ConvolutionLayer:
    """A convolution, and what is done to its result and to nothing else.

    Args:
        bias: What is added, `(..., filters)`, or `None`.
        window: Height and width of the pooling, 1 by 1 without one.
    """

    convolution: tf.Operation
    bias: tf.Tensor | None
    activation: tf.Operation | None
    result: tf.Tensor
    window: _Pair


def shifted_convolutions(concrete: Any) -> Any:
    """Makes convolutions of a few products each, with what follows them, programs of XLA.

    Functions that train convolutions are left alone. If two pixels in a window of the pooling
    are almost equal, the order of sums, in which results differ, decides which gets the
    gradient, and weights would soon be others than stock TensorFlow's.
    """
    operations = concrete.graph.get_operations()
    is_trained = any(op.type in CONVOLUTION_GRADIENTS for op in operations)
    if is_trained or not any(map(_is_covered, operations)):
        return concrete
    # What other rewrites have replaced stays in the graph, and would count as a user of
    # results.
    own = rebuilt(concrete)
    layers = [_layer_of(op) for op in own.graph.get_operations() if _is_covered(op)]
    with own.graph.as_default():
        instead = {layer.result.ref(): _computed(layer) for layer in layers if _pays(layer)}
    return rebuilt(own, instead) if instead else concrete


def _is_covered(op: tf.Operation) -> bool:
    return (
        op.type == "Conv2D"
        and op.get_attr("data_format") == b"NHWC"
        and op.outputs[0].dtype == tf.float32
        and all(tensor.shape.is_fully_defined() for tensor in (*op.inputs, *op.outputs))
        and static_sizes(op.inputs[0])[3] == static_sizes(op.inputs[1])[2]
        and _LEAST_PRODUCTS <= _num_products(op) <= _MOST_POOLED_PRODUCTS
        and op.outputs[0].shape.num_elements() >= _LEAST_ELEMENTS
    )


def _pays(layer: _ConvolutionLayer) -> bool:
    num_products, in_window = _num_products(layer.convolution), math.prod(layer.window)
    most = _MOST_POOLED_PRODUCTS if in_window > 1 else _MOST_PRODUCTS
    return num_products <= most and num_products * in_window <= _MOST_IN_A_WINDOW


def _num_products(convolution: tf.Operation) -> int:
    return math.prod(static_sizes(convolution.inputs[1])[:3])


def _layer_of(convolution: tf.Operation) -> _ConvolutionLayer:
    bias = activation = None
    window = 1, 1
    (result,) = convolution.outputs
    op = _only_user(result)
    if op is not None and op.type in _SUMS and (added := _bias_of(op, result)) is not None:
        bias, result = added, op.outputs[0]
        op = _only_user(result)
    if op is not None and op.type in _ACTIVATIONS and _never_decreases(op):
        activation, result = op, op.outputs[0]
        op = _only_user(result)
    if op is not None and op.type == "MaxPool" and _parts_images(op):
        (rows, columns), result = op.get_attr("ksize")[1:3], op.outputs[0]
        window = rows, columns
    return _ConvolutionLayer(convolution, bias, activation, result, window)


def _only_user(tensor: tf.Tensor) -> tf.Operation | None:
    users = tensor.consumers()
    return users[0] if len(users) == 1 else None


def _bias_of(op: tf.Operation, images: tf.Tensor) -> tf.Tensor | None:
    """Returns what an operation adds to images, if it has one number for each channel."""
    others = [tensor for tensor in op.inputs if tensor is not images]
    if len(others) != 1 or (op.type == "BiasAdd" and op.get_attr("data_format") != b"NHWC"):
        return None
    (shape,) = (tensor.shape for tensor in others)
    filters = static_sizes(images)[-1]
    known = shape.is_fully_defined() and 0 < shape.rank <= images.shape.rank
    return others[0] if known and shape[-1] == filters == shape.num_elements() else None


def _never_decreases(activation: tf.Operation) -> bool:
    return activation.type != "LeakyRelu" or activation.get_attr("alpha") >= 0


def _parts_images(pooling: tf.Operation) -> bool:
    """Whether windows lie side by side, and need no padding around the images."""
    sizes, window = pooling.inputs[0].shape, pooling.get_attr("ksize")
    fits = all(size % edge == 0 for size, edge in zip(sizes[1:3], window[1:3], strict=True))
    return (
        pooling.get_attr("data_format") == b"NHWC"
        and window == pooling.get_attr("strides")
        and window[0] == window[3] == 1
        and (pooling.get_attr("padding") == b"VALID" or fits)
    )


def _computed(layer: _ConvolutionLayer) -> tf.Tensor:
    convolution, activation = layer.convolution, layer.activation
    rows, columns = convolution.get_attr("strides")[1:3]
    edges = _edges(convolution)

    def run(images: tf.Tensor, kernel: tf.Tensor, *bias: tf.Tensor) -> tf.Tensor:
        sums = max_of_convolution(
            tf.pad(images, edges) if any(map(any, edges)) else images,
            kernel,
            strides=(rows, columns),
            dilations=tuple(convolution.get_attr("dilations")[1:3]),
            window=layer.window,
            size=static_sizes(layer.result)[1:3],
        )
        for each in bias:
            sums += tf.reshape(each, [-1])
        return sums if activation is None else _activated(activation, sums)

    given = [*convolution.inputs, *([] if layer.bias is None else [layer.bias])]
    return tf.function(run, jit_compile=True, autograph=False)(*given)


def _activated(activation: tf.Operation, x: tf.Tensor) -> tf.Tensor:
    if activation.type == "LeakyRelu":
        return tf.nn.leaky_relu(x, activation.get_attr("alpha"))
    return tf.nn.relu(x) if activation.type == "Relu" else tf.nn.relu6(x)


def _edges(convolution: tf.Operation) -> list[list[int]]:
    """Returns how many zeros to put before and behind the images along each axis."""
    padding = convolution.get_attr("padding")
    if padding == b"EXPLICIT":
        flat = convolution.get_attr("explicit_paddings")
        return [list(pair) for pair in zip(flat[::2], flat[1::2], strict=True)]
    edges = [[0, 0] for _ in range(4)]
    if padding == b"SAME":
        images, kernel = convolution.inputs
        (result,) = convolution.outputs
        strides, dilations = convolution.get_attr("strides"), convolution.get_attr("dilations")
        for axis in (1, 2):
            read = (static_sizes(kernel)[axis - 1] - 1) * dilations[axis] + 1
            end = (static_sizes(result)[axis] - 1) * strides[axis] + read
            missing = max(end - static_sizes(images)[axis], 0)
            edges[axis] = [missing // 2, missing - missing // 2]
    return edges


def max_of_convolution(
    images: tf.Tensor,
    kernel: tf.Tensor,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    window: Sequence[int],
    size: Sequence[int],
) -> tf.Tensor:
    """Returns the largest results of a convolution in windows that lie side by side.

    Args:
        images: Images `(batch, height, width, channels)`, with padding already added.
        kernel: Weights `(rows, columns, channels, filters)`.
        window: How many results are in a window along height and width.
        size: How many windows there are along height and width.
    """
    steps = [stride * edge for stride, edge in zip(strides, window, strict=True)]
    found = None
    for place in itertools.product(*map(range, window)):
        total = None
        for *tap, channel in itertools.product(*map(range, static_sizes(kernel)[:3])):
            corner = [
                stride * at + dilation * shift
                for stride, at, dilation, shift in zip(strides, place, dilations, tap, strict=True)
            ]
            rows, columns = (
                slice(start, start + (count - 1) * step + 1, step)
                for start, count, step in zip(corner, size, steps, strict=True)
            )
            pixels = images[:, rows, columns, channel : channel + 1]
            product = pixels * kernel[(*tap, channel)]
            total = product if total is None else total + product
        found = total if found is None else tf.maximum(found, total)
    return found
