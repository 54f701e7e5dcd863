"""Lets the backward parts of a pipeline's stages compute activations again."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram, Value
from ipu_keras.cost.flat.control_flow import outermost_loop
from ipu_keras.cost.flat.recomputation import (
    KEPT_BYTES,
    SUFFIX,
    is_deterministic,
    is_repeatable,
)
from ipu_keras.settings.pipeline_choices import RecomputationMode

# Compute sets that run as a whole: those of a loop, and what it carries before its first trip.
_Unit = Sequence[ComputeSet]


def recompute_stages(program: FlatProgram, num_stages: int, mode: RecomputationMode) -> FlatProgram:
    """Lets stages keep what enters them, and repeat their forward part for the backward one.

    What gives something else the second time is not repeated; a loop is, as a whole.
    `RecomputeThenBackpropagate` repeats all that is needed at the beginning of the backward part.
    `RecomputeAndBackpropagateInterleaved` repeats each just before it is needed, and keeps
    checkpoints like what enters the stage, but for those within loops and at the stage's end. The
    backward part of the last stage follows the forward one at once: nothing is repeated there,
    except in the second mode what comes before its last checkpoints.
    """
    return _Stages(program, num_stages, mode).run()


class _Stages:
    def __init__(self, program: FlatProgram, num_stages: int, mode: RecomputationMode):
        self._program = program
        self._last_stage = num_stages - 1
        self._at_once = mode is RecomputationMode.RecomputeThenBackpropagate
        self._units = _units(program)
        self._unit_of = {
            value.name: unit for unit in self._units for one in unit for value in one.writes
        }
        checkpoints = self._checkpoints()
        self._kept = {*program.results, *program.updates, *checkpoints}
        self._before_checkpoints = self._leading_to(checkpoints)

    def run(self) -> FlatProgram:
        compute_sets: list[ComputeSet] = []
        values, in_place = dict(self._program.values), dict(self._program.in_place)
        first = {unit[0].name: unit for unit in self._units}
        begun: set[int | None] = set()
        for one in self._program.compute_sets:
            for clone in self._needed_before(first.get(one.name, ()), values, begun):
                compute_sets.append(clone)
                values.update((value.name, value) for value in clone.writes)
            reads = tuple(self._renamed(name, one) for name in one.reads)
            compute_sets.append(replace(one, reads=reads))
        for name, place in self._program.in_place.items():
            if f"{name}{SUFFIX}" in values and self._unit_of.get(place) is self._unit_of[name]:
                in_place[f"{name}{SUFFIX}"] = f"{place}{SUFFIX}"
        return replace(
            self._program, compute_sets=tuple(compute_sets), values=values, in_place=in_place
        )

    def _checkpoints(self) -> set[str]:
        """Returns those that a forward part goes on from, as what it ends with leaves it anyway."""
        read = {
            name
            for one in self._program.compute_sets
            if not one.backward
            for name in one.reads
            if name in self._unit_of and self._unit_of[name][0].stage == one.stage
        }
        return read.intersection(self._program.checkpoints)

    def _leading_to(self, names: Iterable[str]) -> set[str]:
        """Returns values of the last stage that others are made of, which these need."""
        found: set[str] = set()
        pending = [] if self._at_once else list(names)
        while pending:
            for one in self._unit_of.get(pending.pop(), ()):
                if one.stage == self._last_stage and not one.backward:
                    pending += {*one.reads} - found
                    found.update(one.reads)
        return found

    def _needed_before(
        self, unit: _Unit, values: dict[str, Value], begun: set[int | None]
    ) -> list[ComputeSet]:
        """Returns what has still to run again before a part of a backward part.

        `begun` are the stages whose backward part has begun; it gets the unit's.
        """
        if not unit or not unit[0].backward or unit[0].weight_update:
            return []
        stage = unit[0].stage
        if self._at_once and stage in begun:
            return []
        begun.add(stage)
        names = self._reads_of_stage(stage) if self._at_once else _reads_of(unit)
        found: dict[str, list[ComputeSet]] = {}
        for name in names:
            self._repeat(name, unit[0], values, found)
        return [clone for clones in found.values() for clone in clones]

    def _reads_of_stage(self, stage: int | None) -> Iterator[str]:
        for one in self._program.compute_sets:
            if one.backward and one.stage == stage and not one.weight_update:
                yield from one.reads

    def _repeat(
        self,
        name: str,
        reader: ComputeSet,
        values: dict[str, Value],
        found: dict[str, list[ComputeSet]],
    ) -> None:
        """Adds the copies of who makes a value, those that it needs before it."""
        pending = [name]
        while pending:
            name = pending[-1]
            if not self._is_missing(name, reader, values, found):
                pending.pop()
                continue
            unit = self._unit_of[name]
            missing = [n for n in _reads_of(unit) if self._is_missing(n, reader, values, found)]
            if missing:
                pending += missing
                continue
            found[unit[0].name] = [self._copy(one, unit, reader) for one in unit]
            pending.pop()

    def _is_missing(self, name, reader, values, found) -> bool:
        again = self._renamed(name, reader)
        return again != name and again not in values and self._unit_of[name][0].name not in found

    def _renamed(self, name: str, reader: ComputeSet) -> str:
        """Returns the name of a value for a reader, another one if the value comes again."""
        unit = self._unit_of.get(name)
        if unit is None or not reader.backward or reader.weight_update:
            return name
        comes_again = (
            unit[0].stage == reader.stage
            and (reader.stage != self._last_stage or name in self._before_checkpoints)
            and _can_run_again(unit)
            and name not in self._kept
            and self._program.values[name].spec.nbytes > KEPT_BYTES
        )
        return f"{name}{SUFFIX}" if comes_again else name

    def _copy(self, one: ComputeSet, unit: _Unit, reader: ComputeSet) -> ComputeSet:
        reads = (
            f"{name}{SUFFIX}" if self._unit_of.get(name) is unit else self._renamed(name, reader)
            for name in one.reads
        )
        return replace(
            one,
            name=f"{one.name}{SUFFIX}",
            reads=tuple(reads),
            writes=tuple(Value(f"{value.name}{SUFFIX}", value.spec) for value in one.writes),
            loops=tuple(replace(part, loop=f"{part.loop}{SUFFIX}") for part in one.loops),
            backward=True,
            recomputed=True,
        )


def _units(program: FlatProgram) -> list[_Unit]:
    loops: dict[str, list[ComputeSet]] = defaultdict(list)
    loop_of_place: dict[str, str] = {}
    for one in program.compute_sets:
        loop = outermost_loop(one)
        if loop is not None:
            names = (program.in_place.get(value.name) for value in one.writes)
            loop_of_place.update((name, loop) for name in names if name is not None)
    units: list[_Unit] = []
    for one in program.compute_sets:
        places = (loop_of_place.get(value.name) for value in one.writes)
        loop = outermost_loop(one) or next(filter(None, places), None)
        if loop is None:
            units.append((one,))
        elif loop in loops:
            loops[loop].append(one)
        else:
            loops[loop].append(one)
            units.append(loops[loop])
    return units


def _reads_of(unit: _Unit) -> list[str]:
    """Lists what the compute sets of a unit read that others make."""
    made = {value.name for one in unit for value in one.writes}
    return [name for one in unit for name in one.reads if name not in made]


def _can_run_again(unit: _Unit) -> bool:
    """Whether all that runs as a whole belongs to a forward part, and gives the same again."""
    if any(one.backward for one in unit):
        return False
    return is_repeatable(unit[0]) if len(unit) == 1 else is_deterministic(unit)
