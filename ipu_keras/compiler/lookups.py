"""How tiles share the lookups of a batch, each element of which has a table of its own.

So does popops with `groupedMultiSlice` and `groupedMultiUpdateAdd`: tiles are divided among the
tables, and those of one table share its columns. If there are more tiles than columns, they share
the lookups too, for which each needs all rows of its columns; or they share the rows, and what they
found meets on tiles that take the one result of each lookup. Tables that are looked up lie
elsewhere, so their columns arrive with the numbers of the rows. What is updated lies where it is
updated, and only rows arrive.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ipu_keras.compiler import vertices
from ipu_keras.compiler.cost import Cost
from ipu_keras.compiler.divided import divided_cost
from ipu_keras.compiler.vertices import VertexCycles
from ipu_keras.target import Target


@dataclass(frozen=True, kw_only=True)
class BatchedLookups:
    """Lookups in several tables of the same size.

    Args:
        num_tables: How many there are.
        num_rows: Of one table.
        num_lookups: In one table.
        row_elements: Elements of a row.
        dtype: Of the tables.
        item_bytes: Of one element, in bytes.
        index_bytes: Of what says which row one lookup is of, in bytes.
    """

    num_tables: int
    num_rows: int
    num_lookups: int
    row_elements: int
    dtype: str
    item_bytes: int
    index_bytes: int


@dataclass(frozen=True)
class _Share:
    """What one tile has: so many tables, and of each so many columns."""

    num_tables: int
    num_columns: int
    tiles: int
    more_tiles: int  # for each table, as often as the tiles that its columns need


def batched_gather_cost(
    target: Target, lookups: BatchedLookups, *, result_bytes: int, memory_proportion: float
) -> Cost:
    """The fastest way to look rows up among those with room for what they need of tables.

    Args:
        target: The hardware.
        lookups: What is looked up.
        result_bytes: What of the result lies on a tile, in bytes.
        memory_proportion: Of a tile's memory, what arriving tables may take.
    """
    ways = list(_gathers(target, lookups, _share_of(target, lookups), result_bytes))
    room = memory_proportion * target.tile_bytes
    fitting = [way for way in ways if way.exchange_bytes <= room]
    if not fitting:
        return min(ways, key=lambda way: way.exchange_bytes)
    return min(fitting, key=lambda way: way.cycles)


def batched_update_cost(target: Target, lookups: BatchedLookups) -> Cost:
    """Adding to rows: of one table, tiles share the columns alone.

    If they shared the updates of a column too, each would have sums of its own for all rows.

    Args:
        target: The hardware.
        lookups: What is added to.
    """
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


def _share_of(target: Target, lookups: BatchedLookups) -> _Share:
    tables_each = math.ceil(lookups.num_tables / target.num_tiles)
    groups = math.ceil(lookups.num_tables / tables_each)
    tiles_each = max(target.num_tiles // groups, 1)
    columns = math.ceil(lookups.row_elements / min(max(lookups.row_elements, 1), tiles_each))
    parts = math.ceil(lookups.row_elements / max(columns, 1))
    return _Share(tables_each, columns, groups * parts, max(tiles_each // max(parts, 1), 1))


def _gathers(
    target: Target, lookups: BatchedLookups, share: _Share, result_bytes: int
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
    share: _Share,
    stages: Sequence[VertexCycles],
    received: Sequence[int],
    shared: str,
    parts: int = 1,
) -> Cost:
    """Each table has a vertex of its own; those of a tile run one behind the other."""
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
