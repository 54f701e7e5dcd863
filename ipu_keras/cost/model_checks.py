"""Checks whether a model hangs together: for models from files that anybody may write."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.flat.compute_sets import FlatProgram
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.cost.tile.cost import Cost
from ipu_keras.machine.target import Target


def check_model(model: ModelledProgram, target: Target, options: CostOptions) -> None:
    """Raises a ValueError if a model from a file cannot be for a target and options."""
    _require(
        model.target == target and model.options == options,
        "target and options are those asked for",
    )
    _require(model.kept is None and not model.graph.ops, "a graph and other programs are left out")
    program, memory = model.program, model.memory
    _check_program(program, memory.num_ipus)
    _require(len(model.costs) == len(program.compute_sets), "there is a cost for each compute set")
    _check_costs(model.costs)
    _check_memory(model)
    _not_negative(
        "copies with the host",
        (model.host_cycles, model.hidden_host_cycles, model.io_tile_bytes),
    )
    _check_pipeline(model)


def _check_program(program: FlatProgram, num_ipus: int) -> None:
    named = [
        *program.results,
        *(name for one in program.compute_sets for name in one.reads),
        *(value.name for one in program.compute_sets for value in one.writes),
        *program.updates.keys(),
        *program.updates.values(),
        *program.in_place.keys(),
        *program.in_place.values(),
        *program.stashes.keys(),
        *program.checkpoints,
    ]
    _require(program.values.keys() >= set(named), "all values that are named are there")
    _require(
        all(name == value.name for name, value in program.values.items()),
        "values have their own names",
    )
    names = {one.name for one in program.compute_sets}
    _require(len(names) == len(program.compute_sets), "compute sets have different names")
    places = [one.ipu for one in program.compute_sets]
    places += [value.ipu for value in program.values.values()]
    _require(all(0 <= ipu < num_ipus for ipu in places), "all is on IPUs that there are")
    sizes = [size for value in program.values.values() for size in value.spec.shape]
    _not_negative("sizes", sizes)
    _not_negative(
        "the program",
        (program.remote_bytes, program.num_unknown_loops, *program.stashes.values()),
    )
    for one in program.compute_sets:
        _not_negative(one.name, (one.repeat, one.flops, one.bytes_read, one.bytes_written))
        if one.body is not None:
            _check_program(one.body, num_ipus)


def _check_costs(costs: Iterable[Cost]) -> None:
    for cost in costs:
        _not_negative("a cost", _integers_of(cost))
        _check_costs(cost.parts)


def _check_memory(model: ModelledProgram) -> None:
    memory = model.memory
    num_tiles = memory.num_ipus * model.target.num_tiles
    num_positions = len(model.program.compute_sets)
    shapes = (
        (memory.always_live_by_tile, (num_tiles,)),
        (memory.peak_by_tile, (num_tiles,)),
        (memory.live_by_ipu, (memory.num_ipus, num_positions)),
    )
    for array, shape in shapes:
        _require(array.shape == shape, "memory is that of all tiles and compute sets")
        _require(array.dtype.kind in "iu" and bool(np.all(array >= 0)), "bytes are 0 or more")
    _require(bool(np.all(memory.peak_by_tile >= memory.always_live_by_tile)), "peaks are highest")
    _require(0 <= memory.peak_position < max(num_positions, 1), "the peak is at a compute set")
    _require(memory.tile_bytes == model.target.tile_bytes, "tiles have the target's memory")
    _not_negative("memory", (*_integers_of(memory), *memory.bytes_by_category.values()))
    _require(model.program.values.keys() >= model.regions.keys(), "regions are of values")
    for region in model.regions.values():
        _not_negative("a region", _integers_of(region))
        _require(
            max(region.first_tile + 1, region.num_tiles) <= num_tiles, "regions are on the tiles"
        )


def _check_pipeline(model: ModelledProgram) -> None:
    run = model.pipeline_run
    _require((run is None) == (model.options.pipeline is None), "pipelines are of the options")
    if run is not None:
        _require(run.plan.num_micro_batches == model.num_micro_batches, "all micro-batches pass")
        _not_negative("a part of the pipeline", run.part_cycles.values())
        _require(run.cycles == run.timing().cycles, "the pipeline takes as long as its parts")


def _integers_of(value: object) -> list[int]:
    fields = (getattr(value, field.name) for field in dataclasses.fields(value))  # type: ignore
    return [one for one in fields if type(one) is int]


def _not_negative(what: str, numbers: Iterable[int]) -> None:
    _require(all(number >= 0 for number in numbers), f"numbers of {what} are 0 or more")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"of a model, {what}, and of this one not")
