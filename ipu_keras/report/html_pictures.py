"""Pictures of a program's memory, drawn as SVG that stands inside a page."""

import io
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from ipu_keras.cost.flat.memory import MemoryPlan
from ipu_keras.report.memory_curves import MemoryCurves
from ipu_keras.report.rows import Row

# More points than a screen has pixels only make the file larger.
MAX_POINTS = 2000

# The most IPUs that a picture numbers: more labels would run into each other.
_MOST_LABELS = 16

# Replaced by `currentColor` of SVG, which matplotlib does not know, so that pictures follow light
# and dark pages. Nothing else is drawn in this colour.
_TEXT = "#010203"
_ALWAYS_LIVE, _LIVE, _LIMIT = "#4477aa", "#ee9944", "#cc3344"

_STYLE: Mapping[Any, Any] = {
    # Text stays text, which a page can select and draw in its own font, not outlines of
    # letters.
    "svg.fonttype": "none",
    # Without a salt of our own, matplotlib makes up ids anew each time; equal reports make
    # equal pages.
    "svg.hashsalt": "ipu-keras",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": _TEXT,
    "axes.edgecolor": _TEXT,
    "axes.labelcolor": _TEXT,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
    "legend.frameon": False,
}
# A date would make equal reports differ, and matplotlib's own address is of no use here.
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def memory_picture(memory: MemoryPlan, max_tiles: int | None = None) -> str:
    """Draws each tile when it is fullest beside the memory that a tile has, as an SVG element.

    If there are more than `max_tiles`, neighbours are drawn as one.
    """
    with matplotlib.rc_context({**_STYLE}):
        figure, axes = _empty_picture()
        for sizes, colour, label in (
            (memory.peak_by_tile, _LIVE, "when fullest"),
            (memory.always_live_by_tile, _ALWAYS_LIVE, "always live"),
        ):
            drawn, edges = thinned(sizes, np.arange(len(sizes) + 1), max_tiles or len(sizes))
            _stairs(axes, drawn / 1024, edges, colour, label)
        axes.axhline(memory.tile_bytes / 1024, color=_LIMIT, label="what a tile has")
        axes.set_xlabel("tile" if memory.num_ipus == 1 else "tile of each IPU")
        if memory.num_ipus > 1:
            _draw_borders(axes, memory.num_ipus, memory.num_tiles_of_ipu)
        axes.set_ylabel("KiB")
        return _svg(figure, "memory")


def liveness_picture(
    rows: Sequence[Row], memory: MemoryPlan, host_cycles: int, clock_hz: float
) -> str:
    """Draws the bytes in use over all tiles while the step runs, as an SVG element.

    Args:
        rows: Rows in the order of execution, at least one.
        host_cycles: Tile cycles of the copies between host and IPU, before the first row.
        clock_hz: Tile cycles per second.
    """
    starts = np.array([*accumulate((row.cycles for row in rows), initial=host_cycles)])
    edges = starts * 1e6 / clock_hz
    always = memory.always_live_by_tile.sum()
    live = memory.live_by_position[: len(rows)] + always
    live, drawn_edges = thinned(live, edges)
    with matplotlib.rc_context({**_STYLE}):
        figure, axes = _empty_picture()
        _stairs(axes, live / 2**20, drawn_edges, _LIVE, "in use")
        # From the copies on, with which the timeline of the page begins as well.
        _stairs(axes, [always / 2**20], [0, edges[-1]], _ALWAYS_LIVE, "always live")
        capacity = memory.tile_bytes * len(memory.peak_by_tile)
        axes.axhline(capacity / 2**20, color=_LIMIT, label="what all tiles have")
        fullest = edges[memory.peak_position]
        axes.axvline(fullest, color=_TEXT, linestyle=":", label="worst tile is fullest")
        axes.set_xlabel("time in a step, µs")
        axes.set_ylabel("MiB, all tiles")
        return _svg(figure, "liveness")


def compared_memory(before: MemoryCurves, after: MemoryCurves) -> str:
    """Draws each tile of two programs when it is fullest, as an SVG element."""
    with matplotlib.rc_context({**_STYLE}):
        figure, axes = _empty_picture()
        for one, draw, label in ((before, _shade, "before"), (after, _line, "after")):
            sizes = np.array(one.peak_by_tile)
            draw(axes, *thinned(sizes / 1024, np.arange(len(sizes) + 1)), label)
        limits = sorted({before.tile_bytes, after.tile_bytes})
        for limit in limits:
            axes.axhline(limit / 1024, color=_LIMIT, label="what a tile has")
        num_ipus = max(before.num_ipus, after.num_ipus)
        axes.set_xlabel("tile" if num_ipus == 1 else "tile of each IPU")
        widest = max(before, after, key=lambda one: len(one.peak_by_tile))
        if num_ipus > 1:
            _draw_borders(axes, widest.num_ipus, len(widest.peak_by_tile) // widest.num_ipus)
        axes.set_ylabel("KiB")
        return _svg(figure, "memory")


def compared_liveness(before: MemoryCurves, after: MemoryCurves) -> str:
    """Draws the bytes in use over all tiles while the steps of two programs run, as an SVG element.

    Both programs must have at least one compute set.
    """
    with matplotlib.rc_context({**_STYLE}):
        figure, axes = _empty_picture()
        for one, draw, label in ((before, _shade, "before"), (after, _line, "after")):
            live = np.array(one.live) / 2**20
            draw(axes, *thinned(live, np.array(one.edges)), label)
        axes.set_xlim(0, max(before.edges[-1], after.edges[-1]))
        axes.set_xlabel("time in a step, µs")
        axes.set_ylabel("MiB, all tiles")
        return _svg(figure, "liveness")


def thinned(
    values: np.ndarray, edges: np.ndarray, max_points: int = MAX_POINTS
) -> tuple[np.ndarray, np.ndarray]:
    """Joins neighbours into their largest value, so that no peak is lost.

    Args:
        values: `(n,)`, at least one.
        edges: `(n + 1,)`: the beginning of each value, and the end of the last one.
        max_points: The most values that may be left.

    Returns:
        The values that are left, and their edges.
    """
    step = math.ceil(len(values) / max_points)
    firsts = np.arange(0, len(values), step)
    return np.maximum.reduceat(values, firsts), np.append(edges[firsts], edges[-1])


def _draw_borders(axes: Axes, num_ipus: int, num_tiles: int) -> None:
    """Draws lines between the tiles of two IPUs, tiles by IPU below and IPUs above."""
    shown = range(0, num_ipus, math.ceil(num_ipus / _MOST_LABELS))
    for ipu in range(1, num_ipus):
        axes.axvline(ipu * num_tiles, color=_TEXT, linewidth=0.8, linestyle="--")
    middles = [(ipu + 0.5) * num_tiles for ipu in shown]
    above = axes.secondary_xaxis("top")
    above.set_xticks(middles, [f"IPU {ipu}" for ipu in shown])
    above.tick_params(length=0)
    above.spines["top"].set_visible(False)
    # The first tile of each IPU, and the one in the middle if there is room.
    parts = 2 if num_ipus <= _MOST_LABELS / 2 else 1
    ticks = [(ipu, part * num_tiles // parts) for ipu in shown for part in range(parts)]
    axes.set_xticks([ipu * num_tiles + tile for ipu, tile in ticks], [f"{t}" for _, t in ticks])


def _empty_picture() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.add_subplot()
    axes.margins(x=0)
    return figure, axes


def _stairs(axes: Axes, values: ArrayLike, edges: ArrayLike, colour: str, label: str) -> None:
    axes.stairs(values, edges, fill=True, color=colour, label=label)


def _shade(axes: Axes, values: ArrayLike, edges: ArrayLike, label: str) -> None:
    _stairs(axes, values, edges, _ALWAYS_LIVE, label)


def _line(axes: Axes, values: ArrayLike, edges: ArrayLike, label: str) -> None:
    axes.stairs(values, edges, color=_LIVE, linewidth=1.5, label=label)


def _svg(figure: Figure, name: str) -> str:
    figure.legend(loc="outside upper left", ncols=4)
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata=_NO_METADATA)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].replace(_TEXT, "currentColor")
    # Several pictures share a page, in which a name may stand once only: one of each kind in a
    # report, and in a notebook many.
    prefix = f"{name}-picture-{zlib.crc32(svg.encode()):08x}-"
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}", svg)
