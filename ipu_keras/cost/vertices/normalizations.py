"""Costs the passes of normalizations and softmax over a tensor.

Source: popnn, Norms and NonLinearity: vectors are added and multiplied in place, a vertex each.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.flat.layouts import bytes_per_tile, elements_per_tile, num_tiles_of
from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.cost import Cost, arrival_cycles
from ipu_keras.cost.tile.exchange import sync_cycles
from ipu_keras.cost.vertices.context import CostContext
from ipu_keras.cost.vertices.reductions import reduction_cost
from ipu_keras.ir import num_elements

# XLA's own operations, as popnn computes them: two vectors are applied; the gradient
# centres and scales the tensor again, and subtracts both of its means from the gradient.
_SCALED = (("multiply", 2), ("add", 2))
_BATCH_NORMS: Mapping[str, tuple[tuple[tuple[str, int], ...], int]] = {
    "batch-norm-inference": (_SCALED, 0),
    "batch-norm-training": (_SCALED, 2),
    "batch-norm-grad": (
        (("subtract", 2), ("multiply", 2), ("multiply", 2), *_SCALED, ("add", 2)),
        2,
    ),
}


@dataclass(frozen=True)
class _Pass:
    """What is computed of a tensor: operations on each element, and sums."""

    # The opcode and the number of operands.
    operations: tuple[tuple[str, int], ...]
    # The operation, the axes and the number of results.
    sums: tuple[tuple[str, tuple[int, ...], int], ...]


def cost_of_normalization(one: ComputeSet, context: CostContext) -> Cost:
    """Costs a pass over a tensor: its broadcast vertices one after the other, then its sums."""
    target, tensor, found = context.target, context.spec(one.reads[0]), _pass_of(one)
    parts = [
        vertices.elementwise(
            target,
            operation=kind,
            dtype=tensor.dtype,
            num_elements=elements_per_tile(tensor, target),
            num_operands=num_operands,
        )
        for kind, num_operands in found.operations
    ]
    sums = [
        reduction_cost(target, operation=kind, source=tensor, axes=axes, num_outputs=count)
        for kind, axes, count in found.sums
    ]
    received = _arriving(one, context)
    # reduceMany takes several sums by the same compute sets: they start and meet together, so
    # only what is computed and exchanged adds up.
    starts = [target.launch_cycles * cost.num_vertices for cost in sums]
    sync = sync_cycles(target, num_ipus=1) * (received > 0)
    kinds = "+".join(sorted({kind for kind, _ in found.operations}))
    return Cost(
        compute_cycles=sum(part.cycles + target.launch_cycles for part in parts)
        + sum(cost.compute_cycles for cost in sums)
        - (sum(starts) - max(starts, default=0)),
        exchange_cycles=arrival_cycles(target, received)
        + sum(cost.exchange_cycles for cost in sums),
        sync_cycles=sync + max((cost.sync_cycles for cost in sums), default=0),
        exchange_bytes=max(received, sum(cost.exchange_bytes for cost in sums)),
        num_receivers=target.num_tiles
        if received
        else max((cost.num_receivers or 0 for cost in sums), default=0),
        temporary_bytes=sum(cost.temporary_bytes for cost in sums),
        num_vertices=len(parts) + sum(cost.num_vertices for cost in sums),
        tiles=num_tiles_of(tensor, target),
        vertex=f"{one.family} {kinds} {tensor.dtype}",
        confidence=vertices.least(
            [*(part.confidence for part in parts), *(cost.confidence for cost in sums)]
        ),
        detail=f"{len(parts)} vertices, {len(sums)} sums",
    )


def _arriving(one: ComputeSet, context: CostContext) -> int:
    """Returns the bytes that a tile receives: of tensors that lie elsewhere, and of vectors."""
    tensor, target = one.reads[0], context.target
    size, per_tile = context.num_elements(tensor), bytes_per_tile(context.spec(tensor), target)
    received = 0
    for name in one.reads:
        if context.num_elements(name) < size and context.values[name].role != "constant":
            # A tile may have elements of every row or channel, but needs no more numbers than
            # elements.
            received += min(context.spec(name).nbytes, per_tile)
        elif context.num_elements(name) == size and not context.lie_alike(name, tensor):
            received += bytes_per_tile(context.spec(name), target)
    return received


def _pass_of(one: ComputeSet) -> _Pass:
    op = one.ops[-1]
    if op.kind in _BATCH_NORMS:
        operations, num_sums = _BATCH_NORMS[op.kind]
        vector, rank = op.outputs[-1], len(one.operands[0].shape)
        axes = tuple(axis for axis in range(rank) if axis != op.attributes["feature_index"])
        return _Pass(operations, (("add", axes, num_elements(vector)),) * num_sums)
    return _Pass(
        tuple((op.kind, len(op.inputs)) for op in one.ops if op.kind != "reduce"),
        tuple(
            (op.attributes["operation"], op.attributes["dimensions"], num_elements(op.outputs[0]))
            for op in one.ops
            if op.kind == "reduce"
        ),
    )
