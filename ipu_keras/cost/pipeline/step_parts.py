"""Finds the parts of a step: forward and backward parts of stages, and the weight update.

Positions count parts as a batch passes them: with S stages, forward part k is k, backward part k
is 2S - 1 - k, and the weight update comes behind all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram
from ipu_keras.cost.flat.control_flow import outermost_loop


def without_parts(program: FlatProgram) -> FlatProgram:
    """Returns the program as if nobody had said which part is which."""
    return replace(
        program,
        compute_sets=tuple(
            replace(one, stage=None, weight_update=False)
            if one.part != (None, False, False)
            else one
            for one in program.compute_sets
        ),
    )


def attribute_parts(program: FlatProgram, num_stages: int = 0) -> FlatProgram:
    """Gives every compute set a part: what the trace says if that can be, else its neighbours'.

    Nothing comes before what it needs: what does by its name is in the first part of its stage,
    or else the first at all, that is late enough. What depends on constants alone is where it is
    first needed; what has no stage follows its operands, and without operands those who read it.
    A loop is in one part. Without stages, the only question is what belongs to the weight
    update.

    Raises:
        ValueError: The trace has a stage that the pipeline has not, or none at all.
    """
    if num_stages:
        _check_stages(program.compute_sets, num_stages)
    positions = _Attribution(program, num_stages).positions()
    return replace(
        program,
        compute_sets=tuple(
            _at(one, position, num_stages)
            for one, position in zip(program.compute_sets, positions, strict=True)
        ),
    )


def position_of(one: ComputeSet, num_stages: int) -> int:
    """Returns the position of a compute set's part, without a pipeline if `num_stages` is 0."""
    if one.weight_update:
        return _update_position(num_stages)
    if one.stage is None:
        return 0
    return 2 * num_stages - 1 - one.stage if one.backward else one.stage


def sorted_by_part(program: FlatProgram, num_stages: int = 0) -> FlatProgram:
    """Returns the parts of a program one behind the other, each in its order of execution."""
    ordered = sorted(program.compute_sets, key=lambda one: position_of(one, num_stages))
    return replace(program, compute_sets=tuple(ordered))


def _update_position(num_stages: int) -> int:
    return max(2 * num_stages, 1)


def _at(one: ComputeSet, position: int, num_stages: int) -> ComputeSet:
    is_update = position == _update_position(num_stages)
    if is_update or not num_stages:
        return replace(one, stage=None, weight_update=is_update)
    is_in_stage = one.stage is not None and not one.weight_update
    if is_in_stage and position == position_of(one, num_stages):
        return one  # as most are, whose names say their part
    backward = position >= num_stages
    stage = 2 * num_stages - 1 - position if backward else position
    return replace(one, stage=stage, backward=backward, weight_update=False)


def _check_stages(compute_sets: Iterable[ComputeSet], num_stages: int) -> None:
    found = {one.stage: one.name for one in compute_sets if one.stage is not None}
    if not found:
        raise ValueError(
            "No operation is in a stage of the pipeline. Trace each stage k in "
            "`tf.name_scope(stage_scope(k))`, or leave out `pipeline`. "
            f"Received: a pipeline of {num_stages} stages"
        )
    last = max(found)
    if last >= num_stages:
        raise ValueError(
            f"The pipeline has no stage {last}: give `device_mapping` an IPU for each stage. "
            f"Received: {num_stages} stages, and the operation {found[last]} in stage {last}"
        )


class _Attribution:
    """Finds the positions of one program, where there are loops loop by loop."""

    def __init__(self, program: FlatProgram, num_stages: int):
        self._sets = program.compute_sets
        self._num_stages = num_stages
        self._update = _update_position(num_stages)
        self._units = _units(self._sets)
        self._unit_of = {
            value.name: unit
            for unit, members in enumerate(self._units)
            for k in members
            for value in self._sets[k].writes
        }
        self._values = program.values
        self._found: list[int | None] = [None] * len(self._units)
        self._is_floating = [False] * len(self._units)

    def positions(self) -> list[int]:
        for unit in range(len(self._units)):
            self._is_floating[unit] = self._reads_constants(unit)
            if not self._is_floating[unit]:
                self._found[unit] = self._behind_operands(unit)
        self._follow_readers()
        positions = [0] * len(self._sets)
        for unit, members in enumerate(self._units):
            for k in members:
                positions[k] = self._found[unit] or 0
        return positions

    def _makers(self, unit: int) -> set[int]:
        names = {name for k in self._units[unit] for name in self._sets[k].reads}
        return {self._unit_of[name] for name in names if name in self._unit_of} - {unit}

    def _reads_constants(self, unit: int) -> bool:
        names = {name for k in self._units[unit] for name in self._sets[k].reads}
        return all(
            self._is_floating[self._unit_of[name]] or self._unit_of[name] == unit
            if name in self._unit_of
            else self._values[name].role == "constant"
            for name in names
        )

    def _behind_operands(self, unit: int) -> int | None:
        """Returns the part by name or by operands; `None` if neither says anything."""
        found = [self._found[maker] for maker in self._makers(unit)]
        needed = [position for position in found if position is not None]
        earliest, own = max(needed, default=0), self._own(unit)
        if own is None:
            return earliest if needed else None
        mirrored = 2 * self._num_stages - 1 - own
        # A forward name may be late, as for what the tape computes of a stage's values: then it
        # is in the backward part of its stage.
        candidates = (own, mirrored, earliest) if own < self._update else (own,)
        return next(position for position in candidates if position >= earliest)

    def _own(self, unit: int) -> int | None:
        """Returns what the names say."""
        members = [self._sets[k] for k in self._units[unit]]
        if any(one.weight_update for one in members):
            return self._update
        if not self._num_stages:
            return 0
        known = [position_of(o, self._num_stages) for o in members if o.stage is not None]
        return max(known, default=None)

    def _follow_readers(self) -> None:
        """Puts what is still open where it is first read."""
        first: dict[int, int] = {}
        for unit in reversed(range(len(self._units))):
            if self._found[unit] is None:
                self._found[unit] = first.get(unit, self._own(unit) or 0)
            position = self._found[unit]
            assert position is not None, "every unit was given a position"
            for maker in self._makers(unit):
                first[maker] = min(position, first.get(maker, position))


def _units(compute_sets: Sequence[ComputeSet]) -> list[list[int]]:
    """Returns positions that belong together: those of a loop; all others on their own."""
    units: list[list[int]] = []
    before: str | None = None
    for position, one in enumerate(compute_sets):
        loop = outermost_loop(one)
        if loop is not None and loop == before:
            units[-1].append(position)
        else:
            units.append([position])
        before = loop
    return units
