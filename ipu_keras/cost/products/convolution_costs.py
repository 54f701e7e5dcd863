"""Costs the candidates of a plan: what poplibs takes them for, and what they take when they run.

poplibs chooses plans by an estimate without syncs, launches and latencies, in which rearranging
operands is cheap. What a plan then takes adds up otherwise. Counts are arrays, with an entry for
each candidate.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipu_keras.cost.memory_sizes import VERTEX_STATE_BYTES
from ipu_keras.cost.products import convolution_vertices as vertices
from ipu_keras.cost.products.convolution_forms import (
    ConvolutionForm,
    input_bytes,
    weight_bytes,
)
from ipu_keras.cost.products.convolutions import Convolution, ceil_divide, element_bytes
from ipu_keras.cost.tile.vertices import rearrange
from ipu_keras.machine.target import Target

Array = np.ndarray

# Axes of a candidate, in the order of the columns of its array. Field dimensions follow.
GROUPS, BATCH, KERNEL, IN, OUT, SERIAL_IN, SERIAL_OUT, FIELD = range(8)

# poplibs runs these compute sets of a convolution even where there is nothing for them to do
# (2.0: one to transpose the weights, one for each of two levels of transforms, one before the
# loop of serial steps and one to cast behind it). That each takes a sync and a launch was chosen in
# view of its benchmarks on the IPU Model, and by every other of the layers measured on a GC2: the
# median of these errors is 3 %, and would be 8 % without; of the layers between, 3 and 8 %. Whole
# programs on the IPU Model of later releases do not show them: three small ones would be 7 to 18 %
# slower, and are too slow without.
_EMPTY_COMPUTE_SETS = 5
_FIRST_WITHOUT_EMPTY_COMPUTE_SETS = 3.0

# What is rearranged is copied once on its tile from this release on, whatever its pieces are: so
# poplibs' benchmarks of 2.0 have it, for few bytes and for many. Layers that were measured with 1.0
# take two copies of pieces that are no words.
_FIRST_THAT_COPIES_ONCE = 1.1

# Partials of fewer tiles than these are summed in one stage, or in two; more take three (poplibs,
# getMultiStageReducePlan).
_DEPTHS_OF_STAGES = (2, 16, 125)

# Bytes of a vertex's own fields, by the size of a pointer (poplibs, state of its codelets).
_FIELD_BYTES = {"amp 1x1": {2: 22, 4: 30}, "amp nx1": {2: 44, 4: 46}, "slic": {2: 32, 4: 32}}
_OTHER_FIELD_BYTES = {2: 44, 4: 44}
_REDUCTION_FIELD_BYTES = {2: 8, 4: 12}
_REDUCTION_POINTER_BYTES = 4
# Of a list of a worker's work, and of each row in it.
_WORKLIST_BYTES = 4
_WORKLIST_ROW_BYTES = 6
# A product of one element by one lists the positions of each worker once.
_WORKLISTS_1X1_BYTES = 36
# Pointers of two bytes count words of four, and reach as far.
_SHORT_POINTERS_REACH = 4 << 16


def empty_compute_sets_cycles(target: Target) -> int:
    """Returns the cycles of compute sets that run for each convolution, whatever its plan."""
    if target.sdk >= _FIRST_WITHOUT_EMPTY_COMPUTE_SETS:
        return 0
    return _EMPTY_COMPUTE_SETS * (target.sync_cycles + target.launch_cycles)


@dataclass(frozen=True)
class _Share:
    """What the fullest tile has of a convolution in one serial step, by candidate."""

    positions: Array
    row: Array
    # Rows of a sample, and what is left of them and of a row's positions beside padding.
    rows: Array
    met_rows: Array
    met_in_row: Array
    kernel_rows: Array
    in_channels: Array
    out_channels: Array
    groups: Array
    input_bytes: Array
    weight_bytes: Array
    outputs: Array
    batch: Array
    input_row_bytes: Array

    @classmethod
    def of(cls, target: Target, form: ConvolutionForm, grid: Array) -> "_Share":
        convolution = form.convolution
        in_grain, out_grain = form.grains(target)
        size = element_bytes(convolution.dtype)
        groups = ceil_divide(convolution.groups, grid[GROUPS])
        batch = ceil_divide(convolution.batch, grid[BATCH])
        field = [ceil_divide(n, grid[FIELD + i]) for i, n in enumerate(convolution.field)]
        kernel_rows = ceil_divide(convolution.kernel[0], grid[KERNEL])
        in_groups = ceil_divide(form.in_channels, in_grain * grid[IN] * grid[SERIAL_IN])
        out_groups = ceil_divide(form.out_channels, out_grain * grid[OUT] * grid[SERIAL_OUT])
        positions = batch * np.prod(field, axis=0)
        shares = [convolution.met_share(i, n) for i, n in enumerate(field)]
        kernel = kernel_rows * math.prod(convolution.kernel[1:])
        extents = [convolution.input_extent(i, n) for i, n in enumerate(field)]
        # Of a split kernel, a tile reads what its rows of the kernel reach.
        skipped = (convolution.kernel[0] - kernel_rows) * convolution.kernel_dilations[0]
        extents[0] = np.maximum(extents[0] - skipped // convolution.input_dilations[0], 1)
        inputs = batch * np.prod(extents, axis=0) * in_groups * in_grain * groups
        return cls(
            positions=positions,
            row=field[-1],
            rows=np.prod(field[:-1], axis=0) + np.zeros_like(positions),
            met_rows=np.prod(
                [n * met for n, met in zip(field[:-1], shares[:-1], strict=True)], axis=0
            )
            + np.zeros(len(positions)),
            met_in_row=field[-1] * shares[-1],
            kernel_rows=kernel_rows,
            in_channels=in_groups * in_grain,
            out_channels=out_groups * out_grain,
            groups=groups,
            input_bytes=inputs * size,
            weight_bytes=kernel * in_groups * in_grain * out_groups * out_grain * groups * size,
            outputs=positions * out_groups * out_grain * groups,
            batch=batch,
            input_row_bytes=inputs // extents[0] * size,
        )


def _vertex_cycles(target: Target, form: ConvolutionForm, share: _Share) -> Array:
    convolution = form.convolution
    types: dict[str, Any] = {
        "dtype": convolution.dtype,
        "partials_dtype": convolution.partials_dtype,
    }
    in_grain, out_grain = form.grains(target)
    groups: dict[str, Any] = {
        "in_groups": share.in_channels // in_grain,
        "out_groups": share.out_channels // out_grain,
        "conv_groups": share.groups,
    }
    middle = math.prod(convolution.kernel[1:-1])
    columns = convolution.kernel[-1] if len(convolution.kernel) > 1 else 1
    if form.method == "amp 1x1":
        return vertices.amp_1x1(target, field_elements=share.positions, **types, **groups)
    if form.method == "amp nx1":
        return vertices.amp_nx1(
            target,
            field_elements=share.positions,
            row_elements=_rounded_up(share.met_in_row / convolution.input_dilations[-1]),
            kernel_rows=share.kernel_rows * middle,
            kernel_columns=columns,
            worker_elements=_met_by_worker(target, convolution, share),
            kernel_height=form.kernel_height,
            **types,
            **groups,
        )
    if form.method == "slic":
        return _slic_cycles(target, form, share)
    if form.method == "outer product":
        return vertices.outer_product(
            target,
            dtype=convolution.dtype,
            field_elements=share.positions,
            channels=share.out_channels,
            conv_groups=share.groups,
        )
    if form.method == "vertical mac":
        return vertices.vertical_mac(
            target,
            batch=share.batch,
            field_elements=share.positions // share.batch,
            kernel_rows=share.kernel_rows * middle,
            kernel_columns=columns,
            conv_groups=share.groups,
        )
    return vertices.horizontal_mac(
        target,
        dtype=convolution.dtype,
        field_elements=np.minimum(
            ceil_divide(share.positions, math.prod(convolution.input_dilations)),
            target.num_workers * _met_by_worker(target, convolution, share),
        ),
        kernel_elements=share.kernel_rows * middle * columns,
        in_channels=share.in_channels,
        out_channels=share.out_channels,
        conv_groups=share.groups,
    )


def _met_by_worker(target: Target, convolution: Convolution, share: _Share) -> Array:
    """Returns the positions of the busiest worker that an element of the kernel meets inputs at."""
    # Workers share the positions of a tile, sample by sample and row by row, whether they meet an
    # input or not: one inside the field has no padding until it has whole rows, or whole samples.
    own = ceil_divide(share.positions, target.num_workers)
    rows = own / share.row
    samples, rest = np.divmod(rows, share.rows)
    met = samples * share.met_rows + np.minimum(rest, share.met_rows)
    positions = np.where(rows < 1, np.minimum(own, share.met_in_row), met * share.met_in_row)
    return _rounded_up(positions / math.prod(convolution.input_dilations))


def _rounded_up(positions: Array) -> Array:
    # What is whole but for the rounding of shares is not the next number.
    return np.ceil(positions - 1e-6).astype(np.int64)


def _slic_cycles(target: Target, form: ConvolutionForm, share: _Share) -> Array:
    convolution = form.convolution
    in_grain, out_grain = form.grains(target)
    together = vertices.SLIC_CHANNELS // in_grain
    *outer, columns = (share.kernel_rows, *convolution.kernel[1:])
    return vertices.slic(
        target,
        partials_dtype=convolution.partials_dtype,
        field_elements=share.positions,
        row_elements=share.row,
        kernel_rows=math.prod(outer),
        kernel_columns=columns,
        group_blocks=ceil_divide(share.groups, together) * (share.out_channels // out_grain),
        stride=convolution.strides[-1],
    )


@dataclass(frozen=True)
class CandidateCosts:
    """What candidates cost, with the fields of `ConvolutionPlan`.

    `estimated_cycles` and `estimated_bytes` are what poplibs' planner takes them for.
    """

    compute: Array
    exchange: Array
    reduce: Array
    transform: Array
    exchange_bytes: Array
    temporary_bytes: Array
    # Those of inputs and weights that are not copied if they are allocated for the plan, and what
    # is needed after the product all the same.
    staying_bytes: tuple[Array, Array]
    summing_bytes: Array
    # Those of the temporary bytes that have to lie in interleaved memory: the partials of the
    # matrix unit, which loads and stores 16 bytes of them at once.
    interleaved_bytes: Array
    state_bytes: Array
    estimated_cycles: Array
    estimated_bytes: Array

    @property
    def cycles(self) -> Array:
        """Cycles of all phases."""
        return self.compute + self.exchange + self.reduce + self.transform

    def fits(self, most_bytes: float, most_interleaved: float) -> Array:
        """Returns which candidates need no more than so much temporary and interleaved memory."""
        return (self.estimated_bytes <= most_bytes) & (self.interleaved_bytes <= most_interleaved)


def costs_of(target: Target, form: ConvolutionForm, grid: Array, num_tiles: int) -> CandidateCosts:
    """Returns the costs of the candidates of a form."""
    share = _Share.of(target, form, grid)
    steps = grid[SERIAL_IN] * grid[SERIAL_OUT]
    inputs, weights = _received(target, form, grid, share)
    compute = _vertex_cycles(target, form, share)
    reduction = _Reduction.of(target, form, grid, share)
    partials = share.outputs * element_bytes(form.convolution.partials_dtype)
    copied = sum(num_bytes for num_bytes, _ in form.copies) / num_tiles
    # What is rearranged is there twice, and then until tiles have their own operands. Over input
    # channels, steps add to sums that stay: these are there twice, too.
    operands = share.input_bytes + share.weight_bytes
    staying = _staying(form, grid, share)
    before = np.maximum(2 * copied, copied + operands)
    during = operands + partials * (1 + (grid[SERIAL_IN] > 1))
    after = partials + reduction.num_bytes
    arrival = inputs / _input_rate(target, grid) + weights / target.exchange_bytes
    return CandidateCosts(
        compute=steps * (target.launch_cycles + compute),
        exchange=steps * _phase(target, arrival),
        reduce=steps * reduction.cycles,
        transform=empty_compute_sets_cycles(target)
        + _copy_cycles(target, form, num_tiles)
        + np.where(steps > 1, steps * _step_cycles(target, form, share), 0),
        exchange_bytes=steps * (inputs + weights + reduction.num_bytes),
        temporary_bytes=np.maximum(np.maximum(before, during), after),
        staying_bytes=staying,
        summing_bytes=after,
        interleaved_bytes=partials * form.uses_matrix_unit,
        state_bytes=_state_bytes(target, form, grid, share),
        estimated_cycles=_estimate(target, form, grid, share, compute + reduction.estimate),
        estimated_bytes=_estimated_bytes(form, grid, share, reduction),
    )


def _phase(target: Target, cycles: Array) -> Array:
    """Returns the cycles of an exchange with its sync, which does not happen without bytes."""
    return np.where(cycles > 0, target.sync_cycles + target.exchange_latency_cycles + cycles, 0)


def _input_rate(target: Target, grid: Array) -> Array:
    # Neighbouring tiles have other output channels and the same input. Pairs of tiles receive
    # what they share at once.
    return np.where(grid[OUT] % 2 == 0, target.shared_exchange_bytes, target.exchange_bytes)


def _received(
    target: Target, form: ConvolutionForm, grid: Array, share: _Share
) -> tuple[Array, Array]:
    """Returns the bytes of inputs and weights that the fullest tile does not hold itself."""
    convolution = form.convolution
    # Operands are spread evenly over the tiles that use them, each with its own share already.
    tiles = np.prod(grid, axis=0) // (grid[SERIAL_IN] * grid[SERIAL_OUT])
    inputs = input_bytes(convolution) / (tiles * grid[SERIAL_IN])
    weights = weight_bytes(convolution) / (tiles * grid[SERIAL_IN] * grid[SERIAL_OUT])
    return np.maximum(share.input_bytes - inputs, 0), np.maximum(share.weight_bytes - weights, 0)


def _staying(form: ConvolutionForm, grid: Array, share: _Share) -> tuple[Array, Array]:
    """Returns the bytes of inputs and weights that one tile alone multiplies, where they lie.

    That is where they are allocated for the plan. What is rearranged, and what serial steps take
    slices of, is copied.
    """
    nothing = np.zeros_like(share.input_bytes)
    if form.copies:
        return nothing, nothing
    one_element = math.prod(form.convolution.kernel) == 1
    whole = grid[SERIAL_IN] == 1
    inputs = whole & (grid[OUT] == 1) & one_element
    weights = whole & (grid[SERIAL_OUT] * grid[BATCH] * np.prod(grid[FIELD:], axis=0) == 1)
    return np.where(inputs, share.input_bytes, 0), np.where(weights, share.weight_bytes, 0)


@dataclass(frozen=True)
class _Reduction:
    """The sums of partials of several tiles, and their cast.

    `estimate` are the cycles that poplibs' planner counts, `num_bytes` those of partials that a
    tile receives at once.
    """

    cycles: Array
    estimate: Array
    num_bytes: Array

    @classmethod
    def of(cls, target: Target, form: ConvolutionForm, grid: Array, share: _Share) -> "_Reduction":
        dtype, partials = form.convolution.dtype, form.convolution.partials_dtype
        size = element_bytes(partials)
        casts = vertices.cast(
            target, from_dtype=partials, to_dtype=dtype, num_elements=share.outputs
        )
        alone = np.where(grid[IN] * grid[KERNEL] > 1, 0, casts) * (partials != dtype)
        cycles, estimate = alone + target.launch_cycles * (alone > 0), alone
        num_bytes = np.zeros_like(alone)
        for stage in _stages_of(target, form, grid, share.outputs):
            sums = [
                vertices.reduce_partials(
                    target,
                    dtype=made,
                    partials_dtype=partials,
                    num_outputs=stage.outputs,
                    num_partials=stage.partials,
                )
                for made in (partials, dtype)
            ]
            summed = np.where(stage.is_last, sums[1], sums[0])
            arriving = stage.outputs * (stage.partials - 1) * size
            moved = _phase(target, arriving / target.exchange_bytes)
            cycles = cycles + stage.runs * (moved + target.launch_cycles + summed)
            # What arrives for the first stage is counted with what it is made of.
            later = np.where(stage.is_last, 0, stage.outputs * size / target.exchange_bytes)
            estimate = estimate + stage.runs * (summed + later)
            num_bytes = np.maximum(num_bytes, stage.runs * arriving)
        return cls(cycles, estimate, num_bytes)


@dataclass(frozen=True)
class _Stage:
    """What a tile sums in one stage: so many outputs, of so many partials each, if it runs."""

    runs: Array
    is_last: Array
    outputs: Array
    partials: Array


def _stages_of(
    target: Target, form: ConvolutionForm, grid: Array, outputs: Array
) -> Iterator[_Stage]:
    depth = grid[IN] * grid[KERNEL]
    count = np.searchsorted(_DEPTHS_OF_STAGES, depth, side="right")
    # Whole numbers are not rounded up because of their roots.
    each = np.ceil(depth ** (1 / np.maximum(count, 1)) - 1e-9).astype(np.int64)
    # The tiles with partials of the same outputs each sum a part of these, in whole groups of
    # channels, and hold one of the partials already.
    grain = max(form.grains(target)[1], target.vector_bytes // 2)
    for stage in range(int(count.max(initial=0))):
        runs, is_last = count > stage, count == stage + 1
        together = np.where(runs, np.where(is_last, depth, np.minimum(each, depth)), 1)
        own = ceil_divide(ceil_divide(outputs, grain), together) * grain
        outputs = np.where(runs, np.minimum(own, outputs), outputs)
        depth = ceil_divide(depth, together)
        yield _Stage(runs, is_last, outputs, together)


def _copy_cycles(target: Target, form: ConvolutionForm, num_tiles: int) -> float:
    """Returns the cycles of the transforms, which all tiles share."""
    cycles = 0.0
    for num_bytes, together in form.copies:
        local = num_bytes / num_tiles
        copy = rearrange(target, num_bytes=math.ceil(local), atom_bytes=math.gcd(together, 8))
        # The exchange moves words of four bytes: 1.0 arranges what is smaller into words where it
        # comes from, and out of them where it goes.
        num_copies = 2 if together % 4 and target.sdk < _FIRST_THAT_COPIES_ONCE else 1
        cycles += num_copies * (target.launch_cycles + copy.cycles)
        cycles += float(_phase(target, np.asarray(local / target.exchange_bytes)))
    return cycles


def _step_cycles(target: Target, form: ConvolutionForm, share: _Share) -> Array:
    """Returns the cycles in which a serial step slices weights and leaves its results."""
    size = element_bytes(form.convolution.dtype)
    elements = share.weight_bytes // size + share.outputs
    # Source: poplibs, popops' DynamicSlice and DynamicUpdateSlice. A counter has a compute set.
    vectors = ceil_divide(elements * size, target.vector_bytes)
    return 2 * (14 + target.num_workers * 68) + vectors + 3 * target.launch_cycles


def _estimate(
    target: Target, form: ConvolutionForm, grid: Array, share: _Share, work: Array
) -> Array:
    """Returns the cycles that poplibs' planner takes candidates for (poplin, ConvModel, 2.0)."""
    convolution = form.convolution
    size = element_bytes(convolution.dtype)
    steps = grid[SERIAL_IN] * grid[SERIAL_OUT]
    positions = grid[BATCH] * np.prod(grid[FIELD:], axis=0)
    inputs = share.input_bytes - share.input_bytes // grid[OUT]
    weights = share.weight_bytes - share.weight_bytes // positions
    zero_weights, zero_inputs = _zeros(target, form, share)
    # Partials count as exchanged even where nothing is summed: few outputs on a tile are better.
    partials = share.outputs * element_bytes(convolution.partials_dtype)
    exchange = (inputs + zero_inputs) / _input_rate(target, grid)
    exchange = exchange + (weights + zero_weights + partials) / target.exchange_bytes
    moved = sum(num_bytes for num_bytes, _ in form.copies) + form.rearranged_bytes(target)
    local = moved / (np.prod(grid, axis=0) // steps)
    is_ragged = form.in_channels * form.out_channels % (target.vector_bytes // size) != 0
    rearranged = local * ((5 / 3 if is_ragged else 5 / 4) / size + 1 / target.exchange_bytes)
    sliced = np.where(steps > 1, _estimated_slices(target, convolution, share), 0)
    return steps * (exchange + rearranged + work + sliced)


def _estimated_slices(target: Target, convolution: Convolution, share: _Share) -> Array:
    size = element_bytes(convolution.dtype)
    counts = (share.weight_bytes // size, share.outputs)
    vector = target.vector_bytes // size
    if target.sdk < 1.1:
        # As if workers did one after the other what they share: it rarely chose steps.
        return np.sum([target.num_workers * (30 + 2 * n / (vector / 2)) for n in counts], axis=0)
    each = [41 + 27 + ceil_divide(n, target.num_workers) / vector for n in counts]
    return np.sum([25 + target.num_workers * cycles for cycles in each], axis=0)


def _zeros(target: Target, form: ConvolutionForm, share: _Share) -> tuple[Array, Array]:
    """Returns the bytes of zeros that fill the kernel to whole heights, and the input beside it."""
    height = form.kernel_height
    if height == 1:
        return np.zeros_like(share.outputs), np.zeros_like(share.outputs)
    missing = -share.kernel_rows % height
    row_weights = share.weight_bytes // share.kernel_rows
    dilation = form.convolution.kernel_dilations[0]
    if target.sdk >= 1.1:
        return missing * row_weights, missing * dilation * share.input_row_bytes
    # 1.0 counts as many rows as there are where none are missing, and a row of inputs for each of
    # the weights: so it takes several rows together only where nothing else fits.
    missing = height - share.kernel_rows % height
    size = element_bytes(form.convolution.dtype)
    weights = missing * row_weights
    return weights, weights // size * dilation * share.input_row_bytes


def _estimated_bytes(
    form: ConvolutionForm, grid: Array, share: _Share, reduction: _Reduction
) -> Array:
    """Returns the temporary memory of a tile that poplibs' planner compares with its bound."""
    partials = share.outputs * element_bytes(form.convolution.partials_dtype)
    tiles = np.prod(grid, axis=0) // (grid[SERIAL_IN] * grid[SERIAL_OUT])
    # What is rearranged is there twice; not while the convolution has its own operands.
    copied = 2 * max((num_bytes for num_bytes, _ in form.copies), default=0) / tiles
    during = share.input_bytes + share.weight_bytes + partials
    staged = np.where(grid[IN] * grid[KERNEL] >= _DEPTHS_OF_STAGES[1], reduction.num_bytes, 0)
    most = np.maximum(np.maximum(copied, during), staged)
    return most + partials * (grid[SERIAL_IN] > 1)


def _state_bytes(target: Target, form: ConvolutionForm, grid: Array, share: _Share) -> Array:
    """Returns the bytes of fields, pointers and work lists of a tile's vertices."""
    pointer = 2 if target.tile_bytes <= _SHORT_POINTERS_REACH else 4
    in_grain, out_grain = form.grains(target)
    # Other vertices than the matrix unit's take all input channels as one group.
    ins = share.in_channels // in_grain if form.uses_matrix_unit else np.ones_like(share.outputs)
    outs = share.out_channels // out_grain
    if form.method == "outer product":
        # Each worker has a vertex.
        state = np.full_like(ins, target.num_workers * VERTEX_STATE_BYTES)
    else:
        fields = _FIELD_BYTES.get(form.method, _OTHER_FIELD_BYTES)[pointer]
        state = fields + pointer * (ins + outs + ins * outs) * share.groups
        state = state + _worklist_bytes(target, form, share)
    parts = grid[IN] * grid[KERNEL]
    summing = _REDUCTION_FIELD_BYTES[pointer] + _REDUCTION_POINTER_BYTES * np.minimum(parts, 2)
    return state + np.where(parts > 1, summing, 0)


def _worklist_bytes(target: Target, form: ConvolutionForm, share: _Share) -> Array:
    if form.method == "amp 1x1":
        return np.full_like(share.outputs, _WORKLISTS_1X1_BYTES)
    own = ceil_divide(share.positions, target.num_workers)
    rows = vertices.row_segments(own, share.row)
    elements = ceil_divide(share.kernel_rows, form.kernel_height) * math.prod(
        form.convolution.kernel[1:]
    )
    return elements * target.num_workers * (_WORKLIST_BYTES + _WORKLIST_ROW_BYTES * rows)
