"""A report as text for a terminal."""

from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from ipu_keras.advice.changes import Fix
from ipu_keras.advice.durations import in_words
from ipu_keras.report.figures import Figures
from ipu_keras.report.figures_in_words import bound_in_words, samples_in_words, throughput_in_words
from ipu_keras.report.fullest_tile import fullest_tile
from ipu_keras.report.layers import Layer
from ipu_keras.report.pipeline_view import stage_table
from ipu_keras.report.rows import Row
from ipu_keras.report.text import PlainTable, rendered

# Layers that the text shows; `Report.to_dataframe` has all of them.
_NUM_LAYERS = 15
_NUM_LAYERS_IN_SHORT = 5


def summary(report: Figures) -> str:
    """Returns the figures, remarks on them, and tables of layers, families and memory."""
    layers, families, memory = report.layers, report.by("family"), report.model.memory
    return rendered(
        *_lines(report),
        *([fixes_table(report.fixes)] if report.fixes else []),
        *([] if report.pipeline is None else [stage_table(report.pipeline.stages)]),
        layer_table(f"Layers ({len(layers)})", layers[:_NUM_LAYERS], report.busy_cycles),
        cost_table("Families", families, report.busy_cycles),
        memory_table(memory.always_live_by_category, memory.not_always_live_by_category),
        report.error_bands.table(),
    )


def fixes_table(fixes: Sequence[Fix]) -> PlainTable:
    """Makes a table with a line for each fix."""
    return PlainTable(
        title="What would need less memory",
        columns=("change", "fullest tile", "fits", "time per sample"),
        rows=tuple(
            (
                fix.name,
                f"{fix.max_tile_bytes:,}",
                _answer(fix),
                in_words(fix.seconds_per_sample),
            )
            for fix in fixes
        ),
    )


def _answer(fix: Fix) -> str:
    if fix.is_close:
        return "too close to say"
    return "yes" if fix.fits else "no, by its code" if fix.excess_code_bytes else "no"


def cost_table(title: str, rows: Sequence[Row], total_cycles: int) -> PlainTable:
    """Makes a table with a line for each row, and its share of `total_cycles`."""
    names = ("name", "cycles", "share", "compute", "exchange", "sync", "MFLOP", "confidence")
    return PlainTable(
        title=title,
        columns=names,
        words=("confidence",),
        rows=tuple(
            (
                row.name,
                f"{row.cycles:,}",
                f"{row.cycles / max(total_cycles, 1):.1%}",
                f"{row.compute_cycles:,}",
                f"{row.exchange_cycles:,}",
                f"{row.sync_cycles:,}",
                f"{row.flops / 1e6:,.1f}",
                row.confidence,
            )
            for row in rows
        ),
    )


def layer_table(title: str, layers: Sequence[Layer], total_cycles: int) -> PlainTable:
    """Makes a table with a line for each layer, and its share of `total_cycles`."""
    has = ("name", "parameters", "MFLOP", "variables KiB", "at peak KiB")
    return PlainTable(
        title=title,
        columns=(*has, "cycles", "share", "confidence"),
        words=("confidence",),
        rows=tuple(
            (
                layer.name,
                f"{layer.parameters:,}",
                f"{layer.flops / 1e6:,.1f}",
                f"{layer.variable_bytes / 1024:,.1f}",
                f"{layer.peak_bytes / 1024:,.1f}",
                f"{layer.cycles:,}",
                f"{layer.cycles / max(total_cycles, 1):.1%}",
                layer.confidence,
            )
            for layer in layers
        ),
    )


def memory_table(always_live: Mapping[str, int], not_always_live: Mapping[str, int]) -> PlainTable:
    """Makes a table with a line for each category of memory, and their sums."""
    sides = always_live, not_always_live
    return PlainTable(
        title="Memory of all tiles",
        columns=("category", "always live [bytes]", "not always live [bytes]"),
        rows=tuple(
            (
                category.replace("_", " "),
                *(f"{sizes[category]:,}" if category in sizes else "" for sizes in sides),
            )
            for category in {**always_live, **not_always_live}
        ),
        footer=("all", *(f"{sum(sizes.values()):,}" for sizes in sides)),
    )


def short_summary(report: Figures) -> str:
    """Returns one line on time, one on memory, and the layers that take the longest."""
    layers = report.layers
    title = f"Layers (the longest of {len(layers)})"
    return rendered(
        *_verdict(report),
        layer_table(title, layers[:_NUM_LAYERS_IN_SHORT], report.busy_cycles),
    )


def _lines(report: Figures) -> Iterator[str | Text]:
    head, memory_line = _verdict(report)
    if report.note:
        yield report.note
    yield head
    yield from _pace(report)
    yield (
        f"{report.flops_per_step / 1e9:.3f} GFLOP per step, {report.utilisation:.1%} of the peak; "
        f"{report.guessed_share:.0%} of the cycles are guessed"
    )
    yield memory_line
    regions = ", ".join(f"{name} {size:,}" for name, size in report.bytes_by_region.items())
    yield f"Regions of that tile: {regions}"
    yield from report.remarks
    yield from report.error_bands.sentences(report.model.target.name)


def _verdict(report: Figures) -> tuple[str, str | Text]:
    """Returns one line on the time of a step, and one on whether it fits."""
    model, memory = report.model, report.model.memory
    head = (
        f"{report.name} on {model.target.name}: {report.cycles_per_step:,} cycles per step, "
        f"{report.seconds_per_step * 1e3:.3f} ms, bound by the {bound_in_words(report)}"
    )
    if report.memory_error is not None:
        # On one line, as scripts look for the IPU's own text.
        return head, Text(report.memory_error)
    bytes_of_tile = f"{memory.max_tile_bytes:,} of {memory.tile_bytes:,} bytes"
    fits = "It fits" if report.verdict == "fits" else "It fits, but too closely to say"
    return head, f"{fits}: {bytes_of_tile} on {fullest_tile(memory)}"


def _pace(report: Figures) -> Iterator[str]:
    """Yields lines on samples, weight updates and executions, where there are any."""
    if report.samples_per_second is not None:
        pace = throughput_in_words(report.samples_per_second, report.error_bands)
        yield f"{pace} samples/s, {samples_in_words(report)}"
    count = report.model.options.gradient_accumulation_count
    if count > 1:
        cycles = report.cycles_per_step * count
        yield f"Weights are updated after {count:,} steps, {cycles:,} cycles"
    steps = report.model.options.steps_per_execution
    if steps > 1:
        yield (
            f"An execution of {steps:,} steps takes {report.cycles_per_execution:,} cycles, "
            f"{report.seconds_per_execution * 1e3:.3f} ms"
        )
