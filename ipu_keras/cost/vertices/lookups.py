"""Costs looking rows of tables up, and updating them.

Tiles share the columns of a table: each sees all numbers of rows, and its part of all rows.
Tables of the elements of a batch are divided among the tiles first.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.flat.layouts import bytes_per_tile, item_bytes
from ipu_keras.cost.rewrites.batched_lookups import num_batches, num_lookups
from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.cost import (
    Cost,
    divided_cost,
    one_after_the_other,
    started_together,
)
from ipu_keras.cost.tile.vertices import VertexCycles
from ipu_keras.cost.vertices.context import CostContext
from ipu_keras.cost.vertices.copies import on_a_copy, rows_cost
from ipu_keras.cost.vertices.reductions import reduction_cost
from ipu_keras.ir import TensorSpec, num_elements
from ipu_keras.machine.target import Target

# With a table for each element of a batch, tiles are divided among the tables, as by popops'
# `groupedMultiSlice` and `groupedMultiUpdateAdd`, and those of one table share its columns. If
# there are more tiles than columns, they share the lookups too, for which each needs all rows of
# its columns; or they share the rows, and what they found meets on tiles that take the one
# result of each lookup. Tables that are looked up lie elsewhere, so their columns arrive with
# the numbers of the rows. What is updated lies where it is updated, and only rows arrive.
#
# Operations whose updates of one element may be done in any order. These may be shared among
# tiles too, each of which updates a table of its own, as by popops' `lookupSplit`.
_ORDERLESS = frozenset({"add", "maximum", "minimum", "multiply"})


def cost_of_gather(one: ComputeSet, context: CostContext) -> Cost:
    """Costs a gather in the fastest way with room for what it needs of tables."""
    target, rows = context.target, one.writes[0].spec
    lookups = _batched(one, rows)
    if lookups is None:
        return _lookup_cost(one, target, vertices.multi_slice, rows)
    found = batched_gather_cost(
        target,
        lookups,
        result_bytes=bytes_per_tile(rows, target),
        memory_proportion=context.product_options(one).memory_proportion,
    )
    return _of_tables(found, one, lookups)


def cost_of_scatter(one: ComputeSet, context: CostContext) -> Cost:
    """Costs the update of a table, or of a copy of it if somebody still needs the old one."""
    target, rows = context.target, one.operands[-1]
    lookups = _batched(one, rows)
    if lookups is None:
        updated = _lookup_cost(one, target, vertices.multi_update_add, rows)
    else:
        updated = _of_tables(batched_update_cost(target, lookups), one, lookups)
    shared = _shared_update_cost(one, context)
    # It may need no more memory than all indices on each tile do.
    if shared is not None and shared.temporary_bytes <= updated.exchange_bytes:
        updated = min(updated, shared, key=lambda cost: cost.cycles)
    return on_a_copy(one, updated, context)


def _lookup_cost(
    one: ComputeSet, target: Target, vertex: Callable[..., VertexCycles], rows: TensorSpec
) -> Cost:
    indices = one.operands[1]
    count = num_lookups(one.ops[-1], indices)
    return rows_cost(one, target, vertex, rows=rows, num_rows=count, indices=indices)


def _shared_update_cost(one: ComputeSet, context: CostContext) -> Cost | None:
    """Costs updates where each tile updates a table of its own, and all are added up then.

    It needs one table, rows of fewer columns than half the tiles, and updates in any order.
    """
    target = context.target
    table, indices, rows = (one.operands[k] for k in (0, 1, -1))
    operation = str(one.ops[-1].attributes.get("operation"))
    num_rows = max(num_lookups(one.ops[-1], indices), 1)
    columns = math.ceil(num_elements(rows) / num_rows)
    parts = min(target.num_tiles // max(columns, 1), num_rows)
    if num_batches(one.ops[-1], table) > 1 or parts < 2 or operation not in _ORDERLESS:
        return None
    # For one column each, a tile's own table has as many numbers as the table has rows.
    own = math.ceil(num_elements(table) / columns)
    filled = vertices.fill(target, dtype=table.dtype, num_elements=own)
    updated = vertices.multi_update_add(
        target, dtype=rows.dtype, num_indices=math.ceil(num_rows / parts), row_elements=1
    )
    received = math.ceil(indices.nbytes / parts) + bytes_per_tile(rows, target)
    steps = [
        started_together(one, target, filled, 0, vertex="fill"),
        started_together(one, target, updated, received, vertex=one.family),
        reduction_cost(
            target,
            operation=operation,
            source=TensorSpec((parts, *table.shape), table.dtype),
            num_outputs=num_elements(table),
            dtype=table.dtype,
        ),
    ]
    whole = one_after_the_other(steps, vertex=f"{one.family} in parts")
    temporary = own * item_bytes(table) + whole.exchange_bytes
    return replace(whole, temporary_bytes=temporary, detail=f"{parts} parts")


@dataclass(frozen=True, kw_only=True)
class BatchedLookups:
    """Lookups in several tables of the same size; rows and lookups are those of one table.

    `item_bytes` are those of an element, `index_bytes` those of what says which row to look up.
    """

    num_tables: int
    num_rows: int
    num_lookups: int
    row_elements: int
    dtype: str
    item_bytes: int
    index_bytes: int


@dataclass(frozen=True)
class _TablesOfTile:
    """What one tile has: so many tables, and so many columns of each."""

    num_tables: int
    num_columns: int
    tiles: int
    more_tiles: int  # for each table, as often as the tiles that its columns need


def _batched(one: ComputeSet, rows: TensorSpec) -> BatchedLookups | None:
    """Returns lookups of a batch; `None` if there is one table, or nothing is looked up."""
    table, indices = one.operands[:2]
    num_rows = num_lookups(one.ops[-1], indices)
    num_tables = num_batches(one.ops[-1], table)
    if num_tables <= 1 or not num_rows:
        return None
    row_elements = num_elements(rows) // num_rows
    return BatchedLookups(
        num_tables=num_tables,
        num_rows=math.ceil(num_elements(table) / num_tables / max(row_elements, 1)),
        num_lookups=num_rows // num_tables,
        row_elements=row_elements,
        dtype=rows.dtype,
        item_bytes=item_bytes(rows),
        index_bytes=indices.nbytes // num_rows,
    )


def _of_tables(cost: Cost, one: ComputeSet, lookups: BatchedLookups) -> Cost:
    detail = f"{lookups.num_tables} tables, {cost.detail}"
    return replace(cost, vertex=one.family, detail=detail)


def batched_gather_cost(
    target: Target, lookups: BatchedLookups, *, result_bytes: int, memory_proportion: float
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


def batched_update_cost(target: Target, lookups: BatchedLookups) -> Cost:
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


def _share_of(target: Target, lookups: BatchedLookups) -> _TablesOfTile:
    tables_each = math.ceil(lookups.num_tables / target.num_tiles)
    groups = math.ceil(lookups.num_tables / tables_each)
    tiles_each = max(target.num_tiles // groups, 1)
    columns = math.ceil(lookups.row_elements / min(max(lookups.row_elements, 1), tiles_each))
    parts = math.ceil(lookups.row_elements / max(columns, 1))
    return _TablesOfTile(tables_each, columns, groups * parts, max(tiles_each // max(parts, 1), 1))


def _gathers(
    target: Target, lookups: BatchedLookups, share: _TablesOfTile, result_bytes: int
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
