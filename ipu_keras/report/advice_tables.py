"""A table for a terminal of stages that were balanced."""

from itertools import chain

from ipu_keras.advice.balanced_pipeline import BalancedPipeline, PlannedSplit
from ipu_keras.report.error_bands import error_bands
from ipu_keras.report.text import PlainTable

_OF_SPLITS = ("layers", "cycles", "fullest tile")


def balance_table(title: str, found: BalancedPipeline) -> PlainTable:
    """Makes a table with a line for each stage, before and after they were balanced."""
    splits = {"even": found.before, "balanced": found.after}
    footers = (("", f"{split.slowest:,}", _verdict(split)) for split in splits.values())
    return PlainTable(
        title=title,
        columns=("stage", *(f"{name}: {what}" for name in splits for what in _OF_SPLITS)),
        rows=tuple(
            (str(stage), *(cell for split in splits.values() for cell in _cells(split, stage)))
            for stage in range(len(found.after.ends))
        ),
        footer=("slowest", *chain(*footers)),
    )


def _verdict(split: PlannedSplit) -> str:
    if error_bands().is_close(max(split.tile_bytes), split.capacity):
        return "too close to say"
    return "fits" if split.fits else "does not fit"


def _cells(split: PlannedSplit, stage: int) -> list[str]:
    starts = (0, *split.ends)
    size = split.ends[stage] - starts[stage]
    return [
        str(size),
        f"{split.cycles[stage]:,}",
        f"{split.tile_bytes[stage] / split.capacity:.1%}",
    ]
