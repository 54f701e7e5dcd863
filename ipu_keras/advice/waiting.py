"""Models what would make a program wait less, for the host or for itself."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ipu_keras.cost.model import ModelledProgram
from ipu_keras.cost.passes import estimate_host_copies, model_graph
from ipu_keras.ir import Graph, Op, TensorSpec

# An execution begins with a copy, which this many steps share.
_MANY_STEPS = 32
# Numbers of tiles for input and output: half of an IPU's would do less work than they save.
_IO_TILES = (32, 64, 128)


def less_waiting(
    model: ModelledProgram, least_saving: float
) -> Iterator[tuple[dict[str, Any], ModelledProgram]]:
    """Yields changes by which a program waits less for the host, and the program with each.

    They are more steps in an execution, tiles for input and output, and data in float16. None
    makes a program that fits one that does not.

    Args:
        least_saving: The share of a step's cycles that a change has to save.
    """
    for changes, changed in _changed(_in_its_precision(model)):
        saved = model.cycles_per_step - changed.cycles_per_step
        still_fits = changed.memory.fits or not model.memory.fits
        if still_fits and saved >= least_saving * model.cycles_per_step:
            yield changes, changed


def with_more_micro_batches(
    model: ModelledProgram, num_micro_batches: int
) -> tuple[dict[str, Any], ModelledProgram]:
    """Returns the changes to more steps between a pipeline's fills, and the program with them."""
    model = _in_its_precision(model)
    options = model.options
    changes: dict[str, Any] = {"steps_per_execution": num_micro_batches}
    if options.gradient_accumulation_count > 1:
        steps = math.lcm(options.steps_per_execution, num_micro_batches)
        changes = {
            "gradient_accumulation_count": num_micro_batches,
            "steps_per_execution": steps,
        }
    changes = {name: value for name, value in changes.items() if getattr(options, name) != value}
    changed = model_graph(model.name, model.graph, model.target, replace(options, **changes))
    return changes, changed


def _in_its_precision(model: ModelledProgram) -> ModelledProgram:
    """Returns the program with the numbers that its graph has, whatever was chosen for it."""
    return replace(model, options=replace(model.options, dtype=None))


def _changed(model: ModelledProgram) -> Iterator[tuple[dict[str, Any], ModelledProgram]]:
    options = model.options
    # Steps of a pipeline are micro-batches, and its stages wait for each other besides.
    if options.pipeline is not None:
        return
    steps = _MANY_STEPS * options.gradient_accumulation_count
    if options.steps_per_execution < steps:
        changes: dict[str, Any] = {"steps_per_execution": steps}
        yield changes, estimate_host_copies(replace(model, options=replace(options, **changes)))
    if not options.num_io_tiles:
        yield from _on_io_tiles(model)
    if any(map(_is_single, model.graph.ops)):
        fed = with_infeed_in(model.graph, "float16")
        yield {"infeed_dtype": "float16"}, model_graph(model.name, fed, model.target, options)


def _on_io_tiles(model: ModelledProgram) -> Iterator[tuple[dict[str, Any], ModelledProgram]]:
    """Yields the program with the fewest tiles apart that hold what it is fed and returns."""
    for count in _IO_TILES:
        changes: dict[str, Any] = {"num_io_tiles": count, "place_ops_on_io_tiles": True}
        options = replace(model.options, **changes)
        target = model.target.without_tiles(count)
        changed = model_graph(model.name, model.graph, target, options)
        if changed.io_tile_bytes <= changed.io_tile_capacity:
            yield changes, changed
            return


def with_infeed_in(graph: Graph, dtype: str) -> Graph:
    """Returns a step that is fed another floating point type, and converts it."""
    ops: list[Op] = []
    for op in graph.ops:
        if not _is_single(op):
            ops.append(op)
            continue
        fed = f"{op.name}/{dtype}"
        spec = TensorSpec(op.outputs[0].shape, dtype)
        ops.append(replace(op, name=fed, outputs=(spec,)))
        ops.append(Op(op.name, "convert", op.outputs, inputs=(fed,), layer=op.layer))
    return replace(graph, ops=tuple(ops))


def _is_single(op: Op) -> bool:
    """Whether an operation is an argument of a step, in float32."""
    is_argument = op.kind == "parameter" and op.attributes.get("role") == "argument"
    return is_argument and op.outputs[0].dtype == "float32"
