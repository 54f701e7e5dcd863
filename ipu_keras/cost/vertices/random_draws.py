"""Costs random draws: numbers of the tiles' generators, and what is made of them."""

from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.flat.layouts import (
    bytes_per_tile,
    elements_per_tile,
    item_bytes,
    num_tiles_of,
)
from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.cost import Cost, one_after_the_other, started_together
from ipu_keras.cost.vertices.context import CostContext
from ipu_keras.cost.vertices.lookups import Lookups, gather_cost
from ipu_keras.cost.vertices.reductions import reduction_cost
from ipu_keras.cost.vertices.rejection import REJECTING, rejecting_draw
from ipu_keras.cost.vertices.sorts import sort_cost
from ipu_keras.ir import REJECTING_DRAWS, TensorSpec, num_elements
from ipu_keras.machine.target import Target

# The operations by which a categorical draw makes noise of a random number and adds a logit.
_NOISY_LOGITS = (("log", 1), ("negate", 1), ("log", 1), ("subtract", 2))


def cost_of_draw(one: ComputeSet, context: CostContext) -> Cost:
    """Costs a random draw, by what it draws from."""
    op, target = one.ops[-1], context.target
    if op.kind == "StatelessShuffle" or op.attributes.get("distribution") == "shuffle":
        return _shuffle_cost(one, context)
    if "num_drawn" in op.attributes:
        return _categorical_cost(one, target, op.attributes["num_drawn"])
    distribution = REJECTING_DRAWS.get(op.kind, op.attributes.get("distribution"))
    if distribution in REJECTING:
        return _rejecting_cost(one, target, distribution)
    return _uniform_cost(one, target, one.writes[-1].spec)


def _uniform_cost(one: ComputeSet, target: Target, numbers: TensorSpec) -> Cost:
    count = elements_per_tile(numbers, target)
    cycles = vertices.random_uniform(target, dtype=numbers.dtype, num_elements=count)
    cost = started_together(one, target, cycles, 0, vertex="random uniform")
    return replace(cost, tiles=num_tiles_of(numbers, target))


def _rejecting_cost(one: ComputeSet, target: Target, distribution: str) -> Cost:
    """Costs a draw by rejection: a sample's parameters arrive where it is drawn."""
    samples = one.writes[-1].spec
    most = elements_per_tile(samples, target)
    cycles = rejecting_draw(
        target, distribution=distribution, dtype=samples.dtype, num_elements=most
    )
    parameters = [spec for spec in one.operands if "float" in spec.dtype]
    received = sum(min(spec.nbytes, most * item_bytes(spec)) for spec in parameters)
    cost = started_together(one, target, cycles, received, vertex=f"random {distribution}")
    return replace(cost, tiles=num_tiles_of(samples, target))


def _categorical_cost(one: ComputeSet, target: Target, num_drawn: int) -> Cost:
    """Costs a categorical draw, as XLA has it, by logarithms of a number for each class."""
    # Drawn is the class with the largest logit - log(-log(number)).
    logits = [spec for spec in one.operands if "float" in spec.dtype]
    dtype = logits[0].dtype if logits else "float32"
    outputs = max(num_elements(one.writes[-1].spec), 1)
    numbers = TensorSpec((outputs, num_drawn // outputs), dtype)
    noisy = vertices.fused(
        target,
        operations=_NOISY_LOGITS,
        dtype=dtype,
        num_elements=elements_per_tile(numbers, target),
        num_inputs=2,
    )
    per_tile = bytes_per_tile(numbers, target)
    received = min(sum(spec.nbytes for spec in logits), per_tile)
    largest = reduction_cost(
        target,
        operation="custom",
        source=numbers,
        axes=(1,),
        num_outputs=outputs,
    )
    parts = [
        _uniform_cost(one, target, numbers),
        started_together(one, target, noisy, received, vertex="map"),
        largest,
    ]
    whole = one_after_the_other(parts, vertex="random categorical")
    return replace(whole, temporary_bytes=per_tile + whole.exchange_bytes)


def _shuffle_cost(one: ComputeSet, context: CostContext) -> Cost:
    """Costs a shuffle, as XLA has it: random keys are sorted with values or numbers of rows."""
    target, output = context.target, one.writes[-1].spec
    keys = TensorSpec(output.shape[:1], "uint32")
    numbers = output if len(output.shape) == 1 else keys
    ordered = sort_cost(target, operands=[keys, numbers], axis=0)
    parts = [
        _uniform_cost(one, target, keys),
        replace(ordered, tiles=num_tiles_of(keys, target)),
    ]
    # Rows of several numbers are not moved by the sort: they are looked up by its result.
    if len(output.shape) > 1:
        row_elements = num_elements(output) // output.shape[0]
        found = gather_cost(
            target,
            Lookups(
                num_tables=1,
                num_rows=output.shape[0],
                num_lookups=output.shape[0],
                row_elements=row_elements,
                dtype=output.dtype,
                item_bytes=item_bytes(output),
                index_bytes=item_bytes(keys),
            ),
            memory_proportion=context.product_options(one).memory_proportion,
            vertex="gather",
        )
        parts.append(found)
    whole = one_after_the_other(parts, vertex="random shuffle")
    per_tile = bytes_per_tile(keys, target) + bytes_per_tile(numbers, target)
    return replace(whole, temporary_bytes=per_tile + whole.exchange_bytes)
