"""Where values lie on the tiles, and how full each tile becomes."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ipu_keras.compiler.compute_sets import FlatProgram, Value
from ipu_keras.compiler.liveness import Lifetime, lifetimes
from ipu_keras.program import TensorSpec
from ipu_keras.target import Target

# A tile holds at least so much of a tensor: poputil's linear mapping spreads no
# thinner, so that small tensors do not touch every tile.
MIN_BYTES_PER_TILE = 128


@dataclass(frozen=True)
class Region:
    """A value spread evenly over tiles that follow each other.

    Args:
        first_tile: The tile of its first elements; after the last tile comes tile 0.
        num_tiles: How many tiles hold some of it.
        bytes_per_tile: On the fullest of them, in bytes.
    """

    first_tile: int
    num_tiles: int
    bytes_per_tile: int


@dataclass(frozen=True, kw_only=True)
class Overhead:
    """Bytes that one tile needs besides its values.

    Args:
        vertex_code: Code of vertices, shared by all of a type.
        vertex_state: Fields and edges of every vertex.
        control_code: The tile's part of the program.
        exchange_code: Instructions of all exchanges.
        message_buffers: Rearranged data of the largest exchange.
        stack: Stacks of the threads.
    """

    vertex_code: int = 0
    vertex_state: int = 0
    control_code: int = 0
    exchange_code: int = 0
    message_buffers: int = 0
    stack: int = 0


def _nothing() -> np.ndarray:
    return np.zeros(1, np.int64)


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """How full the tiles become: those of IPU 0, then those of IPU 1, and so on.

    Args:
        bytes_by_category: Over all tiles, in the categories of Poplar's report.
        always_live_by_tile: `(tiles,)` bytes that are in use all the time.
        peak_by_tile: `(tiles,)` bytes, always-live ones included, when the tile
            is fullest.
        peak_position: The compute set at which the worst tile is fullest.
        live_by_position: `(compute sets,)` bytes over all tiles that are in use
            besides those always live.
        tile_bytes: What a tile has.
        num_ipus: IPUs that have these tiles, in equal numbers.
    """

    bytes_by_category: Mapping[str, int] = field(default_factory=dict)
    always_live_by_tile: np.ndarray = field(default_factory=_nothing)
    peak_by_tile: np.ndarray = field(default_factory=_nothing)
    peak_position: int = 0
    live_by_position: np.ndarray = field(default_factory=_nothing)
    tile_bytes: int = 0
    num_ipus: int = 1

    @property
    def worst_tile(self) -> int:
        """The tile that becomes fullest, counted over all IPUs."""
        return int(self.peak_by_tile.argmax())

    @property
    def worst_ipu(self) -> int:
        """The IPU of the tile that becomes fullest."""
        return self.worst_tile // (len(self.peak_by_tile) // self.num_ipus)

    @property
    def max_tile_bytes(self) -> int:
        """Bytes on the worst tile."""
        return int(self.peak_by_tile.max())

    @property
    def total_bytes(self) -> int:
        """Bytes over all tiles, each when it is fullest."""
        return int(self.peak_by_tile.sum())

    @property
    def fits(self) -> bool:
        """Whether no tile of any IPU needs more than it has."""
        return self.max_tile_bytes <= self.tile_bytes


def num_tiles_of(spec: TensorSpec, target: Target) -> int:
    """How many tiles a tensor is spread over.

    Args:
        spec: The tensor's.
        target: Whose tiles.
    """
    return max(1, min(target.num_tiles, math.ceil(spec.nbytes / MIN_BYTES_PER_TILE)))


def map_linearly(values: Iterable[Value], target: Target) -> dict[str, Region]:
    """Spreads every value over the tiles, each starting where the one before ended.

    Args:
        values: In the order in which they are mapped.
        target: Whose tiles.

    Returns:
        Regions by names of values.
    """
    regions = {}
    next_tile = 0
    for value in values:
        tiles = num_tiles_of(value.spec, target)
        regions[value.name] = Region(next_tile, tiles, math.ceil(value.spec.nbytes / tiles))
        next_tile = (next_tile + tiles) % target.num_tiles
    return regions


def plan_memory(
    program: FlatProgram,
    regions: Mapping[str, Region],
    target: Target,
    *,
    temporary_bytes: Sequence[int],
    overhead: Overhead,
) -> MemoryPlan:
    """Adds up what is on each tile of one IPU at each position of the program.

    Args:
        program: In the order of execution; of its values, those on that IPU.
        regions: Where its values lie.
        target: Whose tiles.
        temporary_bytes: For each compute set, what every tile needs while it runs.
        overhead: What every tile needs besides.

    Returns:
        The plan.
    """
    always = {"variable": np.zeros(target.num_tiles, np.int64)}
    always["constant"] = always["variable"].copy()
    for name, value in program.values.items():
        if value.role in always:
            _fill(always[value.role], regions[name])
    live = _live_bytes(program, regions, target, lifetimes(program))
    live += np.asarray([*temporary_bytes, 0], np.int64)[: len(live), None]
    fixed = sum(vars(overhead).values())
    always_live = always["variable"] + always["constant"] + fixed
    peak = live.max(axis=0)
    categories = {
        "variables": int(always["variable"].sum()),
        "constants": int(always["constant"].sum()),
        "activations": int(peak.sum()),
    }
    categories.update((name, size * target.num_tiles) for name, size in vars(overhead).items())
    return MemoryPlan(
        bytes_by_category=categories,
        always_live_by_tile=always_live,
        peak_by_tile=always_live + peak,
        peak_position=int(live[:, (always_live + peak).argmax()].argmax()),
        live_by_position=live.sum(axis=1),
        tile_bytes=target.tile_bytes,
    )


def joined(plans: Sequence[MemoryPlan]) -> MemoryPlan:
    """The plan of several IPUs.

    Args:
        plans: Of each IPU, for the same program.
    """
    worst = max(plans, key=lambda plan: plan.max_tile_bytes)
    return MemoryPlan(
        bytes_by_category={
            name: sum(plan.bytes_by_category[name] for plan in plans)
            for name in plans[0].bytes_by_category
        },
        always_live_by_tile=np.concatenate([plan.always_live_by_tile for plan in plans]),
        peak_by_tile=np.concatenate([plan.peak_by_tile for plan in plans]),
        peak_position=worst.peak_position,
        live_by_position=np.sum([plan.live_by_position for plan in plans], axis=0),
        tile_bytes=plans[0].tile_bytes,
        num_ipus=len(plans),
    )


def alive_on_worst_tile(
    program: FlatProgram, regions: Mapping[str, Region], memory: MemoryPlan
) -> Iterator[tuple[str, int]]:
    """Names and bytes of what lies on the worst tile when it is fullest.

    Args:
        program: As it was planned.
        regions: As they were planned.
        memory: The plan.
    """
    alive = lifetimes(program)
    num_tiles = len(memory.peak_by_tile) // memory.num_ipus
    for name, region in regions.items():
        if program.values[name].ipu != memory.worst_ipu:
            continue
        lifetime = alive.get(name)
        now = lifetime is not None and lifetime.first <= memory.peak_position <= lifetime.last
        always = program.values[name].role in ("variable", "constant")
        tile = (memory.worst_tile - region.first_tile) % num_tiles
        if (now or always) and tile < region.num_tiles:
            yield name, region.bytes_per_tile


def _live_bytes(
    program: FlatProgram,
    regions: Mapping[str, Region],
    target: Target,
    alive: Mapping[str, Lifetime],
) -> np.ndarray:
    """`(compute sets, tiles)`: bytes of the values that are not always live.

    Each value changes four corners of a table whose sums along both axes are
    the bytes, so that the time does not depend on how long or wide it lives.
    """
    positions = max(len(program.compute_sets), 1)
    table = np.zeros((positions + 1, target.num_tiles + 1), np.int64)
    for name, lifetime in alive.items():
        region = regions[name]
        for start, stop in _spans(region, target.num_tiles):
            table[lifetime.first, start] += region.bytes_per_tile
            table[lifetime.first, stop] -= region.bytes_per_tile
            table[lifetime.last + 1, start] -= region.bytes_per_tile
            table[lifetime.last + 1, stop] += region.bytes_per_tile
    np.cumsum(table, axis=0, out=table)
    np.cumsum(table, axis=1, out=table)
    return table[:-1, :-1]


def _fill(tiles: np.ndarray, region: Region) -> None:
    for start, stop in _spans(region, len(tiles)):
        tiles[start:stop] += region.bytes_per_tile


def _spans(region: Region, num_tiles: int) -> Iterable[tuple[int, int]]:
    stop = region.first_tile + region.num_tiles
    yield region.first_tile, min(stop, num_tiles)
    if stop > num_tiles:
        yield 0, stop - num_tiles
