"""Decides where values lie on the tiles, and adds up how full each tile becomes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ipu_keras.cost.flat.compute_sets import FlatProgram
from ipu_keras.cost.flat.layouts import bytes_per_tile, num_tiles_of
from ipu_keras.cost.flat.liveness import Lifetime, lifetimes, storage
from ipu_keras.machine.target import Target

# Categories of memory that is in use only some of the time.
_NOT_ALWAYS_LIVE = ("activations", "message_buffers")
# Categories of values that are always live, by their roles.
_HELD = {"variable": "variables", "constant": "constants"}


@dataclass(frozen=True)
class Region:
    """A value spread evenly over tiles that follow each other; after the last comes tile 0.

    `bytes_per_tile` are those on the fullest of them.
    """

    first_tile: int
    num_tiles: int
    bytes_per_tile: int


@dataclass(frozen=True, kw_only=True)
class Overhead:
    """Bytes that one tile needs besides its values.

    Args:
        vertex_code: Code of vertices, which all vertices of a type share.
        vertex_state: Fields and edges of every vertex.
        control_code: The tile's part of the program.
        gaps: Bytes between the code and what follows, from `gap_after`.
    """

    vertex_code: int = 0
    vertex_state: int = 0
    control_code: int = 0
    exchange_code: int = 0
    gaps: int = 0
    stack: int = 0

    @property
    def code(self) -> int:
        """Bytes of instructions."""
        return self.vertex_code + self.control_code + self.exchange_code


def gap_after(code_bytes: int, target: Target) -> int:
    """Returns the bytes that stay free between the code of a tile and its values."""
    # Instructions are read ahead (64 bytes on a C600), so the memory element that the code ends
    # in has no values: an access to them would wait.
    return -code_bytes % target.memory_element_bytes


def _nothing() -> np.ndarray:
    return np.zeros(1, np.int64)


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """How full the tiles become: those of IPU 0, then those of IPU 1, and so on.

    Args:
        bytes_by_category: Bytes over all tiles, in the categories of Poplar's report.
        always_live_by_tile: `(tiles,)` bytes that are in use all the time.
        peak_by_tile: `(tiles,)` bytes when the tile is fullest, always-live ones included.
        peak_position: The compute set at which the worst tile is fullest.
        live_by_ipu: `(IPUs, compute sets)` bytes over all tiles of an IPU that are in use
            besides those always live.
        code_bytes: Instructions on one tile; all tiles have as many.
        code_region_bytes: The part of `tile_bytes` that instructions can be read from.
    """

    bytes_by_category: Mapping[str, int] = field(default_factory=dict)
    always_live_by_tile: np.ndarray = field(default_factory=_nothing)
    peak_by_tile: np.ndarray = field(default_factory=_nothing)
    peak_position: int = 0
    live_by_ipu: np.ndarray = field(default_factory=lambda: _nothing()[None])
    tile_bytes: int = 0
    code_bytes: int = 0
    code_region_bytes: int = 0
    num_ipus: int = 1

    @property
    def live_by_position(self) -> np.ndarray:
        """`(compute sets,)` bytes in use over the tiles of all IPUs, besides those always live."""
        return self.live_by_ipu.sum(axis=0)

    @property
    def num_tiles_of_ipu(self) -> int:
        return len(self.peak_by_tile) // self.num_ipus

    @property
    def max_bytes_by_ipu(self) -> np.ndarray:
        """`(IPUs,)` bytes on the fullest tile of each."""
        return self.peak_by_tile.reshape(self.num_ipus, -1).max(axis=1)

    @property
    def worst_tile(self) -> int:
        """The tile that becomes fullest, counted over all IPUs."""
        return int(self.peak_by_tile.argmax())

    @property
    def worst_ipu(self) -> int:
        return self.worst_tile // self.num_tiles_of_ipu

    @property
    def max_tile_bytes(self) -> int:
        return int(self.peak_by_tile.max())

    @property
    def total_bytes(self) -> int:
        """Bytes over all tiles, each when it is fullest."""
        return int(self.peak_by_tile.sum())

    @property
    def always_live_by_category(self) -> dict[str, int]:
        """Bytes over all tiles that are in use all the time."""
        sizes = self.bytes_by_category.items()
        return {name: size for name, size in sizes if name not in _NOT_ALWAYS_LIVE}

    @property
    def not_always_live_by_category(self) -> dict[str, int]:
        """Bytes over all tiles that are in use some of the time, each tile at its fullest."""
        sizes = self.bytes_by_category.items()
        return {name: size for name, size in sizes if name in _NOT_ALWAYS_LIVE}

    @property
    def fits(self) -> bool:
        """Whether no tile of any IPU needs more than it has, for its code or in all."""
        return self.max_tile_bytes <= self.tile_bytes and self.code_fits

    @property
    def bytes_by_region(self) -> dict[str, int]:
        """Bytes on the worst tile in each region of its memory, and those in excess of both."""
        # Instructions lie in the region that they can be read from, which is not interleaved.
        # All else fills the interleaved one first, where a load can be twice as wide, and goes
        # on in what instructions leave of the other. What has to be interleaved, partials of the
        # matrix unit, has room there, as plans see to it.
        interleaved = self.tile_bytes - self.code_region_bytes
        in_interleaved = min(self.max_tile_bytes - self.code_bytes, interleaved)
        others = self.max_tile_bytes - in_interleaved
        not_interleaved = min(others, self.code_region_bytes)
        return {
            "non_interleaved": not_interleaved,
            "interleaved": in_interleaved,
            "overflowed": others - not_interleaved,
        }

    @property
    def code_fits(self) -> bool:
        return self.code_bytes <= self.code_region_bytes


def map_linearly(program: FlatProgram, target: Target) -> dict[str, Region]:
    """Spreads every value over the tiles; what is in place of another lies where that does."""
    regions: dict[str, Region] = {}
    next_tile = 0
    owners = storage(program)
    for name, value in program.values.items():
        if owners[name] != name:
            continue
        tiles = num_tiles_of(value.spec, target)
        regions[value.name] = Region(next_tile, tiles, bytes_per_tile(value.spec, target))
        # Each starts where the one before ended, as the first tiles would hold all small values
        # otherwise.
        next_tile = (next_tile + tiles) % target.num_tiles
    return {name: regions[owners[name]] for name in program.values}


def plan_memory(
    program: FlatProgram,
    regions: Mapping[str, Region],
    target: Target,
    alive: Mapping[str, Lifetime],
    *,
    temporary_bytes: Sequence[int],
    message_bytes: Sequence[int],
    receivers: Sequence[int | None],
    overhead: Overhead,
) -> MemoryPlan:
    """Adds up what is on each tile of one IPU at each position of the program.

    Args:
        program: The values are those on that IPU, the compute sets those of all.
        alive: The `lifetimes` of these values, and maybe of others.
        temporary_bytes: For each compute set, what every tile needs while it runs.
        message_bytes: For each compute set, what arrives before it runs.
        receivers: The tiles that this arrives at, counted from the first; `None` are all.
    """
    held = held_by_tile(program, regions, target.num_tiles)
    alive = {name: lifetime for name, lifetime in alive.items() if name in program.values}
    reached = [target.num_tiles if n is None else n for n in receivers]
    needed = np.stack(
        [_by_position(sizes) for sizes in (temporary_bytes, message_bytes, reached)], axis=1
    )
    # Most compute sets of a pipeline change nothing on one IPU, and take no row of the table.
    firsts, spans = _spans_of_equal_bytes(alive, needed)
    temporary, messages, reached_tiles = needed[firsts].T
    rows = {name: Lifetime(spans[one.first], spans[one.last]) for name, one in alive.items()}
    live = _live_bytes(len(firsts), regions, target, rows)
    live += temporary[:, None]
    for here, size, num_tiles in zip(live, messages, reached_tiles, strict=True):
        here[:num_tiles] += size
    fixed = sum(vars(overhead).values())
    always_live = sum(held.values()) + fixed
    # Tiles are fullest at different times; Poplar's report adds up each one's peak too.
    peak = live.max(axis=0)
    fullest = live.argmax(axis=0)
    arrived = int(messages[fullest][np.arange(target.num_tiles) < reached_tiles[fullest]].sum())
    categories = {
        "variables": int(held["variables"].sum()),
        "constants": int(held["constants"].sum()),
        "activations": int(peak.sum()) - arrived,
        "message_buffers": arrived,
    }
    if program.stashes:
        categories["stashes"] = int(held["stashes"].sum())
    categories.update((name, size * target.num_tiles) for name, size in vars(overhead).items())
    return MemoryPlan(
        bytes_by_category=categories,
        always_live_by_tile=always_live,
        peak_by_tile=always_live + peak,
        peak_position=int(firsts[live[:, (always_live + peak).argmax()].argmax()]),
        live_by_ipu=live.sum(axis=1)[spans][None],
        tile_bytes=target.tile_bytes,
        code_bytes=overhead.code,
        code_region_bytes=target.code_region_bytes,
    )


def held_by_tile(
    program: FlatProgram, regions: Mapping[str, Region], num_tiles: int
) -> dict[str, np.ndarray]:
    """Returns `(tiles,)` bytes of the values of one IPU that are always live, by category."""
    held = {name: np.zeros(num_tiles, np.int64) for name in (*_HELD.values(), "stashes")}
    for name, value in program.values.items():
        if value.role in _HELD:
            _fill(held[_HELD[value.role]], regions[name])
        if name in program.stashes:
            _fill(held["stashes"], regions[name], program.stashes[name])
    return held


def peak_besides_results(
    program: FlatProgram,
    target: Target,
    *,
    temporary_bytes: Sequence[int],
    message_bytes: Sequence[int],
) -> int:
    """Returns the bytes on the fullest tile of what a program is not given and does not return."""
    owners = storage(program)
    returned = {owners[name] for name in program.results}
    values = {
        name: value
        for name, value in program.values.items()
        if value.role == "activation" and owners[name] not in returned
    }
    inside = replace(program, values=values)
    regions = map_linearly(inside, target)
    needed = _by_position(temporary_bytes) + _by_position(message_bytes)
    live = _live_bytes(len(needed), regions, target, lifetimes(inside))
    # Values of a body lie spread over all tiles: every tile needs about the bytes of the
    # fullest.
    return int((live.max(axis=1) + needed).max())


def joined(plans: Sequence[MemoryPlan]) -> MemoryPlan:
    """Returns the plan of several IPUs that run parts of the same program."""
    worst = max(plans, key=lambda plan: plan.max_tile_bytes)
    return MemoryPlan(
        bytes_by_category={
            name: sum(plan.bytes_by_category[name] for plan in plans)
            for name in plans[0].bytes_by_category
        },
        always_live_by_tile=np.concatenate([plan.always_live_by_tile for plan in plans]),
        peak_by_tile=np.concatenate([plan.peak_by_tile for plan in plans]),
        peak_position=worst.peak_position,
        live_by_ipu=np.concatenate([plan.live_by_ipu for plan in plans]),
        tile_bytes=plans[0].tile_bytes,
        num_ipus=len(plans),
        code_bytes=max(plan.code_bytes for plan in plans),
        code_region_bytes=plans[0].code_region_bytes,
    )


def alive_on_worst_tile(
    program: FlatProgram, regions: Mapping[str, Region], memory: MemoryPlan
) -> Iterator[tuple[str, int]]:
    """Yields names and bytes of what lies on the worst tile when it is fullest."""
    alive = lifetimes(program)
    for name, region in regions.items():
        if program.values[name].ipu != memory.worst_ipu:
            continue
        lifetime = alive.get(name)
        now = lifetime is not None and lifetime.first <= memory.peak_position <= lifetime.last
        always = program.values[name].role in ("variable", "constant")
        tile = (memory.worst_tile - region.first_tile) % memory.num_tiles_of_ipu
        copies = int(now or always) + program.stashes.get(name, 0)
        if copies and tile < region.num_tiles:
            yield name, region.bytes_per_tile * copies


def _spans_of_equal_bytes(
    alive: Mapping[str, Lifetime], needed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns where spans begin in which bytes stay the same, and the span of each position.

    `needed` has a row for each position, with what is needed there beside values.
    """
    begins = np.zeros(len(needed) + 1, bool)
    begins[0] = True
    begins[1:-1] = (needed[1:] != needed[:-1]).any(axis=1)
    for lifetime in alive.values():
        begins[[lifetime.first, lifetime.last + 1]] = True
    begins = begins[:-1]
    return np.flatnonzero(begins), begins.cumsum() - 1


def _live_bytes(
    num_positions: int,
    regions: Mapping[str, Region],
    target: Target,
    alive: Mapping[str, Lifetime],
) -> np.ndarray:
    """Returns `(positions, tiles)` bytes of the values that are not always live."""
    table = np.zeros((num_positions + 1, target.num_tiles + 1), np.int64)
    # Each value changes four corners of a table whose sums along both axes are the bytes, so
    # that the time does not depend on how long or wide it lives.
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


def _by_position(sizes: Sequence[int]) -> np.ndarray:
    """Returns bytes while each compute set runs."""
    # A program that computes nothing has one position.
    return np.asarray(sizes or [0], np.int64)


def _fill(tiles: np.ndarray, region: Region, copies: int = 1) -> None:
    for start, stop in _spans(region, len(tiles)):
        tiles[start:stop] += region.bytes_per_tile * copies


def _spans(region: Region, num_tiles: int) -> Iterable[tuple[int, int]]:
    stop = region.first_tile + region.num_tiles
    yield region.first_tile, min(stop, num_tiles)
    if stop > num_tiles:
        yield 0, stop - num_tiles
