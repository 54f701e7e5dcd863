"""Costs the vertices that compute convolutions, in cycles of one tile.

The closed forms are those of poplibs' cycle estimators (poplin PerformanceEstimation). Counts
are the tile's, or arrays of counts, so that the planner costs all its candidates at once.
"""

import numpy as np

from ipu_keras.cost.products.convolutions import Count, ceil_divide, element_bytes
from ipu_keras.machine.target import Target

# A worker gets every `num_workers`-th cycle, so a vertex costs its supervisor's cycles and
# `num_workers` times those of its slowest worker. What is around a vertex (launch, sync,
# exchange) is the planner's.
#
# Bytes of one unit's weight registers: 16 numbers of float16 or 8 of float32 (poplibs,
# Target::getWeightsPerConvUnit).
WEIGHT_BYTES_PER_UNIT = 32
# Neighbouring elements of the kernel, and channels, that one SLIC instruction takes
# (poplibs, ConvPartial1x4SLIC).
SLIC_KERNEL_WIDTH = 4
SLIC_CHANNELS = 4
# Groups of one channel that fill a vector of halves (poplibs, ConvPartialVerticalMac).
VERTICAL_MAC_GROUPS = 4
# What arrives to be summed is one operand if it takes less than this part of a tile's memory, in
# releases from this one on (poplibs, checkPartialsSizeForSingleInputReduce).
_FIRST_WITH_SINGLE_OPERANDS = 1.2
_SINGLE_OPERAND_SHARE = 16


def channels_per_unit(dtype: str) -> int:
    """Returns the input channels that the matrix unit takes at once: its weights per unit."""
    return WEIGHT_BYTES_PER_UNIT // element_bytes(dtype)


def _is_1_0(target: Target) -> bool:
    # Workers keep their state between calls since 1.1.11.
    return target.sdk < 1.1


def row_cycles(target: Target, *, dtype: str, partials_dtype: str) -> int:
    """Returns the cycles in which the matrix unit takes one position of the field.

    It follows from the peak rate, and is that of poplibs' estimators: 4, and 8 for float32.

    Example:

    >>> from ipu_keras.machine.target import TARGETS
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
    """Returns the cycles of one worker for so many elements of the field."""
    # With float16, no zeros are stored first (since SDK 1.1); with float32, that is a pass of
    # its own over the elements. Fewer than three elements do not fill the pipeline of the loop.
    if dtype == "float16":
        short = (20 + (1 if is_first else 2), 31, 40)
        long = (37 if is_first else 38) + row * (num_elements - 3)
    else:
        short = (24, 47, 46)
        long = 22 + row * num_elements + (2 + num_elements if is_first else 0)
    # Workers keep their state between calls since SDK 1.1, which saves them 7 cycles of setting
    # up.
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

    Source: poplibs, ConvPartial1x1Out. Its estimate of 16 bytes of weights per cycle is the
    target's `weight_load_bytes` here. `in_groups` have `channels_per_unit` input channels,
    `out_groups` as many as `target.conv_units` says.

    Example:

    >>> from ipu_keras.machine.target import TARGETS
    >>> int(amp_1x1(TARGETS["bow"], dtype="float16", partials_dtype="float16",
    ...             field_elements=2048, in_groups=1, out_groups=1))
    8521
    """
    if _is_1_0(target) and dtype == "float16":
        return _amp_1x1_of_1_0(
            target, partials_dtype, field_elements, in_groups, out_groups, conv_groups
        )
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


def _amp_1x1_of_1_0(
    target: Target,
    partials_dtype: str,
    field_elements: Count,
    in_groups: Count,
    out_groups: Count,
    conv_groups: Count,
) -> Count:
    """Costs the vertex of poplibs' tag 1.0.49 for halves, which stores zeros in its first pass."""
    workers = target.num_workers
    load = _weight_load_cycles(target, "float16", partials_dtype)
    is_wide = partials_dtype == "float32"
    narrow, zeroing = (0, 4) if is_wide else (2, 2)

    def pass_of(elements: Count, is_first: bool) -> Count:
        short = (28, 41 + narrow, 42 + narrow)
        conditions = [elements == 0, elements == 1, elements == 2]
        cycles = np.select(conditions, short, 43 + narrow + 4 * (elements - 3))
        return cycles + (2 + zeroing * elements if is_first else 0)

    slowest = ceil_divide(field_elements, workers)
    first = 11 + 10 + out_groups * (18 + 6 + load + workers * pass_of(slowest, True))
    later = 13 + out_groups * (18 + 6 + load + workers * pass_of(slowest, False))
    return 50 + conv_groups * (first + (in_groups - 1) * later)


def row_segments(num_elements: Count, row_elements: Count) -> Count:
    """Returns the rows that the worst contiguous run of positions touches.

    Example: Of rows of four, six positions touch three (1 + 4 + 1); eight positions
    start where a row does and touch two.

    >>> int(row_segments(6, 4)), int(row_segments(8, 4))
    (3, 2)
    """
    aligned = (num_elements % row_elements == 0) | (row_elements % np.maximum(num_elements, 1) == 0)
    straddling = (np.maximum(num_elements, 2) - 2) // row_elements + 2
    return np.where(aligned, ceil_divide(num_elements, row_elements), straddling)


def _amp_nx1_worker(
    target: Target,
    dtype: str,
    partials_dtype: str,
    row: int,
    num_elements: Count,
    segments: Count,
) -> Count:
    """Returns the cycles of one worker for one element of the kernel."""
    is_half = dtype == "float16"
    setup = 7 if _is_1_0(target) else 0  # of each row
    call = 18 if is_half else 17
    if _is_1_0(target):
        call = 20 if partials_dtype == "float16" else 19
    fixed = 34 - 3 * 4 if is_half else 45 - 3 * 8
    # The pipeline of the loop over positions takes three of them to fill.
    unfilled = np.where(num_elements < 3 * segments, 3, 0)
    return call + segments * (3 + fixed - 9 + setup + unfilled) + row * num_elements


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
    worker_elements: Count | None = None,
) -> Count:
    """A convolution in the matrix unit: weights are loaded for each element of the kernel.

    Source: poplibs, ConvPartialnx1. Each row of the field costs a start of its own, so wide
    tiles are faster than square ones.

    Args:
        kernel_rows: Rows of the kernel, outer dimensions included.
        in_groups: Groups of input channels: `channels_per_unit / kernel_height` each.
        kernel_height: Rows of the kernel whose weights are loaded together: 1, 2 or 4.
        worker_elements: Positions of the busiest worker at which an element of the kernel meets
            an input, as dilated and padded inputs have zeros that are no work; by default all.
    """
    # Supervisor cycles to set up the pointers of as many rows.
    pointers = {1: 15, 2: 46, 4: 60}
    if kernel_height not in pointers:
        raise ValueError(
            "The AMP vertex loads 1, 2 or 4 rows of a kernel together. "
            f"Received: kernel_height={kernel_height}"
        )
    workers = target.num_workers
    row = row_cycles(target, dtype=dtype, partials_dtype=partials_dtype)
    load = _weight_load_cycles(target, dtype, partials_dtype)
    elements = worker_elements
    if elements is None:
        elements = ceil_divide(field_elements, workers)
    segments = row_segments(elements, row_elements)
    outer = ceil_divide(kernel_rows, kernel_height)
    worker = _amp_nx1_worker(target, dtype, partials_dtype, row, elements, segments)
    # Cycles of an outer element of the kernel, an inner one, and groups of channels.
    outside, inside, group = (15, 20 - 3, 23) if _is_1_0(target) else (14, 12, 14)
    loads = outer * (outside + kernel_columns * (inside + load + pointers[kernel_height] + 3))
    rows = outer * kernel_columns * workers * worker
    units = target.conv_units[dtype, partials_dtype]
    # Each element of the kernel adds to the sums, so these are cleared before the first.
    zeros = field_elements * units * out_groups * conv_groups
    start = (95 + 12 if _is_1_0(target) else 109 + 54 + 10 * workers) + zero(
        target, dtype=partials_dtype, num_elements=zeros
    )
    groups = 16 + in_groups * (group + out_groups * (group + loads + rows))
    return start + conv_groups * groups


def _dot_cycles(target: Target, dtype: str, in_channels: Count) -> Count:
    """Returns the cycles in which a worker multiplies and adds so many input channels."""
    vector = target.vector_bytes // element_bytes(dtype)
    # Before the loop, as many cycles as several vectors take.
    start = (6 if dtype == "float16" else 4) if _is_1_0(target) else 7
    unaligned = 4 if _is_1_0(target) else 7
    # A cycle for four products of halves, or for one of floats. Rows of channels that are no whole
    # vectors start anywhere, and are multiplied one by one.
    if dtype == "float16":
        aligned, others = start + in_channels // 4, unaligned + in_channels
    else:
        aligned, others = start + in_channels, unaligned + 2 * in_channels
    return np.where(in_channels % vector == 0, aligned, others)


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

    Source: poplibs, ConvPartialHorizontalMac and getDenseDotProductCycles.
    """
    dot = _dot_cycles(target, dtype, in_channels)
    positions = ceil_divide(field_elements, target.num_workers)
    call = np.where(kernel_elements == 1, 13, 19)
    worker = 16 + kernel_elements * (16 + call + positions * (7 + out_channels * dot))
    start = (65 if dtype == "float16" else 58) - np.where(kernel_elements == 1, 10, 0)
    zeros = field_elements * out_channels * conv_groups
    zeroing = zero(target, dtype="float32", num_elements=zeros)
    return start + zeroing + conv_groups * (23 + 15 + 10 + target.num_workers * worker)


def vertical_mac(
    target: Target,
    *,
    batch: Count,
    field_elements: Count,
    kernel_rows: Count,
    kernel_columns: int,
    conv_groups: Count,
) -> Count:
    """Convolutions of one input and one output channel a group, of halves, four groups at once.

    Source: poplibs, ConvPartialVerticalMac. The `field_elements` are positions of one sample.
    """
    workers = target.num_workers
    runs = kernel_rows * ceil_divide(field_elements * batch, workers)
    worker = 6 + runs * (20 + 2 * (kernel_columns - 1))
    # Workers' own sums are cleared before, and added up behind.
    added = ceil_divide(19 * ceil_divide(field_elements, workers), 4)
    blocks = ceil_divide(conv_groups, VERTICAL_MAC_GROUPS)
    return 100 + blocks * (4 + field_elements + 32 + 24 + workers * worker + 10 + added)


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

    Source: poplibs, ConvPartial1x4SLIC. The `group_blocks` have four input and four output
    channels each, in one group or several.
    """
    if stride not in (1, 2):
        raise ValueError(f"SLIC has strides of 1 and 2. Received: stride={stride}")
    workers = target.num_workers
    # Sums in float32 have only half of the chains, as have all with eight units: so every row takes
    # two passes.
    has_all_chains = target.conv_units["float16", partials_dtype] >= 16
    passes = 1 if has_all_chains else 2
    windows = kernel_rows * ceil_divide(kernel_columns, SLIC_KERNEL_WIDTH)
    elements = ceil_divide(field_elements, workers)
    segments = row_segments(elements, row_elements)
    # A row costs 15 + (n - 5) at stride 1, 15 + 2(n - 3) at stride 2.
    fixed = 10 if stride == 1 else 9
    worker = 28 + segments * fixed + stride * elements
    # 16 loads of weights, and 18 cycles around them.
    load = 16 + 18
    return 28 + group_blocks * windows * (load + passes * workers * worker)


def outer_product(
    target: Target, *, dtype: str, field_elements: Count, channels: Count, conv_groups: Count = 1
) -> Count:
    """Each element of one input channel times each weight of its output channels.

    Source: poplibs, OuterProduct, whose workers share the positions.
    """
    vector = target.vector_bytes // element_bytes(dtype)
    share = ceil_divide(field_elements, target.num_workers)
    call, position = (10, 20) if dtype == "float16" else (11, 14)
    worker = 25 + conv_groups * ceil_divide(channels, vector) * (call + position * share)
    return target.num_workers * worker


def reduce_partials(
    target: Target, *, dtype: str, partials_dtype: str, num_outputs: Count, num_partials: Count
) -> Count:
    """Sums the partials of tiles that had different input channels.

    Source: poplibs, ReduceAdd. Since 1.2, a tile's own partials are one operand and those that
    arrive another one, which takes two cycles per vector and partial; before, and where that does
    not fit, each is an operand of its own and takes three.
    """
    is_half = partials_dtype == "float16"
    width = 2 * target.vector_bytes // element_bytes(partials_dtype)
    loops = ceil_divide(num_outputs, width * target.num_workers)
    store = 0 if dtype == "float16" else 1
    apart = target.num_workers * (32 + (3 * num_partials + (8 if is_half else 6 + store)) * loops)
    if target.sdk < _FIRST_WITH_SINGLE_OPERANDS:
        return apart
    loop = 2 * (num_partials - 1) + (9 if is_half else 7) + store
    together = 33 + target.num_workers * (20 + loop * loops)
    arriving = num_outputs * (num_partials - 1) * element_bytes(partials_dtype)
    fits = (arriving < target.tile_bytes / _SINGLE_OPERAND_SHARE) & (num_outputs % width == 0)
    return np.where(fits, together, apart)


def cast(target: Target, *, from_dtype: str, to_dtype: str, num_elements: Count) -> Count:
    """Turns sums into the type of the result, by the wider type's vectors, on all workers.

    Source: poplibs, getCastCycleEstimate.
    """
    widest = max(element_bytes(from_dtype), element_bytes(to_dtype))
    vectors = ceil_divide(num_elements * widest, target.num_workers * target.vector_bytes)
    return target.num_workers * (vectors + 26)


def zero(target: Target, *, dtype: str, num_elements: Count) -> Count:
    """Clears sums before the first product is added.

    Source: poplibs, getZeroSupervisorVertexCycleEstimate.
    """
    vectors = ceil_divide(
        num_elements * element_bytes(dtype), target.num_workers * target.vector_bytes
    )
    return target.num_workers * (vectors + 14 - 9)
