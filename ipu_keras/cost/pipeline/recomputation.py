"""Lets the backward parts of a pipeline's stages compute activations again."""

from collections.abc import Iterator
from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram, Value
from ipu_keras.cost.flat.control_flow import is_in_loop
from ipu_keras.cost.flat.recomputation import KEPT_BYTES, SUFFIX, is_repeatable
from ipu_keras.settings.pipeline_choices import RecomputationMode


def recompute_stages(program: FlatProgram, num_stages: int, mode: RecomputationMode) -> FlatProgram:
    """Lets stages keep what enters them, and repeat their forward part for the backward one.

    The last stage does not: its backward part follows the forward one at once. Loops, and what
    gives something else the second time, are not repeated. Checkpoints are kept like what enters
    the stage. `RecomputeThenBackpropagate` repeats all that is needed at the beginning of the
    backward part; `RecomputeAndBackpropagateInterleaved` each just before it is needed.
    """
    return _Stages(program, num_stages, mode).run()


class _Stages:
    def __init__(self, program: FlatProgram, num_stages: int, mode: RecomputationMode):
        self._program = program
        self._last_stage = num_stages - 1
        self._at_once = mode is RecomputationMode.RecomputeThenBackpropagate
        self._makers = {v.name: one for one in program.compute_sets for v in one.writes}
        self._kept = {*program.results, *program.updates, *program.checkpoints}
        for one in program.compute_sets:
            if is_in_loop(one):
                self._kept.update(one.reads)

    def run(self) -> FlatProgram:
        compute_sets: list[ComputeSet] = []
        values = dict(self._program.values)
        for one in self._program.compute_sets:
            for clone in self._needed_before(one, values):
                compute_sets.append(clone)
                values.update((value.name, value) for value in clone.writes)
            reads = tuple(self._renamed(name, one) for name in one.reads)
            compute_sets.append(replace(one, reads=reads))
        return replace(self._program, compute_sets=tuple(compute_sets), values=values)

    def _needed_before(self, one: ComputeSet, values: dict[str, Value]) -> list[ComputeSet]:
        """Returns what has still to run again before a compute set of a backward part."""
        if not one.backward or one.weight_update:
            return []
        names = self._reads_of_stage(one.stage) if self._at_once else iter(one.reads)
        found: dict[str, ComputeSet] = {}
        for name in names:
            self._repeat(name, one, values, found)
        return list(found.values())

    def _reads_of_stage(self, stage: int | None) -> Iterator[str]:
        for one in self._program.compute_sets:
            if one.backward and one.stage == stage and not one.weight_update:
                yield from one.reads

    def _repeat(
        self, name: str, reader: ComputeSet, values: dict[str, Value], found: dict[str, ComputeSet]
    ) -> None:
        """Adds the copies of who makes a value, those that it needs before it."""
        pending = [name]
        while pending:
            name = pending[-1]
            maker = self._makers.get(name)
            again = self._renamed(name, reader)
            if again == name or maker is None or again in values or maker.name in found:
                pending.pop()
                continue
            missing = [n for n in maker.reads if self._is_missing(n, reader, values, found)]
            if missing:
                pending += missing
                continue
            found[maker.name] = self._copy(maker, reader)
            pending.pop()

    def _is_missing(self, name, reader, values, found) -> bool:
        again = self._renamed(name, reader)
        return again != name and again not in values and self._makers[name].name not in found

    def _renamed(self, name: str, reader: ComputeSet) -> str:
        """Returns the name of a value for a reader, another one if the value comes again."""
        maker = self._makers.get(name)
        if maker is None or not reader.backward or reader.weight_update:
            return name
        comes_again = (
            not maker.backward
            and maker.stage == reader.stage != self._last_stage
            and is_repeatable(maker)
            and not is_in_loop(maker)
            and name not in self._kept
            and self._program.values[name].spec.nbytes > KEPT_BYTES
        )
        return f"{name}{SUFFIX}" if comes_again else name

    def _copy(self, one: ComputeSet, reader: ComputeSet) -> ComputeSet:
        return replace(
            one,
            name=f"{one.name}{SUFFIX}",
            reads=tuple(self._renamed(name, reader) for name in one.reads),
            writes=tuple(Value(f"{value.name}{SUFFIX}", value.spec) for value in one.writes),
            backward=True,
            recomputed=True,
        )
