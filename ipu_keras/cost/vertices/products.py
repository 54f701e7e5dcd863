"""Costs convolutions and matrix products by their plans."""

from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.products.hlo_convolutions import convolution_of, product_of
from ipu_keras.cost.vertices.context import CostContext
from ipu_keras.cost.vertices.cost import Cost
from ipu_keras.cost.vertices.elementwise import cost_of_broadcast
from ipu_keras.ir import num_elements
from ipu_keras.machine.target import Confidence

_NATIVE = ("float16", "float32")


def cost_of_product(one: ComputeSet, context: CostContext) -> Cost:
    """Costs all phases of the plan for a convolution or matrix product."""
    op = one.ops[-1]
    if not all(map(num_elements, one.operands)):  # sums of nothing
        return cost_of_broadcast(one, context)
    options = context.product_options(one)
    # What was asked for at the operation itself goes before options of stages and of all.
    if op.partials_dtype:
        options = replace(options, partials_dtype=op.partials_dtype)
    if op.memory_proportion is not None:
        options = replace(options, memory_proportion=op.memory_proportion)
    traced = (product_of if op.kind == "dot" else convolution_of)(op, one.operands)
    convolution = options.applied_to(traced)
    found = context.plans.find_or_make(convolution, options.memory_proportion)
    # IPUs multiply no other types: such a product is costed as one of these.
    is_native = all(spec.dtype in _NATIVE for spec in one.operands)
    return Cost(
        # The plan's exchanges have their syncs, and its memory what products receive.
        compute_cycles=found.compute_cycles + found.reduce_cycles + found.transform_cycles,
        exchange_cycles=found.exchange_cycles,
        exchange_bytes=found.exchange_bytes,
        temporary_bytes=found.temporary_bytes,
        interleaved_bytes=found.interleaved_bytes,
        num_vertices=1,
        tiles=found.tiles_used,
        vertex=f"{found.method} {convolution.dtype} {convolution.partials_dtype}",
        confidence=found.confidence if is_native else Confidence.GUESSED,
        detail=found.method,
    )
