"""A report as one HTML file that loads nothing from anywhere, and cells of notebooks."""

from collections.abc import Mapping, Sequence
from typing import Any

from ipu_keras.report.figures import Figures
from ipu_keras.report.figures_in_words import (
    bound_in_words,
    error_line,
    samples_in_words,
    throughput_in_words,
    verdict_in_words,
)
from ipu_keras.report.fullest_tile import fullest_tile
from ipu_keras.report.glossary import TERMS
from ipu_keras.report.html_host import HOST_WORKS, host_picture
from ipu_keras.report.html_pipeline import WORKS, pipeline_picture
from ipu_keras.report.html_templates import template_named, words_of
from ipu_keras.report.html_trace import LANES, TIMELINE_WIDTH, FamilyColours, spans, units_of
from ipu_keras.report.libraries import needs_report_extra
from ipu_keras.report.memory_map import placed_values
from ipu_keras.report.operation_graph import operation_graph
from ipu_keras.report.options_in_words import options_in_words
from ipu_keras.report.plain_report import plain_report
from ipu_keras.report.program_tree import program_tree
from ipu_keras.report.roofline import roof_of, work_of_layers
from ipu_keras.report.rows import Row
from ipu_keras.report.tile_categories import bytes_by_tile, in_runs

with needs_report_extra("An HTML report"):
    from ipu_keras.report.html_pictures import (
        broad_and_narrow,
        liveness_picture,
        memory_picture,
        roofline_picture,
    )

# Longer tables are cut: nobody reads them in a page, and the JSON form has every row.
MAX_TABLE_ROWS = 300

# Layers of the worst tile that the summary shows, and lines of each table in a notebook.
_NUM_LARGEST = 8

# A notebook keeps its outputs in its file, so what is drawn in them must be small.
_MAX_TILES_IN_NOTEBOOK = 200
_MAX_BARS_IN_NOTEBOOK = 400


def page(report: Figures) -> str:
    """Returns a whole HTML page, with its style, its script and its pictures inside.

    Equal reports give equal text.
    """
    model, rows, timing = report.model, report.rows, report.pipeline_timing
    categories, work, roof = (
        bytes_by_tile(model),
        work_of_layers(model, rows),
        roof_of(model.target),
    )
    return _rendered(
        "report.html.j2",
        report,
        memory_picture=broad_and_narrow(memory_picture, model.memory, categories),
        liveness_picture=broad_and_narrow(
            liveness_picture, rows, model.memory, report.host_cycles, model.target.clock_hz
        )
        if rows
        else "",
        roofline_picture=broad_and_narrow(roofline_picture, work, roof)
        if any(one.flops for one in work)
        else "",
        roof=roof,
        work=work,
        tile_map=[(name, in_runs(sizes)) for name, sizes in categories.items()],
        tree=program_tree(model, rows),
        operations=operation_graph(model, rows),
        terms=TERMS,
        error_line=error_line(report.error_bands),
        lanes=LANES,
        spans=spans(rows, model.costs),
        trace_cycles=report.host_cycles + report.busy_cycles,
        pipeline_picture=None if timing is None else pipeline_picture(timing),
        host_picture=host_picture(report.executions, report.seconds_per_execution),
        host_works=HOST_WORKS,
        colours=FamilyColours(tuple(row.name for row in report.by("family"))),
        always_live=_in_words(model.memory.always_live_by_category),
        not_always_live=_in_words(model.memory.not_always_live_by_category),
        cycles_by=lambda key: [(row.name, row.cycles) for row in report.by(key)],
        compute_sets=sorted(rows, key=lambda row: (-row.cycles, row.name)),
        order={row.name: place for place, row in enumerate(rows)},
        tiles={row.name: cost.tiles for row, cost in zip(rows, model.costs, strict=True)},
        values=placed_values(model),
        tiles_of_ipu=model.memory.num_tiles_of_ipu,
        options=options_in_words(model.options),
        plain=plain_report(report),
    )


def notebook_cell(report: Figures) -> str:
    """Returns the summary, pictures, and the most expensive layers, as a part of a page."""
    timing = report.pipeline_timing
    return _rendered(
        "notebook.html.j2",
        report,
        memory_picture=memory_picture(
            report.model.memory, bytes_by_tile(report.model), _MAX_TILES_IN_NOTEBOOK
        ),
        pipeline_picture=None
        if timing is None
        else pipeline_picture(timing, _MAX_BARS_IN_NOTEBOOK),
    )


def _rendered(template: str, report: Figures, **values: Any) -> str:
    return template_named(template).render(
        report=report,
        layers=report.layers,
        families=report.by("family"),
        bound_in_words=bound_in_words,
        samples_in_words=samples_in_words,
        throughput_in_words=throughput_in_words,
        verdict_in_words=verdict_in_words,
        fullest_tile=fullest_tile(report.model.memory),
        worst_tile=report.layers_of_worst_tile(),
        max_rows=MAX_TABLE_ROWS,
        num_largest=_NUM_LARGEST,
        share_of=_share_of,
        works=WORKS,
        timeline_width=TIMELINE_WIDTH,
        units_of=units_of,
        **values,
    )


def _in_words(sizes: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(words_of(name), size) for name, size in sizes.items()]


def _share_of(rows: Sequence[Row], total_cycles: int) -> float:
    return sum(row.cycles for row in rows) / max(total_cycles, 1)
