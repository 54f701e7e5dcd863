"""Describes convolutions and matrix products as values."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipu_keras.ir.windows import pairs_met

# A count, or an array of counts: the arithmetic is the same.
Count = Any

_ELEMENT_BYTES = {"float16": 2, "float32": 4}


def element_bytes(dtype: str) -> int:
    if dtype not in _ELEMENT_BYTES:
        raise ValueError(
            f"A vertex of a convolution computes in one of {', '.join(_ELEMENT_BYTES)}: cast "
            f"other types first. Received: dtype={dtype!r}"
        )
    return _ELEMENT_BYTES[dtype]


def ceil_divide(count: Count, divisor: Count) -> Count:
    """Returns how many parts of at most `divisor` make up `count`."""
    # Python rounds down: the negative of what is rounded down is rounded up, and arrays do so
    # too.
    return -(-count // divisor)


@dataclass(frozen=True)
class Convolution:
    """The shape of a convolution, of its gradients or of a matrix product.

    Args:
        field: Output positions by dimension, with at least one dimension.
        in_channels: Input channels of all groups, as `out_channels` are of all.
        groups: Convolutions that share neither channels nor weights.
        strides: Input positions between output positions, by dimension; ones if empty.
        partials_dtype: Type of the sums: `"float32"`, or `"float16"` if `dtype` is.
        input_dilations: Positions between input elements, as in the data gradient of a strided
            convolution; ones if empty.
        kernel_dilations: Positions between the kernel's elements, as in the weight gradient of a
            strided convolution; ones if empty.
        padding: Positions of zeros before and after the input, by dimension, among those that the
            result depends on; none if empty.

    Example: A product of matrices (2, 3) and (3, 4).

    >>> Convolution(1, (2,), (1,), 3, 4).flops
    48
    """

    batch: int
    field: tuple[int, ...]
    kernel: tuple[int, ...]
    in_channels: int
    out_channels: int
    groups: int = 1
    strides: tuple[int, ...] = ()
    dtype: str = "float16"
    partials_dtype: str = "float32"
    input_dilations: tuple[int, ...] = ()
    kernel_dilations: tuple[int, ...] = ()
    padding: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        for name in ("strides", "input_dilations", "kernel_dilations"):
            # Written out, so that equal convolutions compare and hash equal.
            object.__setattr__(self, name, tuple(getattr(self, name)) or (1,) * len(self.field))
        object.__setattr__(self, "padding", tuple(self.padding) or ((0, 0),) * len(self.field))
        self._check_sizes()
        self._check_types()

    def _check_sizes(self) -> None:
        shapes = [self.field, self.kernel, self.strides, self.input_dilations]
        shapes.append(self.kernel_dilations)
        if not self.field or len({len(shape) for shape in (*shapes, self.padding)}) > 1:
            raise ValueError(
                "`field`, `kernel`, `strides` and dilations need one number for each of the same "
                f"dimensions. Received: {', '.join(str(shape) for shape in shapes)}"
            )
        counts = (self.batch, self.in_channels, self.out_channels, self.groups, *sum(shapes, ()))
        if min(counts) < 1:
            raise ValueError(f"All sizes of a convolution are at least 1. Received: {self}")
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise ValueError(
                "`groups` must divide `in_channels` and `out_channels`. Received: "
                f"groups={self.groups}, in_channels={self.in_channels}, "
                f"out_channels={self.out_channels}"
            )

    def _check_types(self) -> None:
        wide = element_bytes(self.partials_dtype)
        if element_bytes(self.dtype) > wide:
            raise ValueError(
                "`partials_dtype` must be at least as wide as `dtype`. Received: "
                f"dtype={self.dtype!r}, partials_dtype={self.partials_dtype!r}"
            )

    @property
    def flops(self) -> int:
        """Multiplications and additions, without those by zeros of dilation and padding."""
        pairs = self.batch * math.prod(self.field) * math.prod(self.kernel)
        channels = self.in_channels // self.groups * self.out_channels
        met = math.prod(float(self.met_share(i, size)) for i, size in enumerate(self.field))
        return math.ceil(2 * pairs * channels * met / math.prod(self.input_dilations))

    @property
    def kernel_rows(self) -> int:
        """Rows of the kernel; one of one dimension is a row."""
        return self.kernel[0] if len(self.kernel) > 1 else 1

    @property
    def input_field(self) -> tuple[int, ...]:
        """Input positions that the result depends on, by dimension, padding left out."""
        return tuple(int(self.input_extent(i, size)) for i, size in enumerate(self.field))

    def input_extent(self, dimension: int, size: Count) -> Count:
        """Returns the most input positions that `size` neighbouring output positions depend on."""
        span = np.minimum(self._span(dimension, size), self._input_span(dimension))
        # Of dilated inputs, the positions between elements hold zeros, which nobody sends.
        return ceil_divide(span, self.input_dilations[dimension])

    def met_share(self, dimension: int, size: Count) -> Count:
        """Returns the share of work that is left where `size` neighbouring outputs meet padding.

        Of the parts of so many outputs, it is that with the most work: pairs of an output and an
        element of the kernel that meet an input, of those without padding.
        """
        if self.padding[dimension] == (0, 0):
            return np.ones_like(size, float)
        met = pairs_met(
            self.field[dimension],
            self.kernel[dimension],
            self.strides[dimension],
            self.kernel_dilations[dimension],
            self.input_dilations[dimension],
            self.padding[dimension][0],
            self._input_span(dimension),
        )
        sizes, index = np.unique(size, return_inverse=True)
        most = np.array([np.add.reduceat(met, np.arange(0, len(met), n)).max() for n in sizes])
        whole = sizes * self.kernel[dimension] / self.input_dilations[dimension]
        return np.minimum(most / whole, 1)[index].reshape(np.shape(size))

    def _span(self, dimension: int, size: Count) -> Count:
        """Returns the positions that so many outputs reach, of the dilated and padded input."""
        reach = (self.kernel[dimension] - 1) * self.kernel_dilations[dimension] + 1
        return (size - 1) * self.strides[dimension] + reach

    def _input_span(self, dimension: int) -> int:
        """Returns the positions of the dilated input, from its first element to its last."""
        return max(self._span(dimension, self.field[dimension]) - sum(self.padding[dimension]), 1)


def matmul(
    batch: int, rows: int, inner: int, columns: int, dtype: str, partials_dtype: str = "float32"
) -> Convolution:
    """Returns a product of (rows, inner) and (inner, columns) as a convolution.

    Example:

    >>> matmul(8, 2, 3, 4, "float32").flops
    384
    """
    # One-element kernels multiply; products of a batch are groups. As in poplibs, columns are a
    # field, and rows the output channels.
    channels = (batch * inner, batch * rows)
    return Convolution(1, (columns,), (1,), *channels, batch, (), dtype, partials_dtype)
