"""A report as text for a terminal."""

from collections.abc import Iterator

from rich.text import Text

from ipu_keras.report.advice_tables import fixes_table
from ipu_keras.report.figures import Figures
from ipu_keras.report.figures_in_words import bound_in_words, samples_in_words
from ipu_keras.report.fullest_tile import fullest_tile
from ipu_keras.report.pipeline_view import stage_table
from ipu_keras.report.text import cost_table, layer_table, memory_table, rendered

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
    return head, f"It fits: {bytes_of_tile} on {fullest_tile(memory)}"


def _pace(report: Figures) -> Iterator[str]:
    """Yields lines on samples, weight updates and executions, where there are any."""
    if report.samples_per_second is not None:
        yield f"{report.samples_per_second:,.0f} samples/s, {samples_in_words(report)}"
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
