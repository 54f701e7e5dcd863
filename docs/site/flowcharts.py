"""Flowcharts in Mermaid's words as pictures, for pages that load no program to draw them.

A forge draws them by itself. Here they are drawn while the site is built: each node stands a floor
above the highest one that it leads to, ordered so that few lines cross.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from html import escape
from itertools import accumulate, combinations, pairwise
from statistics import mean
from textwrap import wrap

_NODE = r'(\w+)(?:\["(.+?)"\]|\(\["(.+?)"\]\))?'
_LINE = re.compile(rf"{_NODE}(?: (-->|-\.->) {_NODE})?")

# In pixels.
_LETTER, _ROW, _PADDING, _GAP, _BETWEEN_FLOORS = 7.0, 15, 8, 14, 32
_LETTERS_OF_A_ROW = 18
_SWEEPS = 24


@dataclass(frozen=True)
class Chart:
    """Nodes, and lines between them.

    Args:
        texts: By name of the node.
        round: Names of those with round ends.
        lines: Whether each is dotted, by where it begins and ends.
    """

    texts: dict[str, str]
    round: set[str]
    lines: dict[tuple[str, str], bool]


def parsed(text: str) -> Chart:
    """Reads a flowchart.

    Raises:
        ValueError: It has words that are not understood here.
    """
    chart = Chart({}, set(), {})
    first, *lines = text.strip().splitlines()
    if first != "flowchart TD":
        raise ValueError(f'A chart must begin with "flowchart TD". Received: {first!r}')
    for line in lines:
        found = _LINE.fullmatch(line.strip())
        if found is None:
            raise ValueError(f"Expected a node, or a line between two. Received: {line!r}")
        start, square, rounded, arrow, end, *of_end = found.groups()
        _add_node(chart, start, square, rounded)
        if end is not None:
            _add_node(chart, end, *of_end)
            chart.lines[start, end] = arrow == "-.->"
    return chart


def _add_node(chart: Chart, name: str, square: str | None, rounded: str | None) -> None:
    chart.texts[name] = square or rounded or chart.texts.get(name, name)
    if rounded:
        chart.round.add(name)


def floors(chart: Chart) -> list[list[str]]:
    """The nodes of each floor, from the highest.

    Raises:
        graphlib.CycleError: Lines lead in a circle.
    """
    below: dict[str, list[str]] = {name: [] for name in chart.texts}
    for start, end in chart.lines:
        below[start].append(end)
    heights: dict[str, int] = {}
    for name in TopologicalSorter(below).static_order():
        heights[name] = 1 + max((heights[other] for other in below[name]), default=-1)
    rows: list[list[str]] = [[] for _ in range(max(heights.values()) + 1)]
    for name in chart.texts:
        rows[-1 - heights[name]].append(name)
    return rows


def _ways(chart: Chart, rows: Sequence[list[str]]) -> dict[tuple[str, str], list[str]]:
    """The places that each line passes, with one of its own on each floor between, put there."""
    floor = {name: number for number, row in enumerate(rows) for name in row}
    ways = {}
    for start, end in chart.lines:
        between = range(floor[start] + 1, floor[end])
        passed = {number: f"{start} {end} {number}" for number in between}
        for number, name in passed.items():
            rows[number].append(name)
        ways[start, end] = [start, *passed.values(), end]
    return ways


def crossings(rows: Sequence[Sequence[str]], steps: Sequence[tuple[str, str]]) -> int:
    """How many lines cross, of those that lead from one floor to the next."""
    place = {name: (floor, k) for floor, row in enumerate(rows) for k, name in enumerate(row)}
    ends = [(*place[start], place[end][1]) for start, end in steps]
    return sum(
        one[0] == other[0] and (one[1] - other[1]) * (one[2] - other[2]) < 0
        for one, other in combinations(ends, 2)
    )


def ordered(rows: list[list[str]], steps: Sequence[tuple[str, str]]) -> list[list[str]]:
    """The floors, each ordered by the middle of what is joined to it above or, in turns, below."""
    best = rows
    for sweep in range(_SWEEPS):
        joined: dict[str, list[str]] = {}
        for step in steps:
            one, other = reversed(step) if sweep % 2 else step
            joined.setdefault(other, []).append(one)
        rows = [list(row) for row in rows]
        for row in reversed(rows) if sweep % 2 else rows:
            place = {name: k / len(row) for row in rows for k, name in enumerate(row)}
            middle = {name: mean(place[one] for one in joined.get(name, [name])) for name in row}
            row.sort(key=middle.__getitem__)
        best = min(best, rows, key=lambda found: crossings(found, steps))
    return best


def centres(
    rows: Sequence[Sequence[str]], steps: Sequence[tuple[str, str]], widths: Mapping[str, float]
) -> dict[str, float]:
    """Where each place is from left to right: near what it is joined to, and apart from others."""
    joined: dict[str, list[str]] = {}
    for one, other in steps:
        joined.setdefault(one, []).append(other)
        joined.setdefault(other, []).append(one)
    found = {name: 0.0 for row in rows for name in row}
    for _ in range(_SWEEPS):
        for row in rows:
            gaps = [(widths[one] + widths[other]) / 2 + _GAP for one, other in pairwise(row)]
            # As if all stood side by side with no gap, those that are pushed apart share the way.
            offsets = [0.0, *accumulate(gaps)]
            wanted = [
                mean(found[other] for other in joined.get(name, [name])) - offset
                for name, offset in zip(row, offsets, strict=True)
            ]
            lefts = list(accumulate(wanted, max))
            rights = list(accumulate(reversed(wanted), min))[::-1]
            for name, left, right, offset in zip(row, lefts, rights, offsets, strict=True):
                found[name] = (left + right) / 2 + offset
    first = min(found[name] - widths[name] / 2 for name in found)
    return {name: centre - first + 1 for name, centre in found.items()}


def picture(text: str) -> str:
    """A flowchart as SVG, in the colours of the page.

    Args:
        text: As `parsed` takes it.

    Raises:
        ValueError: It has words that are not understood here, or its lines lead in a circle.
    """
    chart = parsed(text)
    rows = floors(chart)
    ways = _ways(chart, rows)
    steps = [step for way in ways.values() for step in pairwise(way)]
    rows = ordered(rows, steps)
    texts = {name: _wrapped(chart.texts.get(name, "")) for row in rows for name in row}
    widths = {name: _width(text) for name, text in texts.items()}
    x = centres(rows, steps, widths)
    heights = [max(len(texts[name]) for name in row) * _ROW + _PADDING for row in rows]
    tops = list(accumulate(heights, lambda top, height: top + height + _BETWEEN_FLOORS, initial=1))
    spans = {
        name: (top, top + height)
        for row, top, height in zip(rows, tops, heights, strict=False)
        for name in row
    }
    width = max(x[name] + widths[name] / 2 for name in x) + 1
    height = tops[-1] - _BETWEEN_FLOORS + 1
    drawn = [
        *(_line(way, x, spans, dotted=chart.lines[ends]) for ends, way in ways.items()),
        *(
            _box(x[name], spans[name], widths[name], texts[name], name in chart.round)
            for name in chart.texts
        ),
    ]
    return "\n".join(
        [
            f'<svg class="flowchart" role="img" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'style="width: {width:.0f}px" xmlns="http://www.w3.org/2000/svg">',
            f"<title>{escape(in_words(chart))}</title>",
            '<marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
            'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z"/></marker>',
            *drawn,
            "</svg>",
        ]
    )


def in_words(chart: Chart) -> str:
    """The lines as sentences, for readers who do not see them."""
    sentences = []
    for name, text in chart.texts.items():
        ends = [chart.texts[end] for start, end in chart.lines if start == name]
        if ends:
            sentences.append(f"{text} leads to {'; '.join(ends)}.")
    return " ".join(sentences)


def _wrapped(text: str) -> list[str]:
    """Rows of a text; names of files are divided behind a stroke."""
    rows = wrap(text.replace("/", "/ "), _LETTERS_OF_A_ROW, break_long_words=False)
    return [row.replace("/ ", "/") for row in rows]


def _width(text: Sequence[str]) -> float:
    return max(map(len, text)) * _LETTER + 2 * _PADDING if text else 0.0


def _line(
    way: Sequence[str],
    x: Mapping[str, float],
    spans: Mapping[str, tuple[float, float]],
    *,
    dotted: bool,
) -> str:
    """A line along its places, straight past floors and curved between."""
    path = [f"M{x[way[0]]:.1f} {spans[way[0]][1]:.1f}"]
    for before, after in pairwise(way):
        start, end = spans[before][1], spans[after][0]
        middle = (start + end) / 2
        path.append(
            f"C{x[before]:.1f} {middle:.1f} {x[after]:.1f} {middle:.1f} {x[after]:.1f} {end:.1f}"
        )
        if after != way[-1]:
            path.append(f"V{spans[after][1]:.1f}")
    style = ' class="dotted"' if dotted else ""
    return f'<path{style} d="{" ".join(path)}" marker-end="url(#arrow)"/>'


def _box(
    x: float, span: tuple[float, float], width: float, text: Sequence[str], is_round: bool
) -> str:
    top, height = span[0], span[1] - span[0]
    first = top + height / 2 - _ROW * (len(text) - 1) / 2 + 4
    rows = "".join(
        f'<text x="{x:.1f}" y="{first + number * _ROW:.1f}">{escape(row)}</text>'
        for number, row in enumerate(text)
    )
    radius = height / 2 if is_round else 4
    return (
        f'<rect x="{x - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{radius:.1f}"/>{rows}'
    )
