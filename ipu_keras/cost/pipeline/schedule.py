"""Orders which IPU of a pipeline runs which stage on which micro-batch, step by step.

Of each schedule only a pattern is written down: when, after a micro-batch begins, its stages
run, and when micro-batches begin. All else follows: instructions, stashes, when IPUs are busy.
"""

import enum
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, groupby

from ipu_keras.cost.pipeline.depth import depth_message, devices_of_parts, overlap, rotations
from ipu_keras.settings.pipeline_choices import PipelineSchedule

# A stage has a forward part and, in training, a backward one. Parts that follow each other run
# in different steps: results cross between IPUs at the beginning of the step that the next part
# is in. Until then they are in the memory of who made them, and what waits for a backward part,
# results of other IPUs included, is what the stage's forward part has read.


class Activity(enum.Enum):
    """What an instruction of a pipeline does.

    - `FORWARD`, `BACKWARD`: computes a part of a stage.
    - `RECOMPUTE`: computes activations of a stage again for its backward part.
    - `STASH`: puts away what the backward part needs of a micro-batch.
    - `UNSTASH`: takes it back.
    - `COPY`: hands results to another IPU.
    - `WEIGHT_UPDATE`: applies the gradients of all micro-batches.
    """

    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTE = "recompute"
    STASH = "stash"
    UNSTASH = "unstash"
    COPY = "copy"
    WEIGHT_UPDATE = "weight update"


_LETTERS = {Activity.RECOMPUTE: "R", Activity.STASH: "S", Activity.UNSTASH: "U"}


@dataclass(frozen=True)
class Part:
    """What an IPU does for every micro-batch in the same way.

    `stage` is `None` for the weight update; `to` is the IPU that a copy goes to.
    """

    work: Activity
    ipu: int
    stage: int | None = None
    backward: bool = False
    to: int | None = None


@dataclass(frozen=True)
class Instruction:
    """One thing that an IPU does; `micro_batch` is `None` for the weight update.

    As text, `F1.4` is the forward part of stage 1 on micro-batch 4, `B1.4` the backward part,
    `R1.4` recomputes for it, `S1.4` stashes and `U1.4` takes back, `F1.4>2` copies to IPU 2 what
    `F1.4` made, and `W` is the weight update.
    """

    part: Part
    micro_batch: int | None = None

    def __str__(self) -> str:
        part = self.part
        if part.work is Activity.WEIGHT_UPDATE:
            return "W"
        letter = _LETTERS.get(part.work, "B" if part.backward else "F")
        to = "" if part.to is None else f">{part.to}"
        return f"{letter}{part.stage}.{self.micro_batch}{to}"


class Phase(enum.Enum):
    """Which part of a pipeline's run a step is in.

    - `FILL`: not all stages have something to do yet.
    - `STEADY`: all that ever run at the same time do.
    - `DRAIN`: no new micro-batch begins any more.
    - `UPDATE`: the weights are updated.
    """

    FILL = "fill"
    STEADY = "steady"
    DRAIN = "drain"
    UPDATE = "weight update"


@dataclass(frozen=True)
class Step:
    """What the IPUs do until they next wait for each other; those of an IPU are in order."""

    phase: Phase
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, kw_only=True)
class PipelinePlan:
    """What a schedule has to order.

    Args:
        num_micro_batches: How many pass between two weight updates or, in inference, in an
            execution; a multiple of the schedule's `overlap`.
        recomputed: Stages that compute activations again.
        copies: By position in `parts_in_order`, the IPUs that need results of a part later; by
            default the one of the next part, if that is another one.
    """

    device_mapping: tuple[int, ...]
    num_micro_batches: int
    schedule: PipelineSchedule = PipelineSchedule.Grouped
    training: bool = True
    recomputed: tuple[int, ...] = ()
    copies: Mapping[int, tuple[int, ...]] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        step = overlap(self.schedule, self.device_mapping, training=self.training)
        if self.num_micro_batches < 1 or self.num_micro_batches % step:
            raise ValueError(depth_message(step, self.num_micro_batches))

    @property
    def num_stages(self) -> int:
        return len(self.device_mapping)

    @cached_property
    def parts_in_order(self) -> tuple[tuple[int, bool], ...]:
        """Stage, and whether it is the backward part, in the order in which a batch passes."""
        return parts_in_order(self.num_stages, training=self.training)

    def ipu_of(self, position: int) -> int:
        """Returns the IPU of a part, by its position in `parts_in_order`."""
        return self.device_mapping[self.parts_in_order[position][0]]

    def copies_of(self, position: int) -> tuple[int, ...]:
        """Returns the other IPUs that need what the part at a position makes."""
        if self.copies is not None:
            return self.copies.get(position, ())
        if position + 1 == len(self.parts_in_order):
            return ()
        following = self.ipu_of(position + 1)
        return () if following == self.ipu_of(position) else (following,)

    def num_alive(self, first: int, last: int) -> int:
        """Returns for how many micro-batches a value is in memory at the same time, at most.

        It comes to be there in the step of part `first`, and is last read in that of part
        `last`.
        """
        pattern = _pattern(self)
        made = [pattern.time(first, m) for m in range(self.num_micro_batches)]
        read = [pattern.time(last, m) for m in range(self.num_micro_batches)]
        return max(bisect_right(made, end) - m for m, end in enumerate(read))

    @cached_property
    def stash_counts(self) -> tuple[int, ...]:
        """For each stage, micro-batches between its forward and its backward part, at most."""
        if not self.training:
            return (0,) * self.num_stages
        # The one that is being computed is among them: beside it, one less lies in the stash.
        last = len(self.parts_in_order) - 1
        return tuple(self.num_alive(k, last - k) for k in range(self.num_stages))


def parts_in_order(num_stages: int, *, training: bool) -> tuple[tuple[int, bool], ...]:
    """Returns stages in the order in which a batch passes, each with whether it is backward.

    Example:

    >>> parts_in_order(2, training=True)
    ((0, False), (1, False), (1, True), (0, True))
    """
    forward = [(stage, False) for stage in range(num_stages)]
    backward = [(stage, True) for stage in reversed(range(num_stages))]
    return (*forward, *(backward if training else ()))


@dataclass(frozen=True)
class _Pattern:
    """When parts run, in steps after their micro-batch begins, and when micro-batches begin.

    The pattern comes again after `cycle` steps.
    """

    offsets: tuple[int, ...]
    starts: tuple[int, ...]
    cycle: int

    def time(self, position: int, micro_batch: int) -> int:
        cycles, rank = divmod(micro_batch, len(self.starts))
        return cycles * self.cycle + self.starts[rank] + self.offsets[position]

    def running(self, time: int) -> frozenset[int]:
        """Returns the parts that would run at a time if micro-batches came for ever."""
        return frozenset(
            position
            for position, offset in enumerate(self.offsets)
            if any((time - offset - start) % self.cycle == 0 for start in self.starts)
        )


def _pattern(plan: PipelinePlan) -> _Pattern:
    """Returns when the parts of a schedule run."""
    # Of S stages, micro-batch m is in:
    # - `Grouped`, where forward and backward steps alternate: F_k in the (m + k)-th forward
    #   step, B_k in the (m + 2S - 2 - k)-th backward step.
    # - `Interleaved`: F_k in step 2m + k, B_k in step 2m + 2S - 1 - k, so that neighbours are in
    #   different directions. In general, a micro-batch begins at each rotation of the list of
    #   IPUs that has no IPU at the same place as another one.
    # - `Sequential`: each part after all others of the micro-batch before.
    length, stages = len(plan.parts_in_order), plan.num_stages
    if plan.schedule is PipelineSchedule.Interleaved:
        devices = devices_of_parts(plan.device_mapping, training=plan.training)
        return _Pattern(tuple(range(length)), rotations(devices), length)
    if plan.schedule is PipelineSchedule.Sequential:
        return _Pattern(tuple(range(length)), (0,), length)
    if not plan.training:
        return _Pattern(tuple(range(length)), (0,), 1)
    forward = (2 * k for k in range(stages))
    backward = (2 * (2 * stages - 2 - k) + 1 for k in reversed(range(stages)))
    return _Pattern((*forward, *backward), (0,), 2)


def schedule_pipeline(plan: PipelinePlan) -> tuple[Step, ...]:
    """Returns the steps of a pipeline from one weight update to the next, without idle ones."""
    pattern = _pattern(plan)
    at: dict[int, list[tuple[int, int]]] = {}
    for position in range(len(plan.parts_in_order)):
        for micro_batch in range(plan.num_micro_batches):
            at.setdefault(pattern.time(position, micro_batch), []).append((position, micro_batch))
    phases = _phases(plan, pattern, at)
    stashes = plan.stash_counts
    steps = [
        Step(phases[time], tuple(_instructions(plan, at[time], stashes))) for time in sorted(at)
    ]
    if plan.training:
        ipus = sorted(set(plan.device_mapping))
        update = tuple(Instruction(Part(Activity.WEIGHT_UPDATE, ipu)) for ipu in ipus)
        steps.append(Step(Phase.UPDATE, update))
    return tuple(steps)


def _phases(
    plan: PipelinePlan, pattern: _Pattern, at: Mapping[int, Sequence[tuple[int, int]]]
) -> dict[int, Phase]:
    """Returns the phase of each step that has something to do."""
    times = sorted(at)
    full = [{position for position, _ in at[time]} == pattern.running(time) for time in times]
    runs = [(len(list(run)), is_full) for is_full, run in groupby(full)]
    starts = list(accumulate((length for length, _ in runs), initial=0))
    # The steady state is the longest run of steps in which all run that ever do together.
    longest = max((length for length, is_full in runs if is_full), default=0)
    if longest:
        first = next(s for s, run in zip(starts, runs, strict=False) if run == (longest, True))
    else:
        # Too few micro-batches keep never all busy: when the last one begins, the fill ends.
        first = bisect_right(times, pattern.time(0, plan.num_micro_batches - 1))
    phases = [Phase.FILL] * first + [Phase.STEADY] * longest
    phases += [Phase.DRAIN] * (len(times) - len(phases))
    return dict(zip(times, phases, strict=True))


def _instructions(
    plan: PipelinePlan, running: Sequence[tuple[int, int]], stashes: Sequence[int]
) -> list[Instruction]:
    """Returns one step: copies, then parts by IPU."""
    found = _arrivals(plan, running)
    # Later stages come first: they work on earlier micro-batches, whose memory becomes free.
    for position, micro_batch in sorted(running, key=lambda one: (plan.ipu_of(one[0]), -one[0])):
        stage, backward = plan.parts_in_order[position]
        works = _works(backward, stashed=stashes[stage] > 1, again=stage in plan.recomputed)
        ipu = plan.ipu_of(position)
        found += [Instruction(Part(work, ipu, stage, backward), micro_batch) for work in works]
    return found


def _arrivals(plan: PipelinePlan, running: Sequence[tuple[int, int]]) -> list[Instruction]:
    """Returns the copies of what the parts before those of a step made."""
    return [
        Instruction(
            Part(Activity.COPY, plan.ipu_of(before), *plan.parts_in_order[before], to), batch
        )
        for before, batch in sorted((position - 1, batch) for position, batch in running)
        if before >= 0
        for to in plan.copies_of(before)
    ]


def _works(backward: bool, *, stashed: bool, again: bool) -> list[Activity]:
    if backward:
        before = [Activity.UNSTASH] * stashed + [Activity.RECOMPUTE] * again
        return [*before, Activity.BACKWARD]
    return [Activity.FORWARD] + [Activity.STASH] * stashed


def check_schedule(plan: PipelinePlan, steps: Sequence[Step]) -> None:
    """Asserts that steps are a schedule: each part once per micro-batch, and in order."""
    when = _times_of_parts(steps)
    for micro_batch in range(plan.num_micro_batches):
        before = -1
        for stage, backward in plan.parts_in_order:
            times = when.get((stage, backward, micro_batch), [])
            name = f"{'B' if backward else 'F'}{stage}.{micro_batch}"
            assert len(times) == 1, f"{name} runs {len(times)} times"
            assert times[0] > before, f"{name} runs in step {times[0]}, not after step {before}"
            before = times[0]
    updates = [k for k, step in enumerate(steps) if step.phase is Phase.UPDATE]
    assert updates == ([len(steps) - 1] if plan.training else []), f"weight updates at {updates}"
    _check_stashes(plan, steps)


def _times_of_parts(steps: Sequence[Step]) -> dict[tuple[int | None, bool, int | None], list[int]]:
    when: dict[tuple[int | None, bool, int | None], list[int]] = {}
    for time, step in enumerate(steps):
        for one in step.instructions:
            if one.part.work in (Activity.FORWARD, Activity.BACKWARD):
                key = one.part.stage, one.part.backward, one.micro_batch
                when.setdefault(key, []).append(time)
    return when


def _check_stashes(plan: PipelinePlan, steps: Sequence[Step]) -> None:
    """Asserts that stashes give back in the order that they took, and never overflow."""
    counts = plan.stash_counts
    stashed: dict[int | None, list[int | None]] = {}
    for instruction in (one for step in steps for one in step.instructions):
        part, waiting = instruction.part, stashed.setdefault(instruction.part.stage, [])
        if part.work is Activity.STASH:
            waiting.append(instruction.micro_batch)
        elif part.work is Activity.UNSTASH:
            assert waiting[:1] == [instruction.micro_batch], f"{instruction} takes back {waiting}"
            waiting.pop(0)
        assert part.stage is None or len(waiting) <= counts[part.stage], f"{instruction} overflows"
    assert not any(stashed.values()), f"left in stashes: {stashed}"
