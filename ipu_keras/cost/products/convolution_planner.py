"""Plans how a convolution or matrix product is spread over the tiles, and what it costs there.

The search is that of poplibs' planner in one level. Operands lie as the plan wants them: what
brings them there from other operations is not counted.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipu_keras.cost.memory_sizes import AVAILABLE_MEMORY_PROPORTION
from ipu_keras.cost.products import convolution_vertices as vertices
from ipu_keras.cost.products.convolution_forms import (
    ConvolutionForm,
    forms_of,
    input_bytes,
    weight_bytes,
)
from ipu_keras.cost.products.convolutions import Convolution, ceil_divide, element_bytes
from ipu_keras.cost.tile.vertices import rearrange
from ipu_keras.machine.target import Confidence, Target

# Each candidate splits the work over tiles and over serial steps, and costs the sum of its
# phases (transform, exchange, compute, reduce), every one with its sync and launch. The fastest
# whose temporary memory fits wins. No constant is fitted. Two choices between mechanisms were
# made in view of the 186 float16 convolutions without groups of the microbenchmarks (GC2):
# - Operands come at `exchange_bytes`, though tiles could receive what they share at
#   `shared_exchange_bytes`. Every other layer suffices to choose: the median error of its time
#   is 9 %, and would be 20 %; on the layers between, 9 % and 19 %.
# - Pieces that are no words are copied on both sides of an exchange, which matters to 16 points
#   (layers of three channels). These were used to choose.

Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class ConvolutionPlan:
    """A convolution's split over tiles and time, and its cost over all serial steps.

    Args:
        method: `"amp 1x1"`, `"amp nx1"`, `"slic"`, `"horizontal mac"` or `"outer product"`.
        transforms: What happens to the tensors first: `"expand"` (elements of the kernel become
            channels), `"flatten to channels"` (outputs and inputs along a dimension do),
            `"combine groups"`, `"pad channels"`.
        batch_split: Parts of the batch; 1 where it is one with the field.
        field_splits: Parts of the field, by dimension of the transformed field.
        kernel_split: Parts of the kernel's first dimension.
        serial_in_split: Steps over input channels, whose results are added.
        compute_cycles: Cycles of the vertices, launches included.
        exchange_cycles: Cycles of moving inputs and weights, syncs included.
        reduce_cycles: Cycles of exchange, sums and cast of partials.
        transform_cycles: Cycles of transforms, and of slices of serial steps.
        exchange_bytes: Bytes that the busiest tile receives.
        temporary_bytes: Bytes that the fullest tile needs beside operands and result.
        interleaved_bytes: Those of them that have to lie in interleaved memory.
    """

    method: str
    transforms: tuple[str, ...]
    batch_split: int
    field_splits: tuple[int, ...]
    kernel_split: int
    in_split: int
    out_split: int
    group_split: int
    serial_in_split: int
    serial_out_split: int
    tiles_used: int
    compute_cycles: int
    exchange_cycles: int
    reduce_cycles: int
    transform_cycles: int
    exchange_bytes: int
    temporary_bytes: int
    interleaved_bytes: int
    confidence: Confidence

    @property
    def cycles(self) -> int:
        """Cycles from the first phase's sync to the end of the last."""
        phases = self.compute_cycles + self.exchange_cycles + self.reduce_cycles
        return phases + self.transform_cycles


# Axes of a candidate, in the order of the columns of its array. Field dimensions follow.
_GROUPS, _BATCH, _KERNEL, _IN, _OUT, _SERIAL_IN, _SERIAL_OUT, _FIELD = range(8)
# The longest field dimension takes all of the tiles that are left for it, or as few as one in
# 16: poplibs' solver tries every split, which for arrays of candidates would be too many.
_SPREADS = (1, 2, 4, 16)
_MOST_SERIAL_STEPS = 64
# Kernels up to this many rows are not split: only weight gradients, whose kernel is a field,
# have more.
_UNSPLIT_KERNEL_ROWS = 7


def _parts(size: int, most: int) -> list[int]:
    """Returns numbers of parts worth trying: powers of two, three times those and divisors."""
    steps = {base << k for base in (1, 3) for k in range(most.bit_length())}
    wanted = (n for n in steps | _divisors(size) if n <= min(size, most))
    # Parts beyond those that their size needs would be empty.
    return sorted({ceil_divide(size, ceil_divide(size, n)) for n in wanted})


def _divisors(size: int) -> set[int]:
    """Returns the divisors of a size."""
    # Near a divisor of a large size lies some other number of parts that is tried.
    if size >= 4096:
        return set()
    small = [d for d in range(1, math.isqrt(size) + 1) if size % d == 0]
    return {*small, *(size // d for d in small)}


def _candidates(target: Target, form: ConvolutionForm, num_tiles: int) -> Array:
    """Returns one column of parts for each way to fill the tiles, without serial steps."""
    convolution = form.convolution
    in_grain, out_grain = form.grains(target)
    field, kernel_rows = convolution.field, convolution.kernel[0]
    # The longest dimension takes the tiles that the other parts leave it.
    longest = field.index(max(field))
    axes = [
        _parts(convolution.groups, num_tiles),
        _parts(convolution.batch, num_tiles),
        _parts(kernel_rows, num_tiles) if kernel_rows > _UNSPLIT_KERNEL_ROWS else [1],
        _parts(ceil_divide(form.in_channels, in_grain), num_tiles),
        _parts(ceil_divide(form.out_channels, out_grain), num_tiles),
        [1],
        [1],
        *(list(_SPREADS) if i == longest else _parts(n, 16) for i, n in enumerate(field)),
    ]
    size, filling = field[longest], _FIELD + longest
    parts = [np.array(axis) for axis in axes]
    # Most combinations need too many tiles; only the others are made.
    others = functools.reduce(
        np.multiply.outer,
        (np.ones_like(each) if axis == filling else each for axis, each in enumerate(parts)),
    )
    chosen = np.nonzero(others <= num_tiles)
    others = others[chosen]
    grid = np.stack([each[index] for each, index in zip(parts, chosen, strict=True)])
    filled = np.clip(num_tiles // (others * grid[filling]), 1, size)
    grid[filling] = ceil_divide(size, ceil_divide(size, filled))
    return _fullest(grid)


def _fullest(grid: Array, most: int = 6000) -> Array:
    """Returns candidates without those that leave most tiles idle, if there are too many."""
    if grid.shape[1] <= most:
        return grid
    # NumPy sorts short integers in a tenth of the time.
    idle = -np.prod(grid, axis=0)
    idle = idle.astype(np.min_scalar_type(int(idle.min())))
    return grid[:, np.argsort(idle, kind="stable")[:most]]


def _with_serial_steps(form: ConvolutionForm, grains: tuple[int, int], grid: Array) -> Array:
    """Returns the candidates in every number of serial steps, over one kind of channels."""
    steps = []
    most = (ceil_divide(form.in_channels, grains[0]), ceil_divide(form.out_channels, grains[1]))
    # poplibs splits serially over only one of both, too.
    for axis, parts_axis, size in zip((_SERIAL_IN, _SERIAL_OUT), (_IN, _OUT), most, strict=True):
        for k in range(1, _MOST_SERIAL_STEPS.bit_length()):
            serial = grid[:, grid[parts_axis] << k <= size].copy()
            serial[axis] = 1 << k
            steps.append(serial)
    return np.concatenate([grid, *steps], axis=1)


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

    @classmethod
    def of(cls, target: Target, form: ConvolutionForm, grid: Array) -> "_Share":
        convolution = form.convolution
        in_grain, out_grain = form.grains(target)
        size = element_bytes(convolution.dtype)
        groups = ceil_divide(convolution.groups, grid[_GROUPS])
        batch = ceil_divide(convolution.batch, grid[_BATCH])
        field = [ceil_divide(n, grid[_FIELD + i]) for i, n in enumerate(convolution.field)]
        kernel_rows = ceil_divide(convolution.kernel[0], grid[_KERNEL])
        in_groups = ceil_divide(form.in_channels, in_grain * grid[_IN] * grid[_SERIAL_IN])
        out_groups = ceil_divide(form.out_channels, out_grain * grid[_OUT] * grid[_SERIAL_OUT])
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
class _Cost:
    """What candidates cost, with the fields of `ConvolutionPlan`."""

    compute: Array
    exchange: Array
    reduce: Array
    transform: Array
    exchange_bytes: Array
    temporary_bytes: Array
    # Those of the temporary bytes that have to lie in interleaved memory: the partials of the
    # matrix unit, which loads and stores 16 bytes of them at once.
    interleaved_bytes: Array

    @property
    def cycles(self) -> Array:
        return self.compute + self.exchange + self.reduce + self.transform

    def fits(self, most_bytes: float, most_interleaved: float) -> Array:
        """Returns which candidates need no more than so much temporary and interleaved memory."""
        return (self.temporary_bytes <= most_bytes) & (self.interleaved_bytes <= most_interleaved)


def _phase(target: Target, num_bytes: Array) -> Array:
    """Returns the cycles of an exchange with its sync, which does not happen without bytes."""
    fixed = target.sync_cycles + target.exchange_latency_cycles
    return np.where(num_bytes > 0, fixed + num_bytes / target.exchange_bytes, 0)


def _received(
    target: Target, form: ConvolutionForm, grid: Array, share: _Share
) -> tuple[Array, Array]:
    """Returns the bytes of inputs and weights that the fullest tile does not hold itself."""
    convolution = form.convolution
    # Operands are spread evenly over the tiles that use them, each with its own share already.
    tiles = np.prod(grid, axis=0) // (grid[_SERIAL_IN] * grid[_SERIAL_OUT])
    inputs = input_bytes(convolution) / (tiles * grid[_SERIAL_IN])
    weights = weight_bytes(convolution) / (tiles * grid[_SERIAL_IN] * grid[_SERIAL_OUT])
    return np.maximum(share.input_bytes - inputs, 0), np.maximum(share.weight_bytes - weights, 0)


def _reduce(
    target: Target, form: ConvolutionForm, grid: Array, share: _Share
) -> tuple[Array, Array]:
    """Returns the cycles to sum and cast partials, and the bytes of them that a tile receives."""
    dtype, partials = form.convolution.dtype, form.convolution.partials_dtype
    parts = grid[_IN] * grid[_KERNEL]
    # The tiles with partials of the same outputs each sum an equal part of these, and hold one
    # of the partials already.
    own = ceil_divide(share.outputs, parts)
    num_bytes = own * (parts - 1) * element_bytes(partials)
    sums = vertices.reduce_partials(
        target, partials_dtype=partials, num_outputs=own, num_partials=parts
    )
    moved = _phase(target, num_bytes)
    casts = vertices.cast(target, from_dtype=partials, to_dtype=dtype, num_elements=share.outputs)
    alone = target.launch_cycles + casts if partials != dtype else 0
    return np.where(parts > 1, moved + target.launch_cycles + sums, alone), num_bytes


def _copy_cycles(target: Target, form: ConvolutionForm, num_tiles: int) -> float:
    """Returns the cycles of the transforms, which all tiles share."""
    cycles = 0.0
    for num_bytes, together in form.copies:
        local = num_bytes / num_tiles
        copy = rearrange(target, num_bytes=math.ceil(local), atom_bytes=math.gcd(together, 8))
        # The exchange moves words of four bytes: what is smaller is arranged into
        # words where it comes from, and out of them where it goes.
        num_copies = 1 if together % 4 == 0 else 2
        cycles += num_copies * (target.launch_cycles + copy.cycles)
        cycles += float(_phase(target, np.asarray(local)))
    return cycles


def _cost(target: Target, form: ConvolutionForm, grid: Array, num_tiles: int) -> _Cost:
    share = _Share.of(target, form, grid)
    steps = grid[_SERIAL_IN] * grid[_SERIAL_OUT]
    inputs, weights = _received(target, form, grid, share)
    reduce, partial_bytes = _reduce(target, form, grid, share)
    accumulated = share.outputs * element_bytes(form.convolution.partials_dtype)
    # A step takes its slice of the weights and leaves its results with the others'.
    sliced = (weights + accumulated) / target.memcpy_bytes + 2 * target.launch_cycles
    compute = target.launch_cycles + _vertex_cycles(target, form, share)
    copied = sum(num_bytes for num_bytes, _ in form.copies) / num_tiles
    # Over input channels, steps add to sums that stay: these are there twice.
    during = share.input_bytes + share.weight_bytes + accumulated * (1 + (grid[_SERIAL_IN] > 1))
    return _Cost(
        compute=steps * compute,
        exchange=steps * _phase(target, inputs + weights),
        reduce=steps * reduce,
        transform=_copy_cycles(target, form, num_tiles) + np.where(steps > 1, steps * sliced, 0),
        exchange_bytes=steps * (inputs + weights + partial_bytes),
        temporary_bytes=copied + np.maximum(during, accumulated + partial_bytes),
        interleaved_bytes=accumulated * form.uses_matrix_unit,
    )


def _is_measured(target: Target, form: ConvolutionForm) -> bool:
    """Whether the model was checked against hardware for such a form."""
    # Grouped convolutions were measured too, and are far slower than their plans.
    convolution = form.convolution
    return (
        target.has_measured_convolutions
        and form.method.startswith("amp")
        and not form.transforms
        and convolution.groups == 1
        and math.prod(convolution.input_dilations + convolution.kernel_dilations) == 1
    )


def _plan_of(
    target: Target, form: ConvolutionForm, parts: Array, cost: _Cost, index: int
) -> ConvolutionPlan:
    split = [int(n) for n in parts]
    return ConvolutionPlan(
        method=form.method,
        transforms=form.transforms,
        batch_split=split[_BATCH],
        field_splits=tuple(split[_FIELD:]),
        kernel_split=split[_KERNEL],
        in_split=split[_IN],
        out_split=split[_OUT],
        group_split=split[_GROUPS],
        serial_in_split=split[_SERIAL_IN],
        serial_out_split=split[_SERIAL_OUT],
        tiles_used=math.prod(split) // (split[_SERIAL_IN] * split[_SERIAL_OUT]),
        compute_cycles=math.ceil(cost.compute[index]),
        exchange_cycles=math.ceil(cost.exchange[index]),
        reduce_cycles=math.ceil(cost.reduce[index]),
        transform_cycles=math.ceil(cost.transform[index]),
        exchange_bytes=math.ceil(cost.exchange_bytes[index]),
        temporary_bytes=math.ceil(cost.temporary_bytes[index]),
        interleaved_bytes=math.ceil(cost.interleaved_bytes[index]),
        confidence=Confidence.CALIBRATED if _is_measured(target, form) else Confidence.DERIVED,
    )


def _best(
    target: Target,
    costs: list[tuple[ConvolutionForm, Array, _Cost]],
    most_bytes: float,
    most_interleaved: float,
) -> ConvolutionPlan | None:
    """Returns the fastest plan within bounds of temporary memory, `None` if none is."""
    best, found = math.inf, None
    # A plan must not depend on anything but its arguments, so of equal ones the first wins.
    for form, grid, cost in costs:
        cycles = np.where(cost.fits(most_bytes, most_interleaved), cost.cycles, math.inf)
        index = int(np.argmin(cycles))
        if cycles[index] < best:
            best, found = cycles[index], _plan_of(target, form, grid[:, index], cost, index)
    return found


def plan(
    target: Target,
    convolution: Convolution,
    *,
    memory_proportion: float = AVAILABLE_MEMORY_PROPORTION,
    num_tiles: int | None = None,
) -> ConvolutionPlan:
    """Returns the fastest way to compute a convolution in bounded temporary memory.

    If nothing fits, the bound is doubled; if that does not help, the plan with the least
    temporary memory is taken, as in poplibs. What has to be interleaved fits into memory that
    is.

    Example:

    >>> from ipu_keras.cost.products.convolutions import matmul
    >>> from ipu_keras.machine.target import TARGETS
    >>> product = matmul(1, 1024, 1024, 1024, "float16")
    >>> plan(TARGETS["gc200"], product).method
    'amp 1x1'
    """
    tiles = target.num_tiles if num_tiles is None else num_tiles
    if memory_proportion < 0 or tiles < 1:
        raise ValueError(
            "A plan needs a `memory_proportion` of 0 or more, and at least one of `num_tiles`. "
            f"Received: memory_proportion={memory_proportion}, num_tiles={tiles}"
        )
    bound = memory_proportion * target.tile_bytes
    forms = list(forms_of(target, convolution))
    grids = [_candidates(target, form, tiles) for form in forms]
    costs = [(f, grid, _cost(target, f, grid, tiles)) for f, grid in zip(forms, grids, strict=True)]
    interleaved = target.interleaved_bytes
    fastest = _best(target, costs, math.inf, interleaved)
    # Serial steps only take time, so they matter where memory is short.
    if fastest is not None and fastest.temporary_bytes <= bound:
        return fastest
    pairs = zip(forms, grids, strict=True)
    stepped = [(f, _with_serial_steps(f, f.grains(target), grid)) for f, grid in pairs]
    costs = [(f, grid, _cost(target, f, grid, tiles)) for f, grid in stepped]
    # There is always a vertex that needs no interleaved memory.
    least = min(
        float(cost.temporary_bytes[cost.fits(math.inf, interleaved)].min(initial=math.inf))
        for _, _, cost in costs
    )
    found = (_best(target, costs, most, interleaved) for most in (bound, 2 * bound, least))
    return next(planned for planned in found if planned is not None)


class Plans:
    """Remembers plans, as layers repeat and one plan is searched for among thousands."""

    def __init__(self, target: Target):
        self._target = target
        self._made: dict[tuple[Convolution, float], ConvolutionPlan] = {}

    def find_or_make(self, convolution: Convolution, memory_proportion: float) -> ConvolutionPlan:
        """Returns the plan of a convolution, or of a matrix product as one."""
        key = convolution, memory_proportion
        if key not in self._made:
            self._made[key] = plan(self._target, convolution, memory_proportion=memory_proportion)
        return self._made[key]
