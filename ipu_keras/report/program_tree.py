"""The program as a tree in the order of execution: stages, phases, loops, layers, compute sets."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from ipu_keras.cost.flat.compute_sets import Branch, ComputeSet, LoopPart
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.report.rows import NO_LAYER, Row

# A tree with more compute sets ends at their layers: a page would become too large, and nobody
# opens so many.
MAX_COMPUTE_SETS = 5000


@dataclass(frozen=True, kw_only=True)
class ProgramPart:
    """A part of a program.

    Args:
        name: What it is, in words; for compute sets their names.
        cycles: Tile cycles in one step.
        num_compute_sets: Compute sets in it.
        children: What it consists of, in the order of execution.
        row: The figures of a compute set; `None` for other nodes.
        calls: Names of the compute sets of the operation of Poplar's libraries that it calls.
    """

    name: str
    cycles: int
    num_compute_sets: int = 1
    children: tuple["ProgramPart", ...] = ()
    row: Row | None = None
    calls: tuple[str, ...] = ()


def program_tree(
    model: ModelledProgram, rows: Sequence[Row], max_compute_sets: int = MAX_COMPUTE_SETS
) -> tuple[ProgramPart, ...]:
    """Returns the outermost parts of a program.

    Neighbours with a part in common are its children, so that a layer with a forward and a
    backward part has a node for each.

    Args:
        rows: The rows of the model's compute sets.
        max_compute_sets: If there are more, layers have no children.
    """
    leaves = [
        (_path(one, row), _leaf(one, row))
        for one, row in zip(model.program.compute_sets, rows, strict=True)
    ]
    return tuple(_nodes(leaves, 0, len(leaves) <= max_compute_sets))


def _path(one: ComputeSet, row: Row) -> tuple[str, ...]:
    """Returns the parts that a compute set is in, outermost first."""
    stage = () if one.stage is None or one.weight_update else (f"stage {one.stage}",)
    return (*stage, row.phase, *_control_flow(one), row.layer or NO_LAYER)


def _control_flow(one: ComputeSet) -> Iterator[str]:
    """Yields loops and branches; the name of an inner one begins with that of what it is in."""
    found: list[tuple[str, LoopPart | Branch]] = [(part.loop, part) for part in one.loops]
    found += [(part.conditional, part) for part in one.branches]
    for name, part in sorted(found, key=lambda pair: len(pair[0])):
        if isinstance(part, LoopPart):
            yield f"loop {name}"
            yield "condition" if part.is_condition else "body"
        else:
            yield f"conditional {name}"
            yield f"branch {part.index}"


def _leaf(one: ComputeSet, row: Row) -> ProgramPart:
    calls = () if one.body is None else tuple(part.name for part in one.body.compute_sets)
    return ProgramPart(name=row.name, cycles=row.cycles, row=row, calls=calls)


def _nodes(
    leaves: Iterable[tuple[tuple[str, ...], ProgramPart]], depth: int, has_leaves: bool
) -> Iterator[ProgramPart]:
    for part, run in groupby(leaves, key=lambda leaf: leaf[0][depth : depth + 1]):
        members = list(run)
        if part:
            yield ProgramPart(
                name=part[0],
                cycles=sum(leaf.cycles for _, leaf in members),
                num_compute_sets=len(members),
                children=tuple(_nodes(members, depth + 1, has_leaves)),
            )
        elif has_leaves:
            yield from (leaf for _, leaf in members)
