"""Plans looking rows of tables up and updating them, and costs the plans.

Tiles share the columns and the rows of a table, and the lookups. Tables of the elements of a
batch are divided among the tiles first.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ipu_keras.cost.flat.layouts import item_bytes
from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.cost import (
    Cost,
    divided_cost,
    one_after_the_other,
)
from ipu_keras.cost.tile.vertices import VertexCycles
from ipu_keras.cost.vertices.reductions import reduction_cost
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.target import Target

# With a table for each element of a batch, tiles are divided among the tables, as by popops'
# `groupedMultiSlice` and `groupedMultiUpdateAdd`, and those of one table share its columns. If
# there are more tiles than columns, they share the lookups too, for which each needs all rows of
# its columns; or they share the rows, and what they found meets on tiles that take the one
# result of each lookup. Tables that are looked up lie elsewhere, so their columns arrive with
# the numbers of the rows. What is updated lies where it is updated, and only rows arrive.
#
# One table lies so that tiles share its columns and its rows; those of one part may share the
# lookups too, for which each needs a copy of it. As by popops' plan of an embedding.
#
# Operations whose updates of one element may be done in any order. These alone may be shared
# among tiles, each of which updates a table of its own, as by popops' `lookupSplit`.
_ORDERLESS = frozenset({"add", "maximum", "minimum", "multiply"})
# Release whose plan of an embedding takes the fewest cycles with room for what it needs; that of
# 2.0 took the fewest bytes. Its parts of rows are words, later ones of eight bytes.
_FIRST_PLANNED_BY_CYCLES = 3.0


@dataclass(frozen=True, kw_only=True)
class Lookups:
    """Lookups in tables of the same size; rows and lookups are those of one table.

    `item_bytes` are those of an element, `index_bytes` those of what says which row to look up.
    """

    num_tables: int
    num_rows: int
    num_lookups: int
    row_elements: int
    dtype: str
    item_bytes: int
    index_bytes: int


def gather_cost(target: Target, lookups: Lookups, *, memory_proportion: float, vertex: str) -> Cost:
    """Costs looking up rows of one table, by the plan that popops makes."""
    parts = _parts_of(target, lookups)
    ways = [(part, _gathered(target, lookups, part, vertex)) for part in parts]
    return _planned(target, lookups, ways, memory_proportion)


def update_cost(
    target: Target,
    lookups: Lookups,
    *,
    operation: str,
    memory_proportion: float,
    vertex: str,
) -> Cost:
    """Costs updating rows of one table, by the plan that popops makes."""
    ways = [
        (part, _updated(target, lookups, part, operation, vertex))
        for part in _parts_of(target, lookups)
        if part.sharing == 1 or operation in _ORDERLESS
    ]
    return _planned(target, lookups, ways, memory_proportion)


def _planned(
    target: Target,
    lookups: Lookups,
    ways: Sequence[tuple["_TablePart", Cost]],
    memory_proportion: float,
) -> Cost:
    def needed(way: tuple[_TablePart, Cost]) -> int:
        # The plan says where the table lies, too.
        part, cost = way
        table = part.rows * part.columns * lookups.item_bytes
        return math.ceil(table / part.sharing) + cost.temporary_bytes

    def cycles(way: tuple[_TablePart, Cost]) -> int:
        return way[1].cycles

    room = memory_proportion * target.tile_bytes
    fitting = [way for way in ways if needed(way) <= room]
    if target.sdk < _FIRST_PLANNED_BY_CYCLES or not fitting:
        return min(ways, key=lambda way: (needed(way), cycles(way)))[1]
    return min(fitting, key=lambda way: (cycles(way), needed(way)))[1]


@dataclass(frozen=True)
class _TablePart:
    """What a tile has of one table, and how many tiles that have the same share the lookups."""

    rows: int
    columns: int
    lookups: int
    row_parts: int
    sharing: int
    tiles: int

    def share_of(self, lookups: Lookups) -> float:
        return self.rows / lookups.num_rows


def _parts_of(target: Target, lookups: Lookups) -> Iterator[_TablePart]:
    """Yields divisions of a table among the tiles, and of the lookups among those with a part."""
    atom = 4 if target.sdk < _FIRST_PLANNED_BY_CYCLES else target.vector_bytes
    grain = max(atom // lookups.item_bytes, 1)
    columns = grain
    while True:
        columns = min(columns, lookups.row_elements)
        column_parts = math.ceil(lookups.row_elements / columns)
        if column_parts <= target.num_tiles:
            yield from _shared(target, lookups, columns, column_parts)
        if columns == lookups.row_elements:
            return
        columns *= 2


def _shared(
    target: Target, lookups: Lookups, columns: int, column_parts: int
) -> Iterator[_TablePart]:
    left = target.num_tiles // column_parts
    halves = (left >> k for k in range(left.bit_length()))
    for asked in dict.fromkeys(min(parts, lookups.num_rows) for parts in halves):
        rows = math.ceil(lookups.num_rows / asked)
        row_parts = math.ceil(lookups.num_rows / rows)
        for sharing in dict.fromkeys((1, min(left // row_parts, lookups.num_lookups))):
            each = math.ceil(lookups.num_lookups / sharing)
            tiles = column_parts * row_parts * sharing
            yield _TablePart(rows, columns, each, row_parts, sharing, tiles)


def _gathered(target: Target, lookups: Lookups, part: _TablePart, vertex: str) -> Cost:
    cycles = [
        vertices.multi_slice(
            target,
            dtype=lookups.dtype,
            num_indices=part.lookups,
            row_elements=part.columns,
            share=part.share_of(lookups),
        )
    ]
    row = part.columns * lookups.item_bytes
    received = [part.lookups * lookups.index_bytes]
    if part.sharing > 1:
        received[0] += part.rows * row
    needed = received[0]
    if part.row_parts > 1:
        # Of what all with other rows found, each takes the one result of some lookups.
        each = math.ceil(part.lookups / part.row_parts)
        second = vertices.multi_slice(
            target, dtype=lookups.dtype, num_indices=each, row_elements=part.columns
        )
        cycles.append(second)
        received.append(each * part.row_parts * row)
        needed += part.lookups * row
    return _in_stages(target, part, cycles, received, needed, vertex)


def _updated(
    target: Target, lookups: Lookups, part: _TablePart, operation: str, vertex: str
) -> Cost:
    added = vertices.multi_update_add(
        target,
        dtype=lookups.dtype,
        num_indices=part.lookups,
        row_elements=part.columns,
        share=part.share_of(lookups),
    )
    arriving = part.lookups * (lookups.index_bytes + part.columns * lookups.item_bytes)
    alone = _in_stages(target, part, [added], [arriving], arriving, vertex)
    if part.sharing == 1:
        return alone
    # Tables of their own are of float32 for halves, as sums are.
    dtype = "float32" if lookups.dtype == "float16" else lookups.dtype
    own = part.rows * part.columns
    filled = vertices.fill(target, dtype=dtype, num_elements=own)
    partials = TensorSpec((part.sharing, lookups.num_rows, lookups.row_elements), dtype)
    outputs = lookups.num_rows * lookups.row_elements
    summed = reduction_cost(
        target,
        operation=operation,
        source=partials,
        axes=(0,),
        num_outputs=outputs,
    )
    steps = [_in_stages(target, part, [filled], [], 0, "fill"), alone, summed]
    whole = one_after_the_other(steps, vertex=f"{vertex} in parts")
    size = own * item_bytes(partials) + arriving
    return replace(whole, temporary_bytes=size, detail=f"{part.sharing} parts")


def _in_stages(
    target: Target,
    part: _TablePart,
    cycles: Sequence[VertexCycles],
    received: Sequence[int],
    needed: int,
    vertex: str,
) -> Cost:
    cost = divided_cost(
        target,
        cycles=sum(each.cycles for each in cycles),
        num_compute_sets=len(cycles),
        moved=received,
    )
    return replace(
        cost,
        temporary_bytes=needed,
        tiles=part.tiles,
        vertex=vertex,
        confidence=vertices.least(each.confidence for each in cycles),
        detail=f"tiles share {'rows' if part.row_parts > 1 else 'columns'}",
    )


@dataclass(frozen=True)
class _TablesOfTile:
    """What one tile has: so many tables, and so many columns of each."""

    num_tables: int
    num_columns: int
    tiles: int
    more_tiles: int  # for each table, as often as the tiles that its columns need


def batched_gather_cost(
    target: Target, lookups: Lookups, *, result_bytes: int, memory_proportion: float
) -> Cost:
    """Costs the fastest way to look rows up among those with room for what they need of tables.

    A tile has `result_bytes` of the result, and `memory_proportion` of it is for tables.
    """
    ways = list(_gathers(target, lookups, _share_of(target, lookups), result_bytes))
    room = memory_proportion * target.tile_bytes
    fitting = [way for way in ways if way.exchange_bytes <= room]
    # Where popops' planner drops the bound, the way with the least memory is taken here.
    if not fitting:
        return min(ways, key=lambda way: way.exchange_bytes)
    return min(fitting, key=lambda way: way.cycles)


def batched_update_cost(target: Target, lookups: Lookups) -> Cost:
    """Costs adding to rows, where the tiles of one table share its columns alone."""
    # If tiles shared the updates of a column too, each would have sums of its own for all rows.
    share = _share_of(target, lookups)
    vertex = vertices.multi_update_add(
        target,
        dtype=lookups.dtype,
        num_indices=lookups.num_lookups,
        row_elements=share.num_columns,
    )
    row = share.num_columns * lookups.item_bytes + lookups.index_bytes
    received = share.num_tables * lookups.num_lookups * row
    return _found(target, share, [vertex], [received], "columns")


def _share_of(target: Target, lookups: Lookups) -> _TablesOfTile:
    tables_each = math.ceil(lookups.num_tables / target.num_tiles)
    groups = math.ceil(lookups.num_tables / tables_each)
    tiles_each = max(target.num_tiles // groups, 1)
    columns = math.ceil(lookups.row_elements / min(max(lookups.row_elements, 1), tiles_each))
    parts = math.ceil(lookups.row_elements / max(columns, 1))
    return _TablesOfTile(tables_each, columns, groups * parts, max(tiles_each // max(parts, 1), 1))


def _gathers(
    target: Target, lookups: Lookups, share: _TablesOfTile, result_bytes: int
) -> Iterator[Cost]:
    def vertex(num_lookups: int) -> VertexCycles:
        return vertices.multi_slice(
            target,
            dtype=lookups.dtype,
            num_indices=num_lookups,
            row_elements=share.num_columns,
        )

    tables, num = share.num_tables, lookups.num_lookups
    row = share.num_columns * lookups.item_bytes
    parts = max(min(share.more_tiles, num), 1)
    each = math.ceil(num / parts)
    arriving = tables * (lookups.num_rows * row + each * lookups.index_bytes) + result_bytes
    shared = "lookups" if parts > 1 else "columns"
    yield _found(target, share, [vertex(each)], [arriving], shared, parts)
    parts = min(share.more_tiles, lookups.num_rows)
    if parts > 1:
        rows, each = math.ceil(lookups.num_rows / parts), math.ceil(num / parts)
        arriving = tables * (rows * row + num * lookups.index_bytes)
        meeting = tables * each * parts * row + result_bytes
        stages = [vertex(num), vertex(each)]
        yield _found(target, share, stages, [arriving, meeting], "rows", parts)


def _found(
    target: Target,
    share: _TablesOfTile,
    stages: Sequence[VertexCycles],
    received: Sequence[int],
    shared: str,
    parts: int = 1,
) -> Cost:
    """Costs the stages: each table has a vertex of its own, one behind the other on a tile."""
    cost = divided_cost(
        target,
        cycles=sum(share.num_tables * each.cycles for each in stages),
        num_compute_sets=len(stages),
        moved=received,
    )
    return replace(
        cost,
        num_vertices=share.num_tables * len(stages),
        tiles=share.tiles * parts,
        confidence=vertices.least(each.confidence for each in stages),
        detail=f"tiles share {shared}",
    )
