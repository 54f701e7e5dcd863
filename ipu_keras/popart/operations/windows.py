"""Computes where the windows of convolutions and poolings lie, from pads, strides and dilations.

Images have channels last here: `(batch, ..., channels)`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception

_SAME = ("SAME_UPPER", "SAME_LOWER")
_MOST = 2**31 - 1
_AUTO_PADS = ("NOTSET", "VALID", *_SAME)


@dataclass(frozen=True)
class Windows:
    """The windows in which a kernel sees images; all fields have a number for each spatial axis.

    `begins` and `ends` are the pads before and behind the images.
    """

    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def pads(self) -> list[tuple[int, int]]:
        """The pads before and behind each axis."""
        return list(zip(self.begins, self.ends, strict=True))

    @property
    def extents(self) -> list[int]:
        """The number of elements that a dilated window spans along each axis."""
        return [
            (size - 1) * dilation + 1
            for size, dilation in zip(self.kernel, self.dilations, strict=True)
        ]

    @property
    def counts(self) -> list[int]:
        """The number of windows along each axis."""
        return [
            (size + begin + end - extent) // stride + 1
            for size, begin, end, extent, stride in zip(
                self.sizes, self.begins, self.ends, self.extents, self.strides, strict=True
            )
        ]

    @property
    def are_padded(self) -> bool:
        """Whether any window may reach outside of the images."""
        return any(pad > 0 for pad in self.begins + self.ends)

    @property
    def see_pads_alone(self) -> bool:
        """Whether any window may see nothing of the images."""
        extents = self.extents * 2
        pads = self.begins + self.ends
        return any(pad >= extent for pad, extent in zip(pads, extents, strict=True))


def windows_of(
    images: tf.Tensor,
    kernel: Sequence[int],
    *,
    auto_pad: str,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None = None,
    ceil_mode: bool = False,
    begins_within: bool = False,
) -> Windows:
    """Returns the windows of images that ONNX's attributes describe.

    Args:
        pads: The pads before all axes, then those behind all; `None` means none.
        ceil_mode: Whether a last window counts that lies only partly in the padded images.
        begins_within: Whether a window that `ceil_mode` adds has to start before the pads behind
            the images.
    """
    rank = len(kernel)
    sizes = spatial_sizes(images, rank)
    strides = checked(strides, "strides", rank, 1)
    dilations = checked(dilations, "dilations", rank, 1)
    extents = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    given = checked(pads, "pads", 2 * rank, 0, least=0)
    if auto_pad not in _AUTO_PADS:
        raise popart_exception(
            f"`auto_pad` must be one of {', '.join(_AUTO_PADS)}. Received: {auto_pad!r}"
        )
    if auto_pad in _SAME:
        totals = [
            max((math.ceil(size / stride) - 1) * stride + extent - size, 0)
            for size, stride, extent in zip(sizes, strides, extents, strict=True)
        ]
        begins, ends = halves(totals, more_behind=auto_pad == "SAME_UPPER")
    elif auto_pad == "VALID":
        begins, ends = (0,) * rank, (0,) * rank
    else:
        begins, ends = given[:rank], given[rank:]
    if ceil_mode:
        lacks = [
            -(size + begin + end - extent) % stride
            for size, begin, end, extent, stride in zip(
                sizes, begins, ends, extents, strides, strict=True
            )
        ]
        if begins_within:
            starts = [
                size + begin + end + lack - extent
                for size, begin, end, lack, extent in zip(
                    sizes, begins, ends, lacks, extents, strict=True
                )
            ]
            lacks = [
                lack if start < size + begin else 0
                for lack, start, size, begin in zip(lacks, starts, sizes, begins, strict=True)
            ]
        ends = tuple(end + lack for end, lack in zip(ends, lacks, strict=True))
    windows = Windows(sizes, tuple(kernel), strides, dilations, begins, ends)
    if min(windows.counts) < 1:
        raise popart_exception(
            f"The kernel must not be larger than the padded images. Received: images of sizes "
            f"{list(sizes)}, kernel={list(kernel)}, dilations={list(dilations)}, "
            f"pads={[*begins, *ends]}. Pad more, or dilate less."
        )
    if math.prod(windows.counts) > _MOST:
        raise popart_exception(
            f"There must be at most {_MOST} windows. Received: {math.prod(windows.counts)}, of "
            f"images of sizes {list(sizes)} with pads={[*begins, *ends]}. Pad less."
        )
    return windows


def halves(totals: Sequence[int], *, more_behind: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Splits pads in halves; the larger half goes behind if `more_behind`, else before."""
    small = tuple(total // 2 for total in totals)
    large = tuple(total - half for total, half in zip(totals, small, strict=True))
    return (small, large) if more_behind else (large, small)


def checked(
    values: Sequence[int] | None, name: str, count: int, default: int, least: int = 1
) -> tuple[int, ...]:
    """Returns an attribute that must have `count` values; `None` or no values mean `default`."""
    if values is None or not len(values):
        return (default,) * count
    # TensorFlow ends the process if values do not fit 32 bits.
    if len(values) != count or min(values) < least or max(values) > _MOST:
        raise popart_exception(
            f"`{name}` must be {count} integers of at least {least}, and at most {_MOST}. "
            f"Received: {list(values)}"
        )
    return tuple(int(value) for value in values)


def spatial_sizes(images: tf.Tensor, rank: int) -> tuple[int, ...]:
    """Returns the spatial sizes of images, of which there have to be `rank`, all of them known."""
    sizes = images.shape.as_list()[1:-1]
    if len(sizes) != rank or not rank:
        raise popart_exception(
            f"Its kernel has {rank} axes, so its input must have {rank + 2}: batch, channels and "
            f"those. Received: an input of {len(images.shape)} axes"
        )
    if None in sizes:
        raise popart_exception(
            "The sizes of images must be known before anything runs, as programs of IPUs are "
            f"static. Received: {sizes}. Give the model's input a shape."
        )
    return tuple(sizes)
