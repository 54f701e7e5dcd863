"""Copies runs of rows between tensors, as batches of sequences are packed and unpacked."""

import contextlib
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ops.argument_checks import (
    check_flag,
    check_integer,
    check_integers,
    check_tensor,
)
from ipu_keras.ops.sequence_rows import copied_rows
from ipu_keras.settings.arguments import MOST, noted


def sequence_slice(
    dst: Any, src: Any, num_elems: Any, src_offsets: Any, dst_offsets: Any, zero_unused: bool
) -> tf.Tensor:
    """Copies runs of rows of one tensor to places in another.

    Slice `i` copies the rows `src_offsets[i]`, `src_offsets[i] + 1`, ... of `src`,
    `num_elems[i]` of them, to the rows of `dst` from `dst_offsets[i]` on. Where slices
    overlap in `dst`, the last one counts. Of a slice that reaches over an end of either tensor,
    the rows that are in both are copied.

    Both tensors have gradients; a row of `src` that was copied several times gets the sum.

    Args:
        dst: The tensor to copy to, of the shape `(rows, ...)`, at least of rank 2. It is not
            changed itself.
        src: The tensor to copy from. It may have another number of rows.
        num_elems: How many rows each slice has: a list or a tensor of int32, with an entry for
            each slice. Its values need not be known before the program runs.
        src_offsets: The first row of each slice in `src`, likewise.
        dst_offsets: The first row of each slice in `dst`, likewise.
        zero_unused: Whether rows of `dst` that no slice covers become zeros.

    Returns:
        A tensor of the shape of `dst`.

    Raises:
        TypeError: `zero_unused` is not a boolean, or an offset not an integer.
        ValueError: The shapes do not fit together.

    Example:

    >>> src = [[0.0], [1.0], [2.0], [3.0]]
    >>> copied = sequence_slice(tf.zeros((5, 1)), src, [2, 1], [2, 1], [0, 4], False)
    >>> print(copied.numpy().ravel())
    [2. 3. 0. 0. 1.]
    """
    dst, src = _tensors(dst, src)
    num_elems, src_offsets, dst_offsets = _slices(
        num_elems=num_elems, src_offsets=src_offsets, dst_offsets=dst_offsets
    )
    zero_unused = check_flag("zero_unused", zero_unused)
    return copied_rows(dst, src, num_elems, src_offsets, dst_offsets, zero_unused=zero_unused)


def sequence_slice_pack(
    dst: Any, src: Any, num_elems: Any, dst_offsets: Any, zero_unused: bool
) -> tf.Tensor:
    """Copies runs of rows that follow each other in one tensor to places in another.

    This is `sequence_slice` where the first slice starts at the first row of `src`, and each
    other one where the one before ends; so it takes back what `sequence_slice_unpack` did.

    Args:
        dst: The tensor to copy to, of the shape `(rows, ...)`, at least of rank 2. It is not
            changed itself.
        src: The tensor to copy from. It may have another number of rows.
        num_elems: How many rows each slice has: a list or a tensor of int32.
        dst_offsets: The first row of each slice in `dst`, likewise.
        zero_unused: Whether rows of `dst` that no slice covers become zeros.

    Returns:
        A tensor of the shape of `dst`.

    Raises:
        TypeError: `zero_unused` is not a boolean, or an offset not an integer.
        ValueError: The shapes do not fit together.

    Example:

    >>> packed = sequence_slice_pack(tf.zeros((4, 1)), [[1.0], [2.0], [3.0]], [1, 2], [3, 0], True)
    >>> print(packed.numpy().ravel())
    [2. 3. 0. 1.]
    """
    dst, src = _tensors(dst, src)
    num_elems, dst_offsets = _slices(num_elems=num_elems, dst_offsets=dst_offsets)
    zero_unused = check_flag("zero_unused", zero_unused)
    starts = tf.cumsum(num_elems, exclusive=True)
    return copied_rows(dst, src, num_elems, starts, dst_offsets, zero_unused=zero_unused)


def sequence_slice_unpack(
    src: Any, num_elems: Any, src_offsets: Any, total_elements: int
) -> tf.Tensor:
    """Copies runs of rows of a tensor one after the other into a new one.

    This is `sequence_slice` where the first slice is put at the first row, and each other one
    after the one before.

    Args:
        src: The tensor to copy from, of the shape `(rows, ...)`, at least of rank 2.
        num_elems: How many rows each slice has: a list or a tensor of int32.
        src_offsets: The first row of each slice in `src`, likewise.
        total_elements: The rows of the result. If the slices have fewer, zeros follow; if they
            have more, the last rows are left out.

    Returns:
        A tensor of the shape `(total_elements, *src.shape[1:])`.

    Raises:
        TypeError: `total_elements` or an offset is not an integer.
        ValueError: The shapes do not fit together, or `total_elements` is negative.

    Example:

    >>> src = [[0.0], [1.0], [2.0], [3.0]]
    >>> print(sequence_slice_unpack(src, [2, 1], [2, 0], 3).numpy().ravel())
    [2. 3. 0.]
    """
    total_elements = check_integer("total_elements", total_elements, 0, MOST)
    src = check_tensor("src", src)
    _check_rank("src", src)
    num_elems, src_offsets = _slices(num_elems=num_elems, src_offsets=src_offsets)
    dst = tf.zeros((total_elements, *static_sizes(src)[1:]), src.dtype)
    ends = tf.cumsum(num_elems, exclusive=True)
    return copied_rows(dst, src, num_elems, src_offsets, ends, zero_unused=True)


def _tensors(dst: Any, src: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns both as tensors of one type: that of one which is a tensor, or else of `dst`."""
    given = {"dst": dst, "src": src}
    tensors = {argument: check_tensor(argument, value) for argument, value in given.items()}
    for argument, other in (("src", "dst"), ("dst", "src")):
        dtype = tensors[other].dtype
        if tensors[argument].dtype != dtype and not tf.is_tensor(given[argument]):
            # A value that cannot have that type is refused below, like a tensor of another type.
            with contextlib.suppress(TypeError, ValueError):
                tensors[argument] = tf.convert_to_tensor(given[argument], dtype)
    dst, src = tensors.values()
    _check_rank("dst", dst)
    _check_rank("src", src)
    if dst.dtype != src.dtype:
        raise ValueError(
            "`dst` and `src` must be of one type; cast one of them. "
            f"Received: dst of {dst.dtype.name}, src of {src.dtype.name}"
        )
    if not dst.shape[1:].is_compatible_with(src.shape[1:]):
        raise noted(
            ValueError("src and dst inner shapes must match."),
            "All axes have to match but the first one, which counts the rows. Received: shape "
            f"{dst.shape} of `dst`, shape {src.shape} of `src`",
        )
    return dst, src


def _check_rank(argument: str, tensor: tf.Tensor) -> None:
    if (tensor.shape.rank or 0) < 2:
        raise ValueError(
            f"`{argument}` must be of at least rank 2: its first axis counts rows, the others are "
            f"those of a row. Received: shape {tensor.shape} of `{argument}`"
        )


def _slices(**given: Any) -> tuple[tf.Tensor, ...]:
    """Returns what describes the slices, as int32 tensors with an entry for each slice."""
    tensors = {argument: check_integers(argument, value) for argument, value in given.items()}
    shapes = [tensor.shape for tensor in tensors.values()]
    fit = all(shape.is_compatible_with(shapes[0]) for shape in shapes)
    if not fit or any(shape.rank != 1 or shape[0] == 0 for shape in shapes):
        *first, last = given
        received = ", ".join(f"shape {t.shape} of `{argument}`" for argument, t in tensors.items())
        raise noted(
            ValueError(
                f"{', '.join(first)} and {last} must have matching, nonzero shapes of rank 1."
            ),
            f"Give an entry of each for every slice. Received: {received}",
        )
    return tuple(tf.cast(tensor, tf.int32) for tensor in tensors.values())
