"""What the host did as it executed a program, beside what an IPU would, for the HTML report."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from types import MappingProxyType

from ipu_keras.program.executions import Execution

# Of more executions, single ones could not be seen without zooming.
_MOST_SHOWN = 16

# What the styles of bars stand for.
HOST_WORKS = MappingProxyType(
    {
        "exchange": "waits for data",
        "forward": "executes",
        "update": "an IPU would execute, by the model",
    }
)


@dataclass(frozen=True)
class HostBar:
    """Something that takes nanoseconds, drawn as a bar.

    Args:
        lane: 0 for the host, 1 for the IPU.
        start: Nanoseconds after the picture begins.
    """

    lane: int
    style: str
    start: int
    nanoseconds: int


@dataclass(frozen=True, kw_only=True)
class HostPicture:
    """The last executions of a program.

    Args:
        bars: The bars in order of time.
        nanoseconds: The time that is shown.
        num_shown: Executions that are shown.
        num_executions: Executions that the figures are of.
        executing: Seconds of an execution on the host; the median, as the next two.
        waiting: Seconds before it in which the host waits for data.
        between: Seconds from its end to the next, without that: for callbacks and logs.
    """

    bars: tuple[HostBar, ...]
    nanoseconds: int
    num_shown: int
    num_executions: int
    executing: float
    waiting: float
    between: float


def host_picture(
    executions: Sequence[Execution], seconds_per_execution: float
) -> HostPicture | None:
    """Returns the picture of executions; `None` of a program of which no times are known.

    Args:
        executions: Those of one program, oldest first.
        seconds_per_execution: What an IPU would take for each, by the model.
    """
    if not executions:
        return None
    shown = executions[-_MOST_SHOWN:]
    start, modelled = shown[0].began - shown[0].waited, round(seconds_per_execution * 1e9)
    bars, free = [], 0
    for one in shown:
        began = one.began - start
        # An IPU that is slower than this host begins when it is done with the one before.
        free = max(began, free)
        bars += [
            HostBar(0, "exchange", began - one.waited, one.waited),
            HostBar(0, "forward", began, one.ended - one.began),
            HostBar(1, "update", free, modelled),
        ]
        free += modelled
    between = [later.began - later.waited - one.ended for one, later in pairwise(executions)]
    return HostPicture(
        bars=tuple(bars),
        nanoseconds=max(bar.start + bar.nanoseconds for bar in bars),
        num_shown=len(shown),
        num_executions=len(executions),
        executing=median(one.ended - one.began for one in executions) / 1e9,
        waiting=median(one.waited for one in executions) / 1e9,
        between=median(between) / 1e9 if between else 0.0,
    )
