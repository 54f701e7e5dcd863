"""Times a pipeline: every step takes as long as the IPU that has most to do in it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ipu_keras.cost.pipeline.schedule import Activity, Instruction, Part, Phase, Step

# The IPUs of a pipeline synchronize between steps. Of S stages that take f forward and b
# backward, on IPUs of their own, with N micro-batches:
# - `Grouped` has N + S - 1 forward steps and as many backward ones, of which each IPU computes
#   in N: it takes (N + S - 1)(f + b), and N / (N + S - 1) of that is computation.
# - `Interleaved` has 2(N + S - 1) steps, each as long as the longer direction: the same share if
#   f = b, less otherwise: N(f + b) / (2(N + S - 1) max(f, b)).
# - `Sequential` takes N S (f + b), of which an IPU computes 1 / S.
# - In inference, N + S - 1 steps of f: N / (N + S - 1).


@dataclass(frozen=True)
class Event:
    """An instruction and when it runs, in tile cycles after the pipeline begins."""

    instruction: Instruction
    start: int
    cycles: int


@dataclass(frozen=True, kw_only=True)
class PipelineTiming:
    """A pipeline's steps in time, in tile cycles.

    Args:
        starts: Cycles from the beginning to each step, and to the end of the last.
        busy: Cycles by IPU in which it does not wait for others.
    """

    events: tuple[Event, ...]
    starts: tuple[int, ...]
    cycles_by_phase: Mapping[Phase, int]
    busy: Mapping[int, int]

    @property
    def cycles(self) -> int:
        """Tile cycles from the beginning to the end of the last step."""
        return self.starts[-1]

    @property
    def utilisation(self) -> float:
        """Share of the time of all IPUs that have a stage in which they do not wait."""
        return sum(self.busy.values()) / max(self.cycles * len(self.busy), 1)

    @property
    def bubble_share(self) -> float:
        """Share of the time of all IPUs in which they wait for each other."""
        return 1 - self.utilisation if self.cycles else 0.0

    def bubbles(self, ipu: int) -> list[tuple[int, int]]:
        """Returns when an IPU waits: the start and the end of each bubble, in tile cycles."""
        found, end = [], 0
        for event in self.events:
            if event.instruction.part.ipu == ipu and event.cycles:
                if event.start > end:
                    found.append((end, event.start))
                end = event.start + event.cycles
        return [*found, *([(end, self.cycles)] if end < self.cycles else [])]


def time_pipeline(steps: Sequence[Step], cycles: Mapping[Part, int]) -> PipelineTiming:
    """Returns when each instruction of a schedule runs; parts without cycles take none."""
    events: list[Event] = []
    starts = [0]
    by_phase: Counter[Phase] = Counter()
    for step in steps:
        work = [i for i in step.instructions if i.part.work is not Activity.COPY]
        copies = [i for i in step.instructions if i.part.work is Activity.COPY]
        # First copies cross, those between different pairs of IPUs at the same time; then each
        # IPU does its work.
        end, found = _lined_up(copies, cycles, starts[-1], lambda part: (part.ipu, part.to))
        events += found
        end, found = _lined_up(work, cycles, end, lambda part: (part.ipu,))
        events += found
        by_phase[step.phase] += end - starts[-1]
        starts.append(end)
    return PipelineTiming(
        events=tuple(events),
        starts=tuple(starts),
        cycles_by_phase=dict(by_phase),
        busy=_busy(events),
    )


def _lined_up(instructions: Sequence[Instruction], cycles, start: int, key) -> tuple[int, list]:
    """Puts what has the same key one after the other; returns the last end, and all events."""
    ends: dict[tuple, int] = {}
    found = []
    for instruction in instructions:
        lane = key(instruction.part)
        begin, length = ends.get(lane, start), cycles.get(instruction.part, 0)
        found.append(Event(instruction, begin, length))
        ends[lane] = begin + length
    return max(ends.values(), default=start), found


def _busy(events: Sequence[Event]) -> dict[int, int]:
    """Returns cycles by IPU; copies of one IPU to several others, which overlap, count once."""
    busy: dict[int, int] = {}
    ends: dict[int, int] = {}
    for event in events:
        ipu = event.instruction.part.ipu
        end = event.start + event.cycles
        begin = max(event.start, ends.get(ipu, 0))
        busy[ipu] = busy.get(ipu, 0) + max(end - begin, 0)
        ends[ipu] = max(end, ends.get(ipu, 0))
    return dict(sorted(busy.items()))
