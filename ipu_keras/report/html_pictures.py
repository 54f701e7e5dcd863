"""Pictures of a program's memory, drawn as SVG that stands inside a page."""

import io
import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from ipu_keras.cost.flat.memory import MemoryPlan
from ipu_keras.report.memory_curves import MemoryCurves
from ipu_keras.report.roofline import LayerWork, Roof
from ipu_keras.report.rows import Row
from ipu_keras.report.tile_categories import PROGRAM, SOMETIMES

# More points than a screen has pixels only make the file larger.
MAX_POINTS = 2000

# The most IPUs that a picture numbers: more labels would run into each other.
_MOST_LABELS = 16

# Replaced by `currentColor` of SVG, which matplotlib does not know, so that pictures follow light
# and dark pages. Nothing else is drawn in this colour.
_TEXT = "#010203"
_ALWAYS_LIVE, _LIVE, _LIMIT = "#4477aa", "#ee9944", "#cc3344"
CATEGORY_COLOURS: Mapping[str, str] = {
    PROGRAM: "#8a8f98",
    "variables": _ALWAYS_LIVE,
    "constants": "#66bbdd",
    "stashes": "#66aa77",
    SOMETIMES: _LIVE,
}

# The group of a picture's points, by which they are found in it.
_POINTS = "points"

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


def broad_and_narrow(draw: Callable[..., str], *drawn: Any) -> str:
    """Returns a picture twice: for a screen, and for a telephone, where the other is hidden.

    Args:
        draw: One of the functions below.
        *drawn: What it draws, without `narrow`.
    """
    return draw(*drawn) + draw(*drawn, narrow=True)


def memory_picture(
    memory: MemoryPlan,
    categories: Mapping[str, np.ndarray],
    max_tiles: int | None = None,
    *,
    narrow: bool = False,
) -> str:
    """Draws what each tile holds when it is fullest, as an SVG element.

    Args:
        memory: How full the tiles become.
        categories: `(tiles,)` bytes by category, as `bytes_by_tile` returns them.
        max_tiles: If there are more, of neighbours only the fullest is drawn. Defaults to what
            can be told apart.
        narrow: Whether it is for a telephone.
    """
    most = max_tiles or _points(narrow) // 2
    chosen, edges = _fullest_of_neighbours(memory.peak_by_tile, most)
    with matplotlib.rc_context({**_STYLE}):
        figure, axes = _empty_picture(narrow)
        whole = np.cumsum([sizes[chosen] for sizes in categories.values()], axis=0)
        # What is below is drawn over it, so that each category needs one line only.
        for name, sizes in reversed([*zip(categories, whole, strict=True)]):
            _stairs(axes, *_joined(sizes / 1024, edges), CATEGORY_COLOURS[name], name)
        axes.axhline(memory.tile_bytes / 1024, color=_LIMIT, label="what a tile has")
        peak = memory.worst_tile + 0.5, memory.max_tile_bytes / 1024
        axes.plot(*peak, "v", color=_TEXT, label="fullest tile", linestyle="none")
        axes.set_xlabel("tile" if memory.num_ipus == 1 else "tile of each IPU")
        if memory.num_ipus > 1:
            _draw_borders(axes, memory.num_ipus, memory.num_tiles_of_ipu, narrow)
        axes.set_ylabel("KiB")
        return _svg(figure, "memory", narrow)


def roofline_picture(layers: Sequence[LayerWork], roof: Roof, *, narrow: bool = False) -> str:
    """Draws the operations of layers in a second over those for each byte, as an SVG element.

    Args:
        layers: Those without operations are left out; at least one has some.
        roof: What the IPU can do at most.
        narrow: Whether it is for a telephone.
    """
    drawn = [one for one in layers if one.flops and one.num_bytes and one.total_cycles]
    per_byte = np.array([one.flops_per_byte for one in drawn])
    reached = np.array([one.flops_per_second for one in drawn]) / 1e12
    ridge = roof.flops / roof.bytes_per_second
    ends = np.array([min(per_byte.min(), ridge) / 2, ridge, max(per_byte.max(), ridge) * 2])
    with matplotlib.rc_context({**_STYLE}):
        figure, axes = _empty_picture(narrow)
        axes.loglog(ends, [roof.at(x) / 1e12 for x in ends], color=_LIMIT, label="roof")
        most = max(one.total_cycles for one in drawn)
        sizes = [20 + 120 * one.total_cycles / most for one in drawn]
        # Squares take a tenth of the file that circles would.
        points = axes.scatter(
            per_byte, reached, sizes, _ALWAYS_LIVE, marker="s", alpha=0.6, label="layer"
        )
        points.set_gid(_POINTS)
        axes.set_xlabel("operations for each byte read or written")
        axes.set_ylabel("TFLOP/s")
        return _titled(_svg(figure, "roofline", narrow), [one.name for one in drawn])


def _titled(svg: str, names: Sequence[str]) -> str:
    """Has each point of a picture say its name when it is pointed at."""
    start = svg.index(f'-{_POINTS}">')
    # matplotlib draws the points of a collection in their order, each as a path.
    parts = svg[start:].split("<path ", len(names))
    titled = "".join(
        f"<path {part.replace('/>', f'><title>{escape(name)}</title></path>', 1)}"
        for name, part in zip(names, parts[1:], strict=True)
    )
    return svg[:start] + parts[0] + titled


def liveness_picture(
    rows: Sequence[Row],
    memory: MemoryPlan,
    host_cycles: int,
    clock_hz: float,
    *,
    narrow: bool = False,
) -> str:
    """Draws the bytes in use over all tiles while the step runs, as an SVG element.

    Args:
        rows: Rows in the order of execution, at least one.
        host_cycles: Tile cycles of the copies between host and IPU, before the first row.
        clock_hz: Tile cycles per second.
        narrow: Whether it is for a telephone.
    """
    starts = np.array([*accumulate((row.cycles for row in rows), initial=host_cycles)])
    edges = starts * 1e6 / clock_hz
    always = memory.always_live_by_tile.sum()
    live = memory.live_by_position[: len(rows)] + always
    live, drawn_edges = thinned(live, edges, _points(narrow))
    with matplotlib.rc_context({**_STYLE}):
        figure, axes = _empty_picture(narrow)
        _stairs(axes, live / 2**20, drawn_edges, _LIVE, "in use")
        # From the copies on, with which the timeline of the page begins as well.
        _stairs(axes, [always / 2**20], [0, edges[-1]], _ALWAYS_LIVE, "always live")
        capacity = memory.tile_bytes * len(memory.peak_by_tile)
        axes.axhline(capacity / 2**20, color=_LIMIT, label="what all tiles have")
        fullest = edges[memory.peak_position]
        axes.axvline(fullest, color=_TEXT, linestyle=":", label="worst tile is fullest")
        axes.set_xlabel("time in a step, µs")
        axes.set_ylabel("MiB, all tiles")
        return _svg(figure, "liveness", narrow)


def compared_memory(before: MemoryCurves, after: MemoryCurves, *, narrow: bool = False) -> str:
    """Draws each tile of two programs when it is fullest, as an SVG element."""
    with matplotlib.rc_context({**_STYLE}):
        figure, axes = _empty_picture(narrow)
        for one, draw, label in ((before, _shade, "before"), (after, _line, "after")):
            sizes = np.array(one.peak_by_tile)
            draw(axes, *thinned(sizes / 1024, np.arange(len(sizes) + 1), _points(narrow)), label)
        limits = sorted({before.tile_bytes, after.tile_bytes})
        for limit in limits:
            axes.axhline(limit / 1024, color=_LIMIT, label="what a tile has")
        num_ipus = max(before.num_ipus, after.num_ipus)
        axes.set_xlabel("tile" if num_ipus == 1 else "tile of each IPU")
        widest = max(before, after, key=lambda one: len(one.peak_by_tile))
        if num_ipus > 1:
            _draw_borders(
                axes, widest.num_ipus, len(widest.peak_by_tile) // widest.num_ipus, narrow
            )
        axes.set_ylabel("KiB")
        return _svg(figure, "memory", narrow)


def compared_liveness(before: MemoryCurves, after: MemoryCurves, *, narrow: bool = False) -> str:
    """Draws the bytes in use over all tiles while the steps of two programs run, as an SVG element.

    Both programs must have at least one compute set.
    """
    with matplotlib.rc_context({**_STYLE}):
        figure, axes = _empty_picture(narrow)
        for one, draw, label in ((before, _shade, "before"), (after, _line, "after")):
            live = np.array(one.live) / 2**20
            draw(axes, *thinned(live, np.array(one.edges), _points(narrow)), label)
        axes.set_xlim(0, max(before.edges[-1], after.edges[-1]))
        axes.set_xlabel("time in a step, µs")
        axes.set_ylabel("MiB, all tiles")
        return _svg(figure, "liveness", narrow)


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


def _draw_borders(axes: Axes, num_ipus: int, num_tiles: int, narrow: bool) -> None:
    """Draws lines between the tiles of two IPUs, tiles by IPU below and IPUs above."""
    most_labels = _MOST_LABELS // 3 if narrow else _MOST_LABELS
    shown = range(0, num_ipus, math.ceil(num_ipus / most_labels))
    for ipu in range(1, num_ipus):
        axes.axvline(ipu * num_tiles, color=_TEXT, linewidth=0.8, linestyle="--")
    middles = [(ipu + 0.5) * num_tiles for ipu in shown]
    above = axes.secondary_xaxis("top")
    above.set_xticks(middles, [f"IPU {ipu}" for ipu in shown])
    above.tick_params(length=0)
    above.spines["top"].set_visible(False)
    # The first tile of each IPU, and the one in the middle if there is room.
    parts = 2 if num_ipus <= most_labels / 2 else 1
    ticks = [(ipu, part * num_tiles // parts) for ipu in shown for part in range(parts)]
    axes.set_xticks([ipu * num_tiles + tile for ipu, tile in ticks], [f"{t}" for _, t in ticks])


def _fullest_of_neighbours(sizes: np.ndarray, max_points: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions of the largest values of neighbours, and the edges of these."""
    step = math.ceil(len(sizes) / max_points)
    firsts = np.arange(0, len(sizes), step)
    chosen = [first + int(sizes[first : first + step].argmax()) for first in firsts]
    return np.array(chosen), np.append(firsts, len(sizes))


def _joined(values: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Joins neighbours that are equal."""
    firsts = np.flatnonzero(np.diff(values, prepend=values[0] - 1))
    return values[firsts], np.append(edges[firsts], edges[-1])


def _points(narrow: bool) -> int:
    return MAX_POINTS // 5 if narrow else MAX_POINTS


def _empty_picture(narrow: bool) -> tuple[Figure, Axes]:
    # In inches of 72 units, of which letters have 9: on a telephone they are read as well.
    figure = Figure(figsize=(4, 3.6) if narrow else (9, 3.2), layout="constrained")
    axes = figure.add_subplot()
    axes.margins(x=0)
    return figure, axes


def _stairs(axes: Axes, values: ArrayLike, edges: ArrayLike, colour: str, label: str) -> None:
    axes.stairs(values, edges, fill=True, color=colour, label=label)


def _shade(axes: Axes, values: ArrayLike, edges: ArrayLike, label: str) -> None:
    _stairs(axes, values, edges, _ALWAYS_LIVE, label)


def _line(axes: Axes, values: ArrayLike, edges: ArrayLike, label: str) -> None:
    axes.stairs(values, edges, color=_LIVE, linewidth=1.5, label=label)


def _svg(figure: Figure, name: str, narrow: bool) -> str:
    figure.legend(loc="outside upper left", ncols=1 if narrow else 4)
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata=_NO_METADATA)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].replace(_TEXT, "currentColor")
    # A thousandth of a unit is far less than a pixel, and the other digits half of the file.
    svg = re.sub(r"(\.\d{3})\d+", r"\1", svg)
    svg = svg.replace("<svg", f'<svg class="{"narrow" if narrow else "broad"}"', 1)
    # Several pictures share a page, in which a name may stand once only: one of each kind in a
    # report, and in a notebook many.
    prefix = f"{name}-picture-{zlib.crc32(svg.encode()):08x}-"
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}", svg)
