"""A pipeline between two weight updates as bars, a lane for each IPU, for the HTML report."""

from collections.abc import Iterator
from dataclasses import dataclass

from ipu_keras.cost.pipeline.schedule import Activity
from ipu_keras.cost.pipeline.timing import PipelineTiming

# More bars than a screen has pixels only make the file larger.
MAX_BARS = 3000

_STYLES = {
    Activity.FORWARD: "forward",
    Activity.BACKWARD: "backward",
    Activity.RECOMPUTE: "recompute",
    Activity.STASH: "stash",
    Activity.UNSTASH: "stash",
    Activity.COPY: "exchange",
    Activity.WEIGHT_UPDATE: "update",
}

# What the colours of a legend stand for.
WORKS = (
    ("forward", "forward"),
    ("backward", "backward"),
    ("recompute", "recompute"),
    ("stash", "stash"),
    ("exchange", "copy to another IPU"),
    ("update", "weight update"),
)


@dataclass(frozen=True)
class Bar:
    """An instruction of a pipeline, drawn as a bar.

    Args:
        ipu: The IPU whose lane it is on.
        start: Tile cycles after the pipeline begins.
        cycles: Tile cycles that it takes.
    """

    ipu: int
    start: int
    cycles: int
    style: str
    text: str


@dataclass(frozen=True)
class PipelinePicture:
    """The bars of a pipeline from its beginning on.

    Args:
        ipus: Numbers of the IPUs, which have a lane each.
        bars: The bars in order of time.
        cycles: Tile cycles that are shown.
        is_whole: Whether the picture shows the pipeline to its end.
    """

    ipus: tuple[int, ...]
    bars: tuple[Bar, ...]
    cycles: int
    is_whole: bool


def pipeline_picture(timing: PipelineTiming, max_bars: int = MAX_BARS) -> PipelinePicture:
    """Returns the bars of a pipeline: all, or from the beginning at most `max_bars`."""
    bars = tuple(_bars(timing))
    is_whole = len(bars) <= max_bars
    # A picture that is cut ends where a step of the schedule begins, on all IPUs.
    end = timing.cycles if is_whole else max(s for s in timing.starts if s <= bars[max_bars].start)
    shown = tuple(bar for bar in bars[:max_bars] if bar.start + bar.cycles <= end)
    return PipelinePicture(tuple(timing.busy), shown, end, is_whole)


def _bars(timing: PipelineTiming) -> Iterator[Bar]:
    for event in timing.events:
        part = event.instruction.part
        if event.cycles:
            text = f"{event.instruction}: {part.work.value}, {event.cycles:,} cycles"
            style = _STYLES[part.work]
            yield Bar(part.ipu, event.start, event.cycles, style, text)
