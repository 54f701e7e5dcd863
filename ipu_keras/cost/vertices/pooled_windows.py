"""Costs pooling over windows, as popnn plans it."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.flat.layouts import item_bytes
from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.cost import Cost, arrival_cycles
from ipu_keras.cost.tile.vertices import PooledRun
from ipu_keras.cost.vertices.context import CostContext
from ipu_keras.cost.vertices.reductions import reduction_cost
from ipu_keras.ir import Op, TensorSpec, num_elements
from ipu_keras.machine.target import Target

# Channels that lie next to each other in what convolutions make, which is what is pooled, have
# so many bytes at least (poplibs, the units of AMP): other groups have to be made of these.
_GROUP_BYTES = 16


@dataclass(frozen=True)
class _FieldAxis:
    """An axis of the field: which windows of `size` elements, `step` apart, `results` have.

    Between elements of what is pooled lie `dilation - 1` that count for nothing: so have the
    windows of a gradient.
    """

    results: int
    operands: int
    size: int
    step: int = 1
    dilation: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether the only window is all there is."""
        return self.results == 1 and self.size == self.operands

    def read(self, results: int) -> int:
        """Returns how many elements so many results next to each other need."""
        reach = (results - 1) * self.step + self.size
        return min(math.ceil(reach / self.dilation), self.operands)

    def counted(self, result: int) -> int:
        """Returns how many elements of a result's window count."""
        return math.ceil(max(self.size - result % self.dilation, 0) / self.dilation)


@dataclass(frozen=True)
class _Pooling:
    """A pooling: of each element of a batch and each vector of channels, the windows of a field."""

    dtype: str
    batch: int
    vectors: int
    axes: tuple[_FieldAxis, ...]
    backward: bool

    @property
    def operands_beside(self) -> int:
        """How many values of the field's size are read: of a maximum's gradient, what it was of."""
        return 2 if self.backward else 1


@dataclass(frozen=True)
class _PooledPart:
    """What the fullest tile has: results along each axis, and vectors of channels."""

    batch: int
    vectors: int
    results: tuple[int, ...]
    tiles: int


def cost_of_pooling(one: ComputeSet, context: CostContext) -> Cost:
    """Costs a reduction over windows, or its gradient, where popnn's plan has it."""
    op, source, output = one.ops[-1], one.operands[0], one.writes[0].spec
    if not num_elements(output):
        return Cost(vertex=op.kind)
    pooling = _pooling_of(op, source, output, context.target)
    if not pooling.backward and all(axis.is_whole for axis in pooling.axes):
        # So does popnn, too, where the window is the field.
        return reduction_cost(
            context.target,
            operation=op.attributes["operation"],
            source=source,
            axes=[axis for axis, size in enumerate(op.attributes["window_size"]) if size > 1],
            num_outputs=num_elements(output),
        )
    return _planned_cost(pooling, context.target, op.kind)


def _pooling_of(op: Op, source: TensorSpec, output: TensorSpec, target: Target) -> _Pooling:
    shape = output.shape
    sizes, steps = op.attributes["window_size"], op.attributes["window_stride"]
    spread, between = op.attributes["window_dilation"], op.attributes["base_dilation"]
    backward = op.kind == "select-and-scatter"
    field = [k for k, size in enumerate(sizes) if max(size, steps[k], between[k]) > 1]
    # Windows of one element are those of any axis.
    field = field or [len(shape) - 1]
    axes = []
    for axis in field:
        reach = (sizes[axis] - 1) * spread[axis] + 1
        if backward:
            # Each element of what was pooled has the windows that it was in.
            pooled = math.ceil(shape[axis] / steps[axis])
            axes.append(_FieldAxis(shape[axis], pooled, reach, dilation=steps[axis]))
        else:
            given = source.shape[axis]
            axes.append(_FieldAxis(shape[axis], given, reach, steps[axis], between[axis]))
    batch = math.prod(shape[: field[0]])
    channels = num_elements(output) // (batch * math.prod(axis.results for axis in axes))
    # Where there are too few channels for a vector, popnn takes elements of the batch instead.
    vector = max(target.vector_bytes // item_bytes(output), 1)
    if channels % vector:
        batch, channels = 1, batch * channels
    return _Pooling(output.dtype, batch, math.ceil(channels / vector), tuple(axes), backward)


def _planned_cost(pooling: _Pooling, target: Target, kind: str) -> Cost:
    part = _plan(pooling, target)
    runs = _runs(pooling, part, target.num_workers)
    cycles = vertices.pooling(
        target,
        dtype=pooling.dtype,
        vectors=part.vectors,
        runs=runs,
        backward=pooling.backward,
    )
    received = _received(pooling, part, target)
    regrouped = _regrouping_cycles(received, part, target)
    return Cost(
        compute_cycles=cycles.cycles + target.launch_cycles,
        exchange_cycles=arrival_cycles(target, received) + regrouped,
        sync_cycles=target.sync_cycles,
        exchange_bytes=received,
        # The codelets of popnn ask for it.
        separate_bytes=received,
        num_vertices=1,
        tiles=part.tiles,
        vertex=kind,
        confidence=cycles.confidence,
    )


def _plan(pooling: _Pooling, target: Target) -> _PooledPart:
    """Returns the split with the fewest cycles as popnn's planner estimates them.

    As by that, batch, field and channels are divided, never windows. Of the field's innermost
    axis, a tile has the least that tiles allow.
    """
    return min(_parts(pooling, target.num_tiles), key=lambda part: _estimate(pooling, part, target))


def _estimate(pooling: _Pooling, part: _PooledPart, target: Target) -> float:
    """Returns cycles that do not depend on where the rows of workers end, nor on padding."""
    axes = list(zip(pooling.axes, part.results, strict=True))
    windows = math.prod(axis.size / axis.dilation for axis, _ in axes)
    each = math.ceil(part.batch * math.prod(part.results) / target.num_workers)
    run = PooledRun(each, math.ceil(windows))
    cycles = vertices.pooling(
        target,
        dtype=pooling.dtype,
        vectors=part.vectors,
        runs=[[run]],
        backward=pooling.backward,
    )
    elements = math.prod(
        ((count - 1) * axis.step + axis.size) / axis.dilation for axis, count in axes
    )
    elements *= part.batch * part.vectors * pooling.operands_beside
    sent = math.ceil(elements * target.vector_bytes)
    return cycles.cycles + sent / target.exchange_bytes + _regrouping_cycles(sent, part, target)


def _parts(pooling: _Pooling, num_tiles: int) -> Iterator[_PooledPart]:
    *outer, inner = pooling.axes
    amounts = (pooling.batch, pooling.vectors, *(axis.results for axis in outer))
    for sizes in itertools.product(*map(_shares, amounts)):
        parts = math.prod(map(_num_parts, amounts, sizes))
        if parts > num_tiles:
            continue
        columns = math.ceil(inner.results / (num_tiles // parts))
        tiles = parts * _num_parts(inner.results, columns)
        yield _PooledPart(sizes[0], sizes[1], (*sizes[2:], columns), tiles)


def _regrouping_cycles(num_bytes: int, part: _PooledPart, target: Target) -> int:
    """Returns the cycles of another grouping of channels, which popnn counts as an exchange."""
    if part.vectors * target.vector_bytes % _GROUP_BYTES == 0:
        return 0
    return math.ceil(num_bytes / target.exchange_bytes)


def _num_parts(amount: int, size: int) -> int:
    return -(-amount // size)


def _shares(amount: int) -> list[int]:
    """Returns the sizes of the largest part for each number of parts."""
    root = math.isqrt(amount)
    few = {-(-amount // parts) for parts in range(1, root + 1)}
    return sorted(few | set(range(1, root + 1)))


def _received(pooling: _Pooling, part: _PooledPart, target: Target) -> int:
    """Returns the bytes that arrive on the fullest tile."""
    pairs = list(zip(pooling.axes, part.results, strict=True))
    elements = pooling.operands_beside * math.prod(axis.read(count) for axis, count in pairs)
    if pooling.backward:
        elements += math.prod(part.results)
    return part.batch * part.vectors * elements * target.vector_bytes


def _runs(pooling: _Pooling, part: _PooledPart, num_workers: int) -> list[list[PooledRun]]:
    """Deals a tile's results to workers, as one run of all rows that breaks where a row ends."""
    total = part.batch * math.prod(part.results)
    bounds = [worker * total // num_workers for worker in range(num_workers + 1)]
    dealt: list[list[PooledRun]] = [[] for _ in range(num_workers)]
    worker = start = 0
    for row in _rows(pooling.axes, part):
        stop = start + row.num_outputs
        while start < stop:
            while bounds[worker + 1] <= start:
                worker += 1
            end = min(stop, bounds[worker + 1])
            dealt[worker].append(PooledRun(end - start, row.window_elements))
            start = end
    return dealt


def _rows(axes: Sequence[_FieldAxis], part: _PooledPart) -> Iterator[PooledRun]:
    """Yields rows of results whose windows have as many elements that count."""
    *outer, inner = zip(axes, part.results, strict=True)
    axis, columns = inner
    ways = [(len(range(k, columns, axis.dilation)), axis.counted(k)) for k in range(axis.dilation)]
    for _ in range(part.batch):
        for place in itertools.product(*(range(count) for _, count in outer)):
            above = math.prod(each.counted(k) for (each, _), k in zip(outer, place, strict=True))
            for count, counted in ways:
                if count:
                    yield PooledRun(count, above * counted)
