"""Plans how a convolution or matrix product is spread over the tiles, and what it costs there.

The search is that of poplibs' planner in one level. Operands lie as the plan wants them: what
brings them there from other operations is not counted.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

from ipu_keras.cost.memory_sizes import AVAILABLE_MEMORY_PROPORTION
from ipu_keras.cost.products.convolution_costs import (
    BATCH,
    FIELD,
    GROUPS,
    IN,
    KERNEL,
    OUT,
    SERIAL_IN,
    SERIAL_OUT,
    CandidateCosts,
    costs_of,
)
from ipu_keras.cost.products.convolution_forms import ConvolutionForm, forms_of
from ipu_keras.cost.products.convolutions import Convolution, ceil_divide
from ipu_keras.machine.target import Confidence, Target

# Each candidate splits the work over tiles and over serial steps. Of those whose temporary memory
# fits, that is taken which poplibs' planner takes for the fastest (`convolution_costs`).

Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class ConvolutionPlan:
    """A convolution's split over tiles and time, and its cost over all serial steps.

    Args:
        method: `"amp 1x1"`, `"amp nx1"`, `"slic"`, `"horizontal mac"`, `"vertical mac"` or
            `"outer product"`.
        transforms: What happens to the tensors first: `"expand"` (elements of the kernel become
            channels), `"flatten to channels"` (outputs and inputs along a dimension do),
            `"combine groups"`, `"pad channels"`, `"swap operands"` (positions become output
            channels).
        batch_split: Parts of the batch; 1 where it is one with the field.
        field_splits: Parts of the field, by dimension of the transformed field.
        kernel_split: Parts of the kernel's first dimension.
        serial_in_split: Steps over input channels, whose results are added.
        compute_cycles: Cycles of the vertices, launches included.
        exchange_cycles: Cycles of moving inputs and weights, syncs included.
        reduce_cycles: Cycles of exchange, sums and cast of partials.
        transform_cycles: Cycles of transforms, and of slices of serial steps.
        exchange_bytes: Bytes that the busiest tile receives.
        temporary_bytes: Bytes that the fullest tile needs beside operands and result, where these
            lie otherwise than the plan wants them.
        staying_bytes: Those of them of the input, and of the weights, that are not needed where it
            is allocated for the plan, or they are.
        summing_bytes: Those of partials and their sums, after the product.
        interleaved_bytes: Those of them that have to lie in interleaved memory.
        state_bytes: Bytes of the fullest tile's vertices, all the time.
        estimated_cycles: Cycles that poplibs' planner chose it by.
        estimated_bytes: Bytes of a tile that it compared with its bound.
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
    staying_bytes: tuple[int, int]
    summing_bytes: int
    interleaved_bytes: int
    state_bytes: int
    estimated_cycles: int
    estimated_bytes: int
    confidence: Confidence

    def temporary_bytes_with(self, allocated: tuple[bool, bool]) -> int:
        """Returns the temporary bytes if input and weights are allocated for the plan, or not."""
        pairs = zip(self.staying_bytes, allocated, strict=True)
        staying = sum(num_bytes for num_bytes, is_allocated in pairs if is_allocated)
        return max(self.temporary_bytes - staying, self.summing_bytes)

    @property
    def cycles(self) -> int:
        """Cycles from the first phase's sync to the end of the last."""
        phases = self.compute_cycles + self.exchange_cycles + self.reduce_cycles
        return phases + self.transform_cycles


# poplibs' estimate has no syncs and launches, so that it may spread a product over more tiles for
# longer. Its plan is taken if it takes no more than so much longer than those for fewer tiles: with
# less, small products meet on a tile, where poplibs leaves none, for vertices with more code.
_WORTH_OTHER_TILES = 0.08
_SERIAL_STEPS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


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
    field = convolution.field
    longest = field.index(max(field))
    axes = [
        _parts(convolution.groups, num_tiles),
        _parts(convolution.batch, num_tiles),
        # All dimensions of the kernel may be split but the innermost.
        _parts(ceil_divide(convolution.kernel_rows, form.kernel_height), num_tiles),
        _parts(ceil_divide(form.in_channels, in_grain), num_tiles),
        _parts(ceil_divide(form.out_channels, out_grain), num_tiles),
        [1],
        [1],
        *([1] if i == longest else _parts(n, 16) for i, n in enumerate(field)),
    ]
    parts = [np.array(axis) for axis in axes]
    # Most combinations need too many tiles; only the others are made.
    tiles = functools.reduce(np.multiply.outer, parts)
    chosen = np.nonzero(tiles <= num_tiles)
    tiles = tiles[chosen]
    grid = np.stack([each[index] for each, index in zip(parts, chosen, strict=True)])
    # The longest dimension takes all tiles that the others leave it, or as few as for fewer tiles.
    size, most = field[longest], num_tiles // tiles
    fewer = np.array(_parts(size, num_tiles))[:, None]
    filled = ceil_divide(size, ceil_divide(size, np.minimum(most, size)))
    splits = np.vstack([filled, np.where(fewer < filled, fewer, 0)])
    which, others = np.nonzero(splits)
    grid = grid[:, others]
    grid[FIELD + longest] = splits[which, others]
    return _fullest(grid)


def _fullest(grid: Array, most: int = 6000) -> Array:
    """Returns candidates without those that leave most tiles idle, if there are too many."""
    if grid.shape[1] <= most:
        return grid
    # NumPy sorts short integers in a tenth of the time.
    idle = -np.prod(grid, axis=0)
    idle = idle.astype(np.min_scalar_type(int(idle.min())))
    return grid[:, np.argsort(idle, kind="stable")[:most]]


def _with_serial_steps(target: Target, form: ConvolutionForm, grid: Array) -> Array:
    """Returns the candidates in every number of serial steps, over one kind of channels."""
    grains = form.grains(target)
    found = [grid]
    channels = [(SERIAL_OUT, OUT, form.out_channels, grains[1])]
    # Input channels take steps since 1.2, and only one kind of channels does.
    if target.sdk >= 1.2:
        channels.insert(0, (SERIAL_IN, IN, form.in_channels, grains[0]))
    for axis, parts_axis, size, grain in channels:
        for count in _SERIAL_STEPS:
            # Steps are equal.
            if size % count == 0:
                parts = ceil_divide(size, grain)
                serial = grid[:, grid[parts_axis] * count <= parts].copy()
                serial[axis] = count
                found.append(serial)
    return np.concatenate(found, axis=1)


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
    target: Target, form: ConvolutionForm, parts: Array, cost: CandidateCosts, index: int
) -> ConvolutionPlan:
    split = [int(n) for n in parts]
    staying = tuple(int(each[index]) for each in cost.staying_bytes)
    if "swap operands" in form.transforms:
        staying = staying[::-1]
    return ConvolutionPlan(
        method=form.method,
        transforms=form.transforms,
        batch_split=split[BATCH],
        field_splits=tuple(split[FIELD:]),
        kernel_split=split[KERNEL],
        in_split=split[IN],
        out_split=split[OUT],
        group_split=split[GROUPS],
        serial_in_split=split[SERIAL_IN],
        serial_out_split=split[SERIAL_OUT],
        tiles_used=int(_tiles_of(parts)),
        compute_cycles=math.ceil(cost.compute[index]),
        exchange_cycles=math.ceil(cost.exchange[index]),
        reduce_cycles=math.ceil(cost.reduce[index]),
        transform_cycles=math.ceil(cost.transform[index]),
        exchange_bytes=math.ceil(cost.exchange_bytes[index]),
        temporary_bytes=math.ceil(cost.temporary_bytes[index]),
        staying_bytes=(staying[0], staying[1]),
        summing_bytes=math.ceil(cost.summing_bytes[index]),
        interleaved_bytes=math.ceil(cost.interleaved_bytes[index]),
        state_bytes=math.ceil(cost.state_bytes[index]),
        estimated_cycles=math.ceil(cost.estimated_cycles[index]),
        estimated_bytes=math.ceil(cost.estimated_bytes[index]),
        confidence=Confidence.CALIBRATED if _is_measured(target, form) else Confidence.DERIVED,
    )


def _best(
    target: Target,
    costs: list[tuple[ConvolutionForm, Array, CandidateCosts]],
    most_bytes: float,
    most_interleaved: float,
) -> ConvolutionPlan | None:
    """Returns what poplibs takes for the fastest plan within bounds of memory, if there is one.

    Where its estimate misleads it, what it would take for fewer tiles is faster, and is returned.
    """
    fits = np.concatenate([cost.fits(most_bytes, most_interleaved) for _, _, cost in costs])
    (fitting,) = np.nonzero(fits)
    if not len(fitting):
        return None
    estimates = np.concatenate([cost.estimated_cycles for _, _, cost in costs])
    cycles = np.concatenate([cost.cycles for _, _, cost in costs])
    tiles = np.concatenate([_tiles_of(grid) for _, grid, _ in costs])
    # A plan must not depend on anything but its arguments, so of equal ones the first wins.
    order = fitting[np.lexsort((estimates[fitting], tiles[fitting]))]
    least = np.minimum.accumulate(estimates[order])
    # The plans for the fewest tiles, for more and so on, up to the one for all tiles.
    plans = order[np.concatenate([[True], least[1:] < least[:-1]])][::-1]
    plans = plans[_copies_as(plans[0], costs)[plans]]
    index = plans[np.argmax(cycles[plans] <= (1 + _WORTH_OTHER_TILES) * cycles[plans].min())]
    for form, grid, cost in costs:
        if index < grid.shape[1]:
            return _plan_of(target, form, grid[:, index], cost, index)
        index -= grid.shape[1]
    raise AssertionError("A candidate is of one of the forms.")


def _copies_as(index: int, costs: list[tuple[ConvolutionForm, Array, CandidateCosts]]) -> Array:
    """Returns which candidates copy what that one does: what copies take is least sure."""
    copies = [form.copies for form, _, _ in costs]
    sizes = [grid.shape[1] for _, grid, _ in costs]
    kinds = np.repeat([copies.index(each) for each in copies], sizes)
    return kinds == kinds[index]


def _tiles_of(grid: Array) -> Array:
    return np.prod(grid, axis=0) // (grid[SERIAL_IN] * grid[SERIAL_OUT])


# Layers repeat, and so do they in what is modelled in search of advice.
@functools.lru_cache(maxsize=4096)
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
    costs = [
        (f, grid, costs_of(target, f, grid, tiles)) for f, grid in zip(forms, grids, strict=True)
    ]
    interleaved = target.interleaved_bytes
    fastest = _best(target, costs, math.inf, interleaved)
    # Serial steps only take time, so they matter where memory is short.
    if fastest is not None and fastest.estimated_bytes <= bound:
        return fastest
    pairs = zip(forms, grids, strict=True)
    stepped = [(f, _with_serial_steps(target, f, grid)) for f, grid in pairs]
    costs = [(f, grid, costs_of(target, f, grid, tiles)) for f, grid in stepped]
    # There is always a vertex that needs no interleaved memory.
    least = min(
        float(cost.estimated_bytes[cost.fits(math.inf, interleaved)].min(initial=math.inf))
        for _, _, cost in costs
    )
    # Before 1.3, the plan of least memory was taken at once.
    bounds = (bound, 2 * bound, least) if target.sdk >= 1.3 else (bound, least)
    found = (_best(target, costs, most, interleaved) for most in bounds)
    return next(planned for planned in found if planned is not None)
