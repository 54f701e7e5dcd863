"""What changes from one report to another, as one HTML file that loads nothing from anywhere."""

from collections.abc import Mapping
from typing import Any

from ipu_keras.report.compared import Change, MemoryCurves
from ipu_keras.report.html import template_named
from ipu_keras.report.html_pictures import compared_liveness, compared_memory

# Totals at the top, with what they are called there.
_KEY_FIGURES = (
    ("cycles_per_step", "cycles per step"),
    ("samples_per_second", "samples per second"),
    ("max_tile_bytes", "bytes on the fullest tile"),
    ("total_bytes", "bytes on all tiles"),
    ("flops_per_step", "operations per step"),
)
_NONE = Change(0, 0)


def page(
    *,
    names: tuple[str, str],
    settings: Mapping[str, tuple[Any, Any]],
    changes: Mapping[str, Mapping[str, Change]],
    curves: tuple[MemoryCurves | None, MemoryCurves | None],
) -> str:
    """Returns a whole HTML page, with its style, its script and its pictures inside.

    Args:
        changes: The fields of `Difference` that are changes, by name.
    """
    before, after = curves
    totals, layers = changes["totals"], changes["layers"]
    drawn = None if before is None or after is None else (before, after)
    return template_named("comparison.html.j2").render(
        names=names,
        settings=settings,
        key_figures=[(word, totals[name]) for name, word in _KEY_FIGURES if name in totals],
        totals=totals,
        families=changes["families"],
        memory=changes["memory"],
        layers={
            name: (
                layers.get(name, _NONE),
                changes["layer_memory"].get(name, _NONE),
                changes["layer_flops"].get(name, _NONE),
                changes["parameters"].get(name, _NONE),
            )
            for name in layers
        },
        memory_picture="" if drawn is None else compared_memory(*drawn),
        liveness_picture=""
        if drawn is None or not (drawn[0].live and drawn[1].live)
        else compared_liveness(*drawn),
    )
