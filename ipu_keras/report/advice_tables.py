"""What searches with the model found, as tables for a terminal."""

from collections.abc import Sequence

from rich.table import Table

from ipu_keras.advice.balanced_pipeline import BalancedPipeline, Split
from ipu_keras.advice.durations import in_words
from ipu_keras.advice.fixes import Fix


def fixes_table(fixes: Sequence[Fix]) -> Table:
    """A line for each fix.

    Args:
        fixes: In their order.
    """
    table = Table(title="What would need less memory", title_justify="left")
    table.add_column("change")
    for column in ("fullest tile", "fits", "time per sample"):
        table.add_column(column, justify="right")
    for fix in fixes:
        fits = "yes" if fix.fits else "no"
        table.add_row(fix.name, f"{fix.max_tile_bytes:,}", fits, in_words(fix.seconds_per_sample))
    return table


def balance_table(title: str, found: BalancedPipeline) -> Table:
    """A line for each stage, before and after they were balanced.

    Args:
        title: Above it.
        found: The stages.
    """
    table = Table(title=title, title_justify="left", show_footer=True)
    table.add_column("stage", justify="right", footer="slowest")
    for name, split in (("even", found.before), ("balanced", found.after)):
        verdict = "fits" if split.fits else "does not fit"
        table.add_column(f"{name}: layers", justify="right")
        table.add_column("cycles", footer=f"{split.slowest:,}", justify="right")
        table.add_column("MiB", footer=verdict, justify="right")
    for stage in range(len(found.after.ends)):
        cells = [*_cells(found.before, stage), *_cells(found.after, stage)]
        table.add_row(str(stage), *cells)
    return table


def _cells(split: Split, stage: int) -> list[str]:
    starts = (0, *split.ends)
    size = split.ends[stage] - starts[stage]
    return [str(size), f"{split.cycles[stage]:,}", f"{split.num_bytes[stage] / 2**20:,.1f}"]
