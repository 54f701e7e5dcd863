"""Convolutions as values, and the cycles of one tile in the vertices that compute them.

The closed forms are those of poplibs' cycle estimators. A worker gets every
`num_workers`-th cycle, so a vertex costs its supervisor's cycles and
`num_workers` times those of its slowest worker. What is around a vertex (launch,
sync, exchange) is the planner's.

Counts are integers or NumPy arrays of integers that broadcast; results have the
broadcast shape, which lets the planner cost all its candidates at once.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipu_keras.target import Target

# A count, or an array of counts: the arithmetic is the same.
Count = Any

# Of one unit's weight registers: 16 of float16 or 8 of float32 (poplibs,
# Target::getWeightsPerConvUnit).
WEIGHT_BYTES_PER_UNIT = 32
# Neighbouring elements of the kernel, and channels, that one SLIC instruction takes
# (poplibs, ConvPartial1x4SLIC).
SLIC_KERNEL_WIDTH = 4
SLIC_CHANNELS = 4

_ELEMENT_BYTES = {"float16": 2, "float32": 4}


def element_bytes(dtype: str) -> int:
    """Bytes of an element that the matrix unit can multiply.

    Args:
        dtype: `"float16"` or `"float32"`.

    Raises:
        ValueError: The matrix unit has no such type.
    """
    if dtype not in _ELEMENT_BYTES:
        raise ValueError(
            f"A vertex of a convolution computes in one of {', '.join(_ELEMENT_BYTES)}: cast "
            f"other types first. Received: dtype={dtype!r}"
        )
    return _ELEMENT_BYTES[dtype]


def channels_per_unit(dtype: str) -> int:
    """Input channels that the matrix unit takes at once: its weights per unit.

    Args:
        dtype: `"float16"` or `"float32"`.
    """
    return WEIGHT_BYTES_PER_UNIT // element_bytes(dtype)


def ceil_divide(count: Count, divisor: Count) -> Count:
    """How many parts of at most `divisor` make up `count`."""
    return -(-count // divisor)


@dataclass(frozen=True)
class Convolution:
    """The shape of a convolution, of its gradients or of a matrix product.

    Args:
        batch: Number of samples.
        field: Output positions by dimension; one dimension at least.
        kernel: Elements of the kernel by dimension.
        in_channels: Input channels of all groups.
        out_channels: Output channels of all groups.
        groups: Convolutions that share neither channels nor weights.
        strides: Input positions between output positions, by dimension; ones if
            empty.
        dtype: Of inputs, weights and result: `"float16"` or `"float32"`.
        partials_dtype: Of the sums: `"float32"`, or `"float16"` if `dtype` is.
        input_dilations: Positions between input elements, as in the data gradient
            of a strided convolution; ones if empty.
        kernel_dilations: Positions between the kernel's elements, as in the weight
            gradient of a strided convolution; ones if empty.

    Raises:
        ValueError: Sizes or types do not go together.

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
        """Input positions that `size` neighbouring output positions depend on."""
        reach = (self.kernel[dimension] - 1) * self.kernel_dilations[dimension] + 1
        span = (size - 1) * self.strides[dimension] + reach
        return ceil_divide(span, self.input_dilations[dimension])


def matmul(
    batch: int, rows: int, inner: int, columns: int, dtype: str, partials_dtype: str = "float32"
) -> Convolution:
    """A matrix product as a convolution of one-element kernels.

    Args:
        batch: Products that share nothing.
        rows: Rows of the left matrix.
        inner: Columns of the left and rows of the right matrix.
        columns: Columns of the right matrix.
        dtype: Of the matrices.
        partials_dtype: Of the sums.

    Example:

    >>> matmul(8, 2, 3, 4, "float32").flops
    384
    """
    channels = (batch * inner, batch * columns)
    return Convolution(1, (rows,), (1,), *channels, batch, (), dtype, partials_dtype)


def data_gradient(convolution: Convolution) -> Convolution:
    """The convolution that computes the gradient of another one's input.

    A stride becomes the dilation of the incoming gradient, so the operations that
    count are as many as forward.

    Args:
        convolution: The one that is differentiated, "same"-padded.
    """
    sizes = zip(convolution.field, convolution.strides, convolution.input_dilations, strict=True)
    return dataclasses.replace(
        convolution,
        field=tuple(ceil_divide(size * stride, dilation) for size, stride, dilation in sizes),
        in_channels=convolution.out_channels,
        out_channels=convolution.in_channels,
        strides=convolution.input_dilations,
        input_dilations=convolution.strides,
    )


def weight_gradient(convolution: Convolution) -> Convolution:
    """The convolution that computes the gradient of another one's weights.

    Its kernel is the field of the other, its input channels are the samples.

    Args:
        convolution: The one that is differentiated.
    """
    if math.prod(convolution.input_dilations) > 1:
        # The same products, with the gradient of the output in the input's place.
        return weight_gradient(data_gradient(convolution))
    return dataclasses.replace(
        convolution,
        batch=convolution.in_channels // convolution.groups,
        field=convolution.kernel,
        kernel=convolution.field,
        in_channels=convolution.batch * convolution.groups,
        strides=convolution.kernel_dilations,
        kernel_dilations=convolution.strides,
    )


def row_cycles(target: Target, *, dtype: str, partials_dtype: str) -> int:
    """Cycles in which the matrix unit takes one position of the field.

    It follows from the peak rate. For float16 that is the 4 of poplibs' estimators;
    for float32 they have 8, which gives the peak only with twice the units that
    `Target.conv_units` has.

    Args:
        target: The hardware.
        dtype: Of inputs and weights.
        partials_dtype: Of the sums.

    Example:

    >>> from ipu_keras.target import TARGETS
    >>> row_cycles(TARGETS["bow"], dtype="float16", partials_dtype="float16")
    4
    """
    units = target.conv_units[dtype, partials_dtype]
    flops = 2 * units * channels_per_unit(dtype)
    return flops // target.amp_flops[dtype, partials_dtype]


def _weight_load_cycles(target: Target, dtype: str, partials_dtype: str) -> int:
    units = target.conv_units[dtype, partials_dtype]
    return units * WEIGHT_BYTES_PER_UNIT // target.weight_load_bytes


def _amp_1x1_worker(dtype: str, row: int, num_elements: Count, is_first: bool) -> Count:
    """Cycles of one worker; with float32, zeroing is a pass of its own over the elements."""
    if dtype == "float16":
        short = (20 + (1 if is_first else 2), 31, 40)
        long = (37 if is_first else 38) + row * (num_elements - 3)
    else:
        short = (24, 47, 46)
        long = 22 + row * num_elements + (2 + num_elements if is_first else 0)
    retained = 7
    conditions = [num_elements == 0, num_elements == 1, num_elements == 2]
    return np.select(conditions, short, long) - retained


def amp_1x1(
    target: Target,
    *,
    dtype: str,
    partials_dtype: str,
    field_elements: Count,
    in_groups: Count,
    out_groups: Count,
    conv_groups: Count = 1,
) -> Count:
    """A convolution with kernels of one element, or a matrix product, in the matrix unit.

    Source: poplibs, poplin PerformanceEstimation, ConvPartial1x1Out. Its estimate
    of 16 bytes of weights per cycle is the target's `weight_load_bytes` here.

    Args:
        target: The hardware.
        dtype: Of inputs and weights.
        partials_dtype: Of the sums.
        field_elements: Output positions of this tile.
        in_groups: Groups of `channels_per_unit` input channels, at least 1.
        out_groups: Groups of `target.conv_units` output channels.
        conv_groups: Convolutions that share nothing.

    Returns:
        Cycles of the tile.

    Example:

    >>> from ipu_keras.target import TARGETS
    >>> int(amp_1x1(TARGETS["bow"], dtype="float16", partials_dtype="float16",
    ...             field_elements=2048, in_groups=1, out_groups=1))
    8521
    """
    workers = target.num_workers
    row = row_cycles(target, dtype=dtype, partials_dtype=partials_dtype)
    load = _weight_load_cycles(target, dtype, partials_dtype)
    slowest, fastest = ceil_divide(field_elements, workers), field_elements // workers

    def passes(is_first: bool) -> Count:
        most = _amp_1x1_worker(dtype, row, slowest, is_first)
        least = _amp_1x1_worker(dtype, row, fastest, is_first)
        return np.maximum(workers * most, workers * least + 14)

    start = 50 + workers * (7 + 3 * (in_groups * conv_groups - 1))
    first = 12 + 11 + out_groups * (19 + 7 + load + passes(True))
    others = (in_groups - 1) * (16 + out_groups * (19 + 6 + load + passes(False)))
    return start + conv_groups * (first + others)


def row_segments(num_elements: Count, row_elements: Count) -> Count:
    """Rows that the worst contiguous run of positions touches.

    Args:
        num_elements: Positions of one worker.
        row_elements: Positions in a row of the tile's field.

    Example: Of rows of four, six positions touch three (1 + 4 + 1); eight positions
    start where a row does and touch two.

    >>> int(row_segments(6, 4)), int(row_segments(8, 4))
    (3, 2)
    """
    aligned = (num_elements % row_elements == 0) | (row_elements % np.maximum(num_elements, 1) == 0)
    straddling = (np.maximum(num_elements, 2) - 2) // row_elements + 2
    return np.where(aligned, ceil_divide(num_elements, row_elements), straddling)


def _amp_nx1_worker(dtype: str, row: int, num_elements: Count, segments: Count) -> Count:
    """Cycles of one worker for one element of the kernel."""
    is_half = dtype == "float16"
    call = 18 if is_half else 17
    fixed = 34 - 3 * 4 if is_half else 45 - 3 * 8
    # The pipeline of the loop over positions takes three of them to fill.
    unfilled = np.where(num_elements < 3 * segments, 3, 0)
    return call + segments * (3 + fixed - 9 + unfilled) + row * num_elements


def amp_nx1(
    target: Target,
    *,
    dtype: str,
    partials_dtype: str,
    field_elements: Count,
    row_elements: Count,
    kernel_rows: Count,
    kernel_columns: Count,
    in_groups: Count,
    out_groups: Count,
    conv_groups: Count = 1,
    kernel_height: int = 1,
    dilation: int = 1,
) -> Count:
    """A convolution in the matrix unit: weights are loaded for each element of the kernel.

    Source: poplibs, poplin PerformanceEstimation, ConvPartialnx1. Each row of the
    field costs a start of its own, so wide tiles are faster than square ones.

    Args:
        target: The hardware.
        dtype: Of inputs and weights.
        partials_dtype: Of the sums.
        field_elements: Output positions of this tile.
        row_elements: Output positions in a row.
        kernel_rows: Rows of the kernel, outer dimensions included.
        kernel_columns: Columns of the kernel.
        in_groups: Groups of input channels: `channels_per_unit / kernel_height` each.
        out_groups: Groups of `target.conv_units` output channels.
        conv_groups: Convolutions that share nothing.
        kernel_height: Rows of the kernel whose weights are loaded together: 1, 2 or 4.
        dilation: Of the input, over all dimensions: one position in as many meets
            a given element of the kernel.

    Returns:
        Cycles of the tile.

    Raises:
        ValueError: The vertex cannot load so many rows together.
    """
    pointers = {1: 15, 2: 46, 4: 60}
    if kernel_height not in pointers:
        raise ValueError(
            "The AMP vertex loads 1, 2 or 4 rows of a kernel together. "
            f"Received: kernel_height={kernel_height}"
        )
    workers = target.num_workers
    row = row_cycles(target, dtype=dtype, partials_dtype=partials_dtype)
    load = _weight_load_cycles(target, dtype, partials_dtype)
    met = ceil_divide(field_elements, dilation)
    elements = ceil_divide(met, workers)
    segments = row_segments(elements, row_elements)
    outer = ceil_divide(kernel_rows, kernel_height)
    loads = outer * (14 + kernel_columns * (12 + load + pointers[kernel_height] + 3))
    rows = outer * kernel_columns * workers * _amp_nx1_worker(dtype, row, elements, segments)
    units = target.conv_units[dtype, partials_dtype]
    zeros = field_elements * units * out_groups * conv_groups
    start = 109 + 54 + 10 * workers + zero(target, dtype=partials_dtype, num_elements=zeros)
    groups = 16 + in_groups * (14 + out_groups * (14 + loads + rows))
    return start + conv_groups * groups


def horizontal_mac(
    target: Target,
    *,
    dtype: str,
    field_elements: Count,
    kernel_elements: Count,
    in_channels: Count,
    out_channels: Count,
    conv_groups: Count = 1,
) -> Count:
    """A convolution by dot products over input channels, without the matrix unit.

    Source: poplibs, poplin PerformanceEstimation, ConvPartialHorizontalMac and
    getDenseDotProductCycles: a vector of the data path per cycle, less if channels
    are no multiple of it.

    Args:
        target: The hardware.
        dtype: Of inputs and weights.
        field_elements: Output positions of this tile.
        kernel_elements: Elements of the kernel.
        in_channels: Of each group.
        out_channels: Of each group.
        conv_groups: Convolutions that share nothing.

    Returns:
        Cycles of the tile.
    """
    is_half = dtype == "float16"
    # Rows of channels that are no whole vectors start unaligned: loads get narrower.
    dot = in_channels // np.gcd(in_channels, target.vector_bytes // element_bytes(dtype))
    positions = ceil_divide(field_elements, target.num_workers)
    call = np.where(kernel_elements == 1, 13, 19)
    worker = kernel_elements * (call + positions * (7 + out_channels * dot))
    start = (65 if is_half else 58) - np.where(kernel_elements == 1, 10, 0)
    zeros = field_elements * out_channels * conv_groups
    zeroing = zero(target, dtype="float32", num_elements=zeros)
    return start + zeroing + conv_groups * (23 + 15 + 10 + target.num_workers * worker)


def slic(
    target: Target,
    *,
    partials_dtype: str,
    field_elements: Count,
    row_elements: Count,
    kernel_rows: Count,
    kernel_columns: Count,
    group_blocks: Count,
    stride: int = 1,
) -> Count:
    """Convolutions of few channels by the sliding-window instruction, float16 only.

    A block is four input and four output channels, in one group or several.
    Source: poplibs, poplin PerformanceEstimation, ConvPartial1x4SLIC.

    Args:
        target: The hardware.
        partials_dtype: Of the sums: with float32 only half of the chains are
            there, and every row takes two passes.
        field_elements: Output positions of this tile.
        row_elements: Output positions in a row.
        kernel_rows: Rows of the kernel, outer dimensions included.
        kernel_columns: Columns of the kernel: four are taken at once.
        group_blocks: Blocks of channels.
        stride: Of the columns, 1 or 2.

    Returns:
        Cycles of the tile.

    Raises:
        ValueError: The instruction has no such stride.
    """
    if stride not in (1, 2):
        raise ValueError(f"SLIC has strides of 1 and 2. Received: stride={stride}")
    workers = target.num_workers
    passes = 1 if partials_dtype == "float16" else 2
    windows = kernel_rows * ceil_divide(kernel_columns, SLIC_KERNEL_WIDTH)
    elements = ceil_divide(field_elements, workers)
    segments = row_segments(elements, row_elements)
    # A row costs 15 + (n - 5) at stride 1, 15 + 2(n - 3) at stride 2.
    fixed = 10 if stride == 1 else 9
    worker = 28 + segments * fixed + stride * elements
    load = 16 + 18
    return 28 + group_blocks * windows * (load + passes * workers * worker)


def outer_product(
    target: Target, *, dtype: str, field_elements: Count, channels: Count, conv_groups: Count = 1
) -> Count:
    """Each element of one input channel times each weight of its output channels.

    Source: poplibs, poplin PerformanceEstimation, OuterProduct, whose workers share
    the channels.

    Args:
        target: The hardware.
        dtype: Of inputs and weights.
        field_elements: Output positions of this tile.
        channels: Output channels of this tile.
        conv_groups: Convolutions that share nothing.

    Returns:
        Cycles of the tile.
    """
    vector = target.vector_bytes // element_bytes(dtype)
    share = ceil_divide(channels, target.num_workers * vector)
    # Three vectors are in flight before the loop proper starts.
    per_position = 6 + np.maximum(share - 3, 0)
    call = 10 if dtype == "float16" else 11
    return 25 + conv_groups * (call + target.num_workers * field_elements * per_position)


def reduce_partials(
    target: Target, *, partials_dtype: str, num_outputs: Count, num_partials: Count
) -> Count:
    """Sums the partials of tiles that had different input channels.

    Source: poplibs, poplin PerformanceEstimation, ReduceAdd with a single input:
    two cycles per vector and partial, 16 bytes of sums in flight.

    Args:
        target: The hardware.
        partials_dtype: Of the partials.
        num_outputs: Sums of this tile.
        num_partials: Partials of each.

    Returns:
        Cycles of the tile.
    """
    width = 2 * target.vector_bytes // element_bytes(partials_dtype)
    loops = ceil_divide(num_outputs, width * target.num_workers)
    return 33 + target.num_workers * (20 + (2 * num_partials + 8) * loops)


def cast(target: Target, *, from_dtype: str, to_dtype: str, num_elements: Count) -> Count:
    """Turns sums into the type of the result.

    Source: poplibs, poplin PerformanceEstimation, getCastCycleEstimate: the wider
    type's vectors, on all workers.

    Args:
        target: The hardware.
        from_dtype: Of the partials.
        to_dtype: Of the result.
        num_elements: Elements of this tile.

    Returns:
        Cycles of the tile.
    """
    widest = max(element_bytes(from_dtype), element_bytes(to_dtype))
    vectors = ceil_divide(num_elements * widest, target.num_workers * target.vector_bytes)
    return target.num_workers * (vectors + 26)


def zero(target: Target, *, dtype: str, num_elements: Count) -> Count:
    """Clears sums before the first product is added.

    Source: poplibs, poplin PerformanceEstimation, getZeroSupervisorVertexCycleEstimate.

    Args:
        target: The hardware.
        dtype: Of the sums.
        num_elements: Sums of this tile.

    Returns:
        Cycles of the tile.
    """
    vectors = ceil_divide(
        num_elements * element_bytes(dtype), target.num_workers * target.vector_bytes
    )
    return target.num_workers * (vectors + 14 - 9)
