"""Costs gathers from tables and scatters into them."""

import math
from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.flat.layouts import bytes_per_tile, item_bytes
from ipu_keras.cost.rewrites.batched_lookups import num_batches, num_lookups
from ipu_keras.cost.tile.cost import Cost
from ipu_keras.cost.vertices.context import CostContext
from ipu_keras.cost.vertices.copies import on_a_copy
from ipu_keras.cost.vertices.lookups import (
    Lookups,
    batched_gather_cost,
    batched_update_cost,
    gather_cost,
    update_cost,
)
from ipu_keras.ir import TensorSpec, num_elements


def cost_of_gather(one: ComputeSet, context: CostContext) -> Cost:
    """Costs a gather in the fastest way with room for what it needs of tables."""
    target, rows = context.target, one.writes[0].spec
    proportion = context.product_options(one).memory_proportion
    lookups = _lookups_of(one, rows)
    if lookups is None:
        return Cost(vertex=one.family)
    if lookups.num_tables == 1:
        return gather_cost(target, lookups, memory_proportion=proportion, vertex=one.family)
    found = batched_gather_cost(
        target,
        lookups,
        result_bytes=bytes_per_tile(rows, target),
        memory_proportion=proportion,
    )
    return _of_tables(found, one, lookups)


def cost_of_scatter(one: ComputeSet, context: CostContext) -> Cost:
    """Costs the update of a table, or of a copy of it if somebody still needs the old one."""
    target = context.target
    lookups = _lookups_of(one, one.operands[-1])
    if lookups is None:
        updated = Cost(vertex=one.family)
    elif lookups.num_tables == 1:
        updated = update_cost(
            target,
            lookups,
            operation=str(one.ops[-1].attributes.get("operation")),
            memory_proportion=context.product_options(one).memory_proportion,
            vertex=one.family,
        )
    else:
        updated = _of_tables(batched_update_cost(target, lookups), one, lookups)
    return on_a_copy(one, updated, context)


def _lookups_of(one: ComputeSet, rows: TensorSpec) -> Lookups | None:
    """Returns the lookups of a gather or scatter; `None` if nothing is looked up."""
    table, indices = one.operands[:2]
    num_rows, num_tables = num_lookups(one.ops[-1], indices), num_batches(one.ops[-1], table)
    if not min(num_rows, num_tables, num_elements(rows)):
        return None
    row_elements = num_elements(rows) // num_rows
    return Lookups(
        num_tables=num_tables,
        num_rows=max(math.ceil(num_elements(table) / num_tables / row_elements), 1),
        num_lookups=num_rows // num_tables,
        row_elements=row_elements,
        dtype=rows.dtype,
        item_bytes=item_bytes(rows),
        index_bytes=indices.nbytes // num_rows,
    )


def _of_tables(cost: Cost, one: ComputeSet, lookups: Lookups) -> Cost:
    detail = f"{lookups.num_tables} tables, {cost.detail}"
    return replace(cost, vertex=one.family, detail=detail)
