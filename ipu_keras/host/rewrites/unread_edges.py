"""Leaves out rows and columns of images that no window of pooling reads.

Windows of 2 by 2 pixels leave out the last row and column of 11 by 11 pixels. A convolution
before them has computed a sixth of its pixels for nothing then, as may have what is before
that.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import tensorflow as tf

from ipu_keras.host.operation_kinds import ELEMENTWISE
from ipu_keras.host.rewrites.replacement import replaced
from ipu_keras.internals.tensorflow.contexts import may_record
from ipu_keras.internals.tensorflow.parallel_for import create_operation
from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.tracing.as_written import Replaced

_POOLING = frozenset({"AvgPool", "MaxPool"})
_WINDOWS = _POOLING | {"Conv2D"}

# How many multiplications take as long as copying one element of the first images, which have
# to be cut: a core multiplies some 50 elements in a nanosecond, and copies 2 to 3.
_LEAST_SAVED = 32


@dataclass(frozen=True)
class _Cut:
    """Images of which the first rows and columns, so many as `size`, are enough."""

    tensor: tf.Tensor
    size: tuple[int, int]


def unread_edges() -> contextlib.AbstractContextManager[list[Replaced]]:
    """While this is open, images are cut so that all their pixels reach a window of the pooling.

    They stay if their gradients may be asked for. If something else takes a result between the
    images and the pooling, that is computed as well, with its edges.
    """
    return replaced(_POOLING, _without_edges)


def _without_edges(inputs, output: tf.Tensor) -> tf.Tensor | None:
    if not _is_known(output.op):
        return None
    read = _read(output.op, static_sizes(output)[1:3])
    if read == static_sizes(inputs[0])[1:3] or may_record():
        return None
    *between, start = _cuts(_Cut(inputs[0], read))
    channels = static_sizes(start.tensor)[3]
    copied = 0 if _is_whole(start) else start.size[0] * start.size[1] * channels
    if sum(map(_saved, between)) <= _LEAST_SAVED * copied:
        return None
    rows, columns = start.size
    images = start.tensor if _is_whole(start) else start.tensor[:, :rows, :columns]
    before = start.tensor
    for cut in reversed(between):
        images, before = _same(cut.tensor.op, before, images), cut.tensor
    return _same(output.op, inputs[0], images)


def _cuts(cut: _Cut) -> Iterator[_Cut]:
    """Yields results, each computed from the next, up to one that is not computed anew."""
    yield cut
    while not _is_whole(cut):
        op = cut.tensor.op
        if op.type in _WINDOWS and _is_known(op):
            cut = _Cut(op.inputs[0], _read(op, cut.size))
        elif op.type in ELEMENTWISE and (images := _images(op)) is not None:
            cut = _Cut(images, cut.size)
        else:
            return
        yield cut


def _images(op: tf.Operation) -> tf.Tensor | None:
    """Returns the only operand that has a value for each pixel, if there is exactly one."""
    if any(each.shape.rank is None for each in op.inputs):
        return None
    found = [each for each in op.inputs if any(size != 1 for size in static_sizes(each)[-3:-1])]
    is_one = len(found) == 1 and found[0].shape == op.outputs[0].shape
    return found[0] if is_one else None


def _is_known(op: tf.Operation) -> bool:
    """Whether an operation reads nothing outside of its images, whose sizes are known."""
    return (
        op.get_attr("data_format") == b"NHWC"
        and op.get_attr("padding") == b"VALID"
        and all(tensor.shape.is_fully_defined() for tensor in (*op.inputs, *op.outputs))
    )


def _read(op: tf.Operation, size: tuple[int, ...]) -> tuple[int, int]:
    """Returns the rows and columns that an operation reads for so many of its result."""
    if op.type == "Conv2D":
        window, dilations = static_sizes(op.inputs[1])[:2], op.get_attr("dilations")[1:3]
    else:
        window, dilations = op.get_attr("ksize")[1:3], (1, 1)
    strides = op.get_attr("strides")[1:3]
    rows, columns = (
        (count - 1) * stride + (edge - 1) * dilation + 1
        for count, stride, edge, dilation in zip(size, strides, window, dilations, strict=True)
    )
    return rows, columns


def _is_whole(cut: _Cut) -> bool:
    return cut.size == static_sizes(cut.tensor)[1:3]


def _saved(cut: _Cut) -> int:
    """Returns the multiplications that are spared for each of the images."""
    op = cut.tensor.op
    if op.type != "Conv2D":
        return 0
    _, height, width, _ = static_sizes(cut.tensor)
    return (height * width - cut.size[0] * cut.size[1]) * op.inputs[1].shape.num_elements()


def _same(op: tf.Operation, before: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
    given = [images if tensor is before else tensor for tensor in op.inputs]
    return create_operation(op.type, given, [op.outputs[0].dtype], op.node_def.attr).outputs[0]
