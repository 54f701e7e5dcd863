"""Makes a pipeline with more stages than the trace says: each is cut between its layers."""

from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import FlatProgram
from ipu_keras.cost.pipeline.shards import cut_evenly
from ipu_keras.cost.pipeline.step_parts import attribute_parts


def cut_stages(program: FlatProgram, num_stages: int, splits: int) -> FlatProgram:
    """Cuts each stage where `shard` would cut a step: stage k becomes those from k * splits on."""
    if splits == 1:
        return program
    finer = list(program.compute_sets)
    for stage in range(num_stages):
        positions = [k for k, one in enumerate(program.compute_sets) if one.stage == stage]
        parts = cut_evenly(_part_of(program, positions), splits).by_position
        found = len(set(parts))
        if found < splits:
            raise ValueError(
                f"Stage {stage} cannot be cut into {splits}: it has layers for {found} only. "
                f"Give fewer `stage_splits`. Received: stage_splits={splits}"
            )
        for k, part in zip(positions, parts, strict=True):
            finer[k] = replace(finer[k], stage=stage * splits + part)
    # What a cut puts before its operands belongs behind them.
    return attribute_parts(replace(program, compute_sets=tuple(finer)), num_stages * splits)


def _part_of(program: FlatProgram, positions: list[int]) -> FlatProgram:
    sets = tuple(program.compute_sets[k] for k in positions)
    names = {name for one in sets for name in (*one.reads, *(value.name for value in one.writes))}
    values = {name: value for name, value in program.values.items() if name in names}
    return replace(program, compute_sets=sets, values=values)
