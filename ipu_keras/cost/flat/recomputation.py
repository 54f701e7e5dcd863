"""Saves memory for more cycles: activations are computed twice instead of kept."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ipu_keras.cost.flat.compute_sets import DETERMINISTIC, ComputeSet, FlatProgram, Value
from ipu_keras.cost.flat.control_flow import is_in_loop
from ipu_keras.cost.flat.layer_order import LayerOrder, crossing_bytes, layer_order
from ipu_keras.ir import UNKNOWN

# Tensors of at most so many bytes lie on one tile, and are kept: counts, rates, seeds of draws.
KEPT_BYTES = 128

# Random draws give the same again from the same seed, which is kept: 8 bytes. TensorFlow for
# IPUs draws dropout's mask again, too.
REPEATABLE = DETERMINISTIC | {"random", "pooling", "gather", "norm", "scan", "softmax"}

# Families that may give something else the second time, or that reach others than the IPU.
_UNREPEATABLE = frozenset({UNKNOWN, "collective", "stream copy"})

SUFFIX = "/recomputed"


def recompute(program: FlatProgram) -> FlatProgram:
    """Drops activations after their forward use, and computes them again for the gradient.

    The layers are cut into about as many segments as the square root of their number, where
    little is handed over. What crosses a cut is a checkpoint and stays in memory, as do the last
    segment's activations, which the gradient needs first. Any other segment runs again, as far
    as the gradient needs it, just before the gradient first asks for one of its values. Loops,
    and what a loop changes in place, are not repeated. Checkpoints that the program asks for
    stay too, and segments end behind the layers that make them. A program without a gradient
    stays as it is.
    """
    order = layer_order(program)
    segments = _segments(program, order)
    if max(segments, default=0) == 0:
        return program
    return _Recomputation(program, order, segments).run()


def is_repeatable(one: ComputeSet) -> bool:
    """Whether a compute set gives the same again."""
    if one.body is None:
        return one.family in REPEATABLE
    # An operation of Poplar's libraries runs again as a whole, with the loops that it consists
    # of.
    return is_deterministic(one.body.compute_sets)


def is_deterministic(compute_sets: Iterable[ComputeSet]) -> bool:
    """Whether compute sets that run as a whole give the same again, whatever they change."""
    return all(
        one.family not in _UNREPEATABLE
        if one.body is None
        else is_deterministic(one.body.compute_sets)
        for one in compute_sets
    )


@dataclass(frozen=True)
class _Uses:
    """Segments of the forward pass that read a value, and who reads it first afterwards."""

    forward: Mapping[str, set[int]]
    first_late: Mapping[str, int]
    in_loops: set[str]


class _Recomputation:
    def __init__(self, program: FlatProgram, order: LayerOrder, segments: Sequence[int]):
        self._program = program
        self._segment = _segment_by_position(program, order, segments)
        self._last_segment = max(segments)
        self._made = {v.name: k for k, one in enumerate(program.compute_sets) for v in one.writes}
        self._uses = _uses_of(program, self._segment)
        self._results = {*program.results, *program.updates}
        self._repeated = self._repeated_sets()

    def run(self) -> FlatProgram:
        by_variable = self._segments_by_variable()
        program = self._program
        done: set[int] = set()
        compute_sets: list[ComputeSet] = []
        values = dict(program.values)
        for position, one in enumerate(program.compute_sets):
            if self._segment[position] is not None:
                compute_sets.append(one)
                continue
            for segment in self._needed_before(one, by_variable):
                if segment not in done:
                    done.add(segment)
                    again = [self._copy(k) for k in self._repeated[segment]]
                    compute_sets += again
                    values.update((v.name, v) for clone in again for v in clone.writes)
            compute_sets.append(replace(one, reads=tuple(map(self._renamed, one.reads))))
        return replace(program, compute_sets=tuple(compute_sets), values=values)

    def _repeated_sets(self) -> dict[int, list[int]]:
        found: dict[int, set[int]] = defaultdict(set)
        pending = [name for name in self._uses.first_late if self._is_dropped(name)]
        earliest: dict[int, int] = {}
        for name in pending:
            segment, first = self._segment_of(name), self._uses.first_late[name]
            earliest[segment] = min(first, earliest.get(segment, first))
        while pending:
            name = pending.pop()
            position, segment = self._made[name], self._segment_of(name)
            if position not in found[segment]:
                found[segment].add(position)
                reads = self._program.compute_sets[position].reads
                pending += [name for name in reads if self._is_dropped(name)]
        # XLA may have moved a part of the gradient before the end of its segment's forward pass.
        return {
            segment: sorted(positions)
            for segment, positions in found.items()
            if max(positions) < earliest[segment]
        }

    def _segment_of(self, name: str) -> int:
        segment = self._segment[self._made[name]]
        assert segment is not None, "only forward values are dropped"
        return segment

    def _is_dropped(self, name: str) -> bool:
        """Whether a value leaves memory after the forward pass of its segment."""
        position = self._made.get(name)
        segment = None if position is None else self._segment[position]
        if position is None or segment is None or segment == self._last_segment:
            return False
        one = self._program.compute_sets[position]
        return (
            is_repeatable(one)
            and name not in self._program.checkpoints
            and not is_in_loop(one)
            and self._program.values[name].spec.nbytes > KEPT_BYTES
            and name not in self._results
            and name not in self._uses.in_loops
            and self._uses.forward.get(name, set()) <= {segment}
        )

    def _segments_by_variable(self) -> dict[str, list[int]]:
        """Returns segments that read a variable again, which has to be before its update."""
        found: dict[str, list[int]] = defaultdict(list)
        for segment, positions in self._repeated.items():
            reads = {name for k in positions for name in self._program.compute_sets[k].reads}
            for name in reads:
                found[name].append(segment)
        return found

    def _needed_before(
        self, one: ComputeSet, by_variable: Mapping[str, Iterable[int]]
    ) -> list[int]:
        read = [self._segment_of(name) for name in one.reads if self._comes_again(name)]
        written = [self._program.updates.get(value.name) for value in one.writes]
        updated = [s for name in written if name is not None for s in by_variable.get(name, ())]
        return sorted({*read, *updated}, reverse=True)

    def _comes_again(self, name: str) -> bool:
        return self._is_dropped(name) and self._segment_of(name) in self._repeated

    def _renamed(self, name: str) -> str:
        return f"{name}{SUFFIX}" if self._comes_again(name) else name

    def _copy(self, position: int) -> ComputeSet:
        one = self._program.compute_sets[position]
        return replace(
            one,
            name=f"{one.name}{SUFFIX}",
            reads=tuple(map(self._renamed, one.reads)),
            writes=tuple(Value(f"{v.name}{SUFFIX}", v.spec) for v in one.writes),
            backward=True,
        )


def _segments(program: FlatProgram, order: LayerOrder) -> list[int]:
    """Returns the segment of each layer: cuts where few bytes cross, and behind checkpoints."""
    stored = _stored_bytes(program, order)
    # With k segments, checkpoints and the activations of one segment are in memory: k + n / k
    # shares, least at the square root of n. Layers that leave nothing for the gradient do not
    # count.
    count = math.isqrt(sum(size > 0 for size in stored))
    total = max(sum(stored), 1)
    best: dict[int, tuple[int, int, int]] = {}
    before = 0
    for layer, crossing in enumerate(crossing_bytes(program, order)):
        before += stored[layer]
        # The nearest end of a share, in integers: rounded halves must not depend on floating
        # point.
        share = (2 * before * count + total) // (2 * total)
        # Around the end of each equal share of the bytes that the gradient needs, the cut over
        # which the fewest bytes go; of equal ones, the nearest.
        if 0 < share < count:
            cut = crossing, abs(before * count - share * total), layer
            best[share] = min(best.get(share, cut), cut)
    cuts = {layer for *_, layer in best.values()} | _layers_of_checkpoints(program, order)
    segments, segment = [], 0
    for layer in range(order.num_layers):
        segments.append(segment)
        segment += layer in cuts
    return segments


def _layers_of_checkpoints(program: FlatProgram, order: LayerOrder) -> set[int | None]:
    return {
        order.layer_of(one)
        for position, one in enumerate(program.compute_sets)
        if order.forward[position]
        and not {value.name for value in one.writes}.isdisjoint(program.checkpoints)
    }


def _stored_bytes(program: FlatProgram, order: LayerOrder) -> list[int]:
    """Returns, by layer, the bytes that its forward pass leaves for the gradient."""
    stored = [0] * order.num_layers
    layers: dict[str, int] = {}
    for position, one in enumerate(program.compute_sets):
        layer = order.layer_of(one)
        if order.forward[position] and layer is not None:
            layers.update((value.name, layer) for value in one.writes)
            continue
        for name in one.reads:
            if name in layers:
                stored[layers.pop(name)] += program.values[name].spec.nbytes
    return stored


def _segment_by_position(
    program: FlatProgram, order: LayerOrder, segments: Sequence[int]
) -> list[int | None]:
    found: list[int | None] = []
    for position, one in enumerate(program.compute_sets):
        layer = order.layer_of(one) if order.forward[position] else None
        found.append(None if layer is None else segments[layer])
    return found


def _uses_of(program: FlatProgram, segment: Sequence[int | None]) -> _Uses:
    forward: dict[str, set[int]] = defaultdict(set)
    first_late: dict[str, int] = {}
    in_loops: set[str] = set()
    for position, one in enumerate(program.compute_sets):
        here = segment[position]
        for name in one.reads:
            if here is None:
                first_late.setdefault(name, position)
            else:
                forward[name].add(here)
        if is_in_loop(one):
            in_loops.update(one.reads)
    return _Uses(forward, first_late, in_loops)
