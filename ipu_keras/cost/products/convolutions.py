"""Describes convolutions and matrix products as values."""

import math
from dataclasses import dataclass
from typing import Any

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

    def __post_init__(self) -> None:
        for name in ("strides", "input_dilations", "kernel_dilations"):
            # Written out, so that equal convolutions compare and hash equal.
            object.__setattr__(self, name, tuple(getattr(self, name)) or (1,) * len(self.field))
        self._check_sizes()
        self._check_types()

    def _check_sizes(self) -> None:
        shapes = [self.field, self.kernel, self.strides, self.input_dilations]
        shapes.append(self.kernel_dilations)
        if not self.field or len({len(shape) for shape in shapes}) > 1:
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
        """Multiplications and additions, without those by the dilation's zeros."""
        inner = math.prod(self.kernel) * self.in_channels // self.groups
        positions = self.batch * math.prod(self.field)
        return 2 * positions * inner * self.out_channels // math.prod(self.input_dilations)

    @property
    def input_field(self) -> tuple[int, ...]:
        """Input positions that the result depends on, by dimension, padding included."""
        return tuple(int(self.input_extent(i, size)) for i, size in enumerate(self.field))

    def input_extent(self, dimension: int, size: Count) -> Count:
        """Returns the input positions that `size` neighbouring output positions depend on."""
        reach = (self.kernel[dimension] - 1) * self.kernel_dilations[dimension] + 1
        span = (size - 1) * self.strides[dimension] + reach
        # Of dilated inputs, the positions between elements hold zeros, which nobody sends.
        return ceil_divide(span, self.input_dilations[dimension])


def matmul(
    batch: int, rows: int, inner: int, columns: int, dtype: str, partials_dtype: str = "float32"
) -> Convolution:
    """Returns a product of (rows, inner) and (inner, columns) as a convolution.

    Example:

    >>> matmul(8, 2, 3, 4, "float32").flops
    384
    """
    # One-element kernels multiply rows, which are a field; products of a batch are groups.
    channels = (batch * inner, batch * columns)
    return Convolution(1, (rows,), (1,), *channels, batch, (), dtype, partials_dtype)
