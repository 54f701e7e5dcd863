"""Costs elementwise operations, alone and in chains, and values that are filled with others."""

from collections.abc import Mapping, Sequence

from ipu_keras.cost.flat.compute_sets import ComputeSet, Value
from ipu_keras.cost.flat.layouts import (
    bytes_per_tile,
    elements_per_tile,
    first_of_size,
    item_bytes,
)
from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.cost import Cost, started_together
from ipu_keras.cost.tile.vertices import VertexCycles
from ipu_keras.cost.vertices.context import CostContext
from ipu_keras.ir import num_elements

# Operations that happen on the way in a chain: a broadcast is a view, and a copy a store.
_WITHOUT_VERTEX = frozenset({"broadcast", "copy"})


def cost_of_elementwise(one: ComputeSet, context: CostContext) -> Cost:
    """Costs an operation on each element, or a chain of them."""
    made = one.writes[0]
    size, item = num_elements(made.spec), item_bytes(made.spec)
    operations = [
        (op.kind, max(len(op.inputs), 1)) for op in one.ops if op.kind not in _WITHOUT_VERTEX
    ]
    per_tile = elements_per_tile(made.spec, context.target)
    received = in_parts = 0
    own = context.in_place.get(made.name) or first_of_size(one, context.values)
    for position, name in enumerate(one.reads):
        spec, count = context.spec(name), context.num_elements(name)
        # Numbers that are constants, and constant vectors, are part of the code.
        if context.values[name].role == "constant" and (count < size or count == 1):
            continue
        # What lies elsewhere than the result arrives first, and small operands whole. Of views,
        # several may be parts of what a tile has of the result.
        if position in one.views:
            if count < size:
                in_parts += spec.nbytes
            elif name != own:
                received += per_tile * item_bytes(spec)
        elif count == size and not context.lie_alike(name, made.name):
            received += bytes_per_tile(spec, context.target)
        elif count < size:
            received += min(spec.nbytes, per_tile * item)
    received += min(in_parts, per_tile * item)
    cycles = _map(one, operations, per_tile, context)
    kinds = "+".join(sorted({kind for kind, _ in operations}))
    vertex = f"map {kinds} {made.spec.dtype}"
    return started_together(one, context.target, cycles, received, vertex=vertex)


def _map(
    one: ComputeSet, operations: Sequence[tuple[str, int]], count: int, context: CostContext
) -> VertexCycles:
    dtype = _widest(one, context.values, alone=len(operations) == 1)
    if len(operations) > 1:
        return vertices.fused(
            context.target,
            operations=operations,
            dtype=dtype,
            num_elements=count,
            num_inputs=len(one.reads),
        )
    ((kind, num_operands),) = operations
    if kind == "convert":
        return vertices.cast(
            context.target,
            from_dtype=one.operands[0].dtype,
            to_dtype=one.writes[0].spec.dtype,
            num_elements=count,
        )
    return vertices.elementwise(
        context.target,
        operation=kind,
        dtype=dtype,
        num_elements=count,
        num_operands=num_operands,
    )


def cost_of_broadcast(one: ComputeSet, context: CostContext) -> Cost:
    """Costs a broadcast that is written out: each tile fills what it has."""
    output = one.writes[0].spec
    count = elements_per_tile(output, context.target)
    cycles = vertices.fill(context.target, dtype=output.dtype, num_elements=count)
    source, received = one.reads[0], 0
    if context.values[source].role != "constant":
        received = min(context.spec(source).nbytes, bytes_per_tile(output, context.target))
    vertex = f"fill {output.dtype}"
    return started_together(one, context.target, cycles, received, vertex=vertex)


def _widest(one: ComputeSet, values: Mapping[str, Value], *, alone: bool) -> str:
    """Returns the dtype that is computed in."""
    # An operation alone says what it takes. Of a chain, that is known of the last one, so what
    # is read counts, which may be the same bits as another dtype.
    taken = one.operands if alone else [values[name].spec for name in one.reads]
    specs = [*taken, *(value.spec for value in one.writes)]
    floats = [spec for spec in specs if "float" in spec.dtype] or specs
    return max(floats, key=item_bytes).dtype
