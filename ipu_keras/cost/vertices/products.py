"""Costs convolutions and matrix products by their plans."""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.flat.layouts import elements_per_tile
from ipu_keras.cost.products.convolution_planner import plan
from ipu_keras.cost.products.convolutions import Convolution, matmul
from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.cost import Cost
from ipu_keras.cost.vertices.context import CostContext
from ipu_keras.cost.vertices.elementwise import cost_of_broadcast
from ipu_keras.ir import Op, TensorSpec, num_elements
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
    found = plan(context.target, convolution, memory_proportion=options.memory_proportion)
    # IPUs multiply no other types: such a product is costed as one of these.
    is_native = all(spec.dtype in _NATIVE for spec in one.operands)
    # Where an operand is a view of several values, the product reads all of them.
    left, right = map(context.is_allocated, (one.reads[0], one.reads[-1]))
    # Of a product of matrices, the right one is the convolution's input.
    allocated = (right, left) if op.kind == "dot" else (left, right)
    compute_cycles = found.compute_cycles + found.reduce_cycles + found.transform_cycles
    return Cost(
        # The plan's exchanges have their syncs, and its memory what products receive.
        compute_cycles=compute_cycles + _adding_cycles(one, context),
        exchange_cycles=found.exchange_cycles,
        exchange_bytes=found.exchange_bytes,
        temporary_bytes=found.temporary_bytes_with(allocated),
        interleaved_bytes=found.interleaved_bytes,
        num_vertices=1,
        state_bytes=found.state_bytes,
        tiles=found.tiles_used,
        vertex=f"{found.method} {convolution.dtype} {convolution.partials_dtype}",
        confidence=found.confidence if is_native else Confidence.GUESSED,
        detail=found.method,
    )


def _adding_cycles(one: ComputeSet, context: CostContext) -> int:
    """Returns the cycles in which a product is added to what is in its place."""
    added = [v for v in one.writes if context.in_place.get(v.name) in one.reads]
    if not added:
        return 0
    # Accumulators are allocated as the product makes them, so that nothing is exchanged.
    cycles = vertices.elementwise(
        context.target,
        operation="add",
        dtype=added[0].spec.dtype,
        num_elements=sum(elements_per_tile(value.spec, context.target) for value in added),
        num_operands=2,
    )
    return cycles.cycles + context.target.launch_cycles


# The matrix unit has two input types; what is narrower or wider is counted as the next.
_HALF = frozenset({"float16", "bfloat16"})


def product_of(op: Op, inputs: Sequence[TensorSpec]) -> Convolution:
    left, right = inputs[:2]
    attributes = op.attributes
    batch = attributes["lhs_batch_dimensions"]
    contracted = attributes["lhs_contracting_dimensions"]
    both = (*attributes["rhs_batch_dimensions"], *attributes["rhs_contracting_dimensions"])
    # Products of a batch share nothing, so they are groups of one convolution; rows are
    # positions of its field, and a kernel of one element multiplies.
    return matmul(
        math.prod(left.shape[axis] for axis in batch),
        _product_of_others(left, (*batch, *contracted)),
        math.prod(left.shape[axis] for axis in contracted),
        _product_of_others(right, both),
        _input_dtype(left),
    )


def convolution_of(op: Op, inputs: Sequence[TensorSpec]) -> Convolution:
    """Returns the convolution of a `"convolution"`, which may be a gradient."""
    source, output, attributes = inputs[0], op.outputs[0], op.attributes
    # In groups of the batch, each output channel sees one group's samples only.
    batch_groups = attributes["batch_group_count"]
    in_channels = source.shape[attributes["input_feature_dimension"]] * batch_groups
    return Convolution(
        batch=output.shape[attributes["output_batch_dimension"]],
        field=tuple(output.shape[axis] for axis in attributes["output_spatial_dimensions"]) or (1,),
        kernel=attributes["window_size"] or (1,),
        in_channels=in_channels,
        out_channels=output.shape[attributes["output_feature_dimension"]],
        groups=attributes["feature_group_count"] * batch_groups,
        strides=attributes["window_stride"],
        dtype=_input_dtype(source),
        input_dilations=attributes["base_dilation"],
        kernel_dilations=attributes["window_dilation"],
        padding=_padding(attributes.get("window_padding", ())),
    )


def _padding(sides: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    # Less than none leaves a part of the input out, which the output's size says.
    return tuple((max(low, 0), max(high, 0)) for low, high in sides)


def _input_dtype(spec: TensorSpec) -> str:
    return "float16" if spec.dtype in _HALF else "float32"


def _product_of_others(spec: TensorSpec, axes: Collection[int]) -> int:
    return math.prod(size for axis, size in enumerate(spec.shape) if axis not in axes)
