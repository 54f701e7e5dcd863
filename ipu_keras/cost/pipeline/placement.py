"""Puts a pipeline's stages on their IPUs, with copies between them and stashes."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram, Value
from ipu_keras.cost.pipeline.schedule import Activity, Part, PipelinePlan
from ipu_keras.cost.pipeline.shards import COPY_FAMILY
from ipu_keras.cost.pipeline.step_parts import position_of
from ipu_keras.ir import Op

STASH_FAMILY = "stash"


def place_stages(program: FlatProgram, plan: PipelinePlan) -> FlatProgram:
    """Puts each stage on its IPU, with its variables, its gradient and their update.

    What another IPU needs is copied before the part that follows the one that makes it, all for
    one IPU together. The infeed and variables are where they are first read; constants on every
    IPU that reads them. What waits for a later part is put into stashes.
    """
    placement = _placed(program, plan)
    copied = _Copies(program, plan, placement).run()
    return _with_stashes(copied, plan)


def work_of_part(one: ComputeSet, source_ipu: int) -> Part:
    """Returns what a compute set, which reads first from `source_ipu`, is in the schedule."""
    if one.weight_update:
        return Part(Activity.WEIGHT_UPDATE, one.ipu)
    if one.family == COPY_FAMILY:
        return Part(Activity.COPY, source_ipu, one.stage, one.backward, one.ipu)
    if one.ops[-1].kind in (Activity.STASH.value, Activity.UNSTASH.value):
        return Part(Activity(one.ops[-1].kind), one.ipu, one.stage, one.backward)
    work = Activity.BACKWARD if one.backward else Activity.FORWARD
    return Part(Activity.RECOMPUTE if one.recomputed else work, one.ipu, one.stage, one.backward)


@dataclass(frozen=True)
class _Placement:
    ipus: Sequence[int]
    homes: dict[str, int]


def _placed(program: FlatProgram, plan: PipelinePlan) -> _Placement:
    homes: dict[str, int] = {}
    ipus: list[int] = []
    for one in program.compute_sets:
        if one.stage is not None and not one.weight_update:
            ipu = plan.device_mapping[one.stage]
        else:
            ipu = _of_update(one, program, homes, default=plan.device_mapping[0])
        ipus.append(ipu)
        for name in (*one.reads, *(value.name for value in one.writes)):
            homes.setdefault(name, ipu)
    for name in program.values:
        homes.setdefault(name, plan.device_mapping[0])  # nobody reads it
    return _Placement(ipus, homes)


def _of_update(
    one: ComputeSet, program: FlatProgram, homes: dict[str, int], *, default: int
) -> int:
    """Returns where the variable is that it writes, or else the largest operand."""
    updated = [program.updates.get(value.name, "") for value in one.writes]
    values = program.values
    known = [name for name in one.reads if name in homes and values[name].role != "constant"]
    known.sort(key=lambda name: values[name].spec.nbytes)
    return next((homes[name] for name in [*updated, *reversed(known)] if name in homes), default)


class _Copies:
    def __init__(self, program: FlatProgram, plan: PipelinePlan, placement: _Placement):
        self._program = program
        self._num_stages = plan.num_stages
        self._update = 2 * plan.num_stages
        self._placement = placement
        homes = placement.homes
        self._values = {name: replace(v, ipu=homes[name]) for name, v in program.values.items()}
        self._origins = self._positions_of_origin()
        # Names that cross behind each part, by source and destination.
        self._crossing: dict[int, dict[tuple[int, int], list[str]]] = defaultdict(dict)

    def run(self) -> FlatProgram:
        sets = self._program.compute_sets
        positions = [position_of(one, self._num_stages) for one in sets]
        placed = []
        for one, ipu, position in zip(sets, self._placement.ipus, positions, strict=True):
            reads, late = self._arrive(one, ipu, position)
            placed += late
            writes = tuple(self._values[value.name] for value in one.writes)
            placed.append(replace(one, reads=reads, writes=writes, ipu=ipu))
        return replace(self._program, compute_sets=tuple(self._merged(placed)), values=self._values)

    def _positions_of_origin(self) -> dict[str, int]:
        """Returns the part that makes each value, or reads it first."""
        found: dict[str, int] = {}
        for one in self._program.compute_sets:
            position = position_of(one, self._num_stages)
            for name in (*one.reads, *(value.name for value in one.writes)):
                found.setdefault(name, position)
        return found

    def _arrive(
        self, one: ComputeSet, ipu: int, position: int
    ) -> tuple[tuple[str, ...], list[ComputeSet]]:
        """Returns what is read by its names here, and copies that the weight update waits for."""
        reads, late = [], defaultdict(list)
        for name in one.reads:
            source = self._values[name]
            if source.ipu == ipu:
                reads.append(name)
                continue
            here = f"{name}@ipu{ipu}"
            reads.append(here)
            if here in self._values:
                continue
            self._values[here] = replace(source, name=here, ipu=ipu, copy_of=name)
            if source.role == "constant":
                continue
            self._values[here] = Value(here, source.spec, ipu=ipu, copy_of=name)
            # What only the update needs crosses once for all batches, at its beginning.
            if position == self._update:
                late[source.ipu].append(name)
            else:
                crossing = self._crossing[self._origins[name]]
                crossing.setdefault((source.ipu, ipu), []).append(name)
        copies = [
            replace(
                self._copy(f"{one.name}/from IPU {k}", late[k], ipu, one),
                loops=one.loops,
                branches=one.branches,
            )
            for k in late
        ]
        return tuple(reads), copies

    def _merged(self, placed: Sequence[ComputeSet]) -> Iterator[ComputeSet]:
        """Yields each part with its copies behind it."""
        for position, one in enumerate(placed):
            yield one
            here = position_of(one, self._num_stages)
            following = placed[position + 1] if position + 1 < len(placed) else None
            if following is None or position_of(following, self._num_stages) != here:
                direction = "backward" if one.backward else "forward"
                for (_, to), names in self._crossing.get(here, {}).items():
                    yield self._copy(f"stage {one.stage} {direction} to IPU {to}", names, to, one)

    def _copy(self, name: str, names: Sequence[str], ipu: int, part: ComputeSet) -> ComputeSet:
        sources = [self._values[n] for n in names]
        writes = tuple(self._values[f"{n}@ipu{ipu}"] for n in names)
        specs = tuple(source.spec for source in sources)
        size = sum(spec.nbytes for spec in specs)
        return ComputeSet(
            name=name,
            family=COPY_FAMILY,
            ops=(Op(name, "inter-ipu-copy", specs, inputs=tuple(names)),),
            operands=specs,
            reads=tuple(names),
            writes=writes,
            backward=part.backward,
            stage=part.stage,
            weight_update=part.weight_update,
            ipu=ipu,
            bytes_read=size,
            bytes_written=size,
        )


@dataclass(frozen=True)
class _Stay:
    """The parts between which a value is on an IPU, and those that read it there, in order.

    Args:
        made: The part that makes it, before which it arrives, or that it is first read in.
    """

    made: int
    copied: bool
    reads: list[int]

    @property
    def first(self) -> int:
        """The part behind which it is put away."""
        return self.reads[0] if self.copied and self.reads else self.made

    @property
    def last(self) -> int:
        """The part before which it is taken back."""
        return self.reads[-1] if self.reads else self.made


def _with_stashes(program: FlatProgram, plan: PipelinePlan) -> FlatProgram:
    stashes: dict[str, int] = {}
    put: dict[int, list[str]] = defaultdict(list)
    taken: dict[int, list[str]] = defaultdict(list)
    num_alive = cache(plan.num_alive)  # most values live between the same two parts
    for name, stay in _stays(program, plan).items():
        alive = num_alive(stay.made, stay.last)
        # One of them lies where it is computed; only the others are in the stash.
        if alive > 1:
            stashes[name] = alive - 1
            put[stay.first].append(name)
            taken[stay.last].append(name)
    compute_sets = tuple(_stashing(program, plan, put, taken))
    return replace(program, compute_sets=compute_sets, stashes=stashes)


def _stays(program: FlatProgram, plan: PipelinePlan) -> dict[str, _Stay]:
    """Returns the stays of what each batch has anew."""
    found: dict[str, _Stay] = {}
    for one in program.compute_sets:
        if one.weight_update:
            continue
        position, copies = position_of(one, plan.num_stages), one.family == COPY_FAMILY
        for name in () if copies else one.reads:
            found.setdefault(name, _Stay(position, False, [])).reads.append(position)
        for value in one.writes:
            found[value.name] = _Stay(position + copies, copies, [])
    # Variables and constants are there all the time, and what the update alone reads is not
    # kept.
    return {
        name: stay
        for name, stay in found.items()
        if program.values[name].role in ("activation", "argument") and name not in program.updates
    }


def _stashing(
    program: FlatProgram,
    plan: PipelinePlan,
    put: Mapping[int, Sequence[str]],
    taken: Mapping[int, Sequence[str]],
) -> Iterator[ComputeSet]:
    """Yields the program with what puts values away behind parts and takes them back."""
    parts = groupby(program.compute_sets, key=lambda one: position_of(one, plan.num_stages))
    for position, members in parts:
        sets = list(members)
        crossing = [one for one in sets if one.family == COPY_FAMILY and not one.weight_update]
        if taken.get(position):
            yield _stash(program, sets[0], Activity.UNSTASH, taken[position])
        yield from (one for one in sets if one.family != COPY_FAMILY or one.weight_update)
        if put.get(position):
            yield _stash(program, sets[0], Activity.STASH, put[position])
        yield from crossing


def _stash(
    program: FlatProgram, part: ComputeSet, work: Activity, names: Sequence[str]
) -> ComputeSet:
    specs = tuple(program.values[name].spec for name in names)
    size = sum(spec.nbytes for spec in specs)
    name = f"stage {part.stage} {'backward' if part.backward else 'forward'} {work.value}"
    return ComputeSet(
        name=name,
        family=STASH_FAMILY,
        ops=(Op(name, work.value, (), inputs=tuple(names)),),
        operands=specs,
        reads=tuple(names),
        writes=(),
        backward=part.backward,
        stage=part.stage,
        ipu=program.values[names[0]].ipu,
        bytes_read=size,
        bytes_written=size,
    )
