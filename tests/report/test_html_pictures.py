"""Pictures of memory: what is drawn has the proportions of the numbers."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from report_rows import row

from ipu_keras.cost.flat.memory import MemoryPlan
from ipu_keras.report.html_pictures import liveness_picture, memory_picture, thinned

KIB = 1024
MEMORY = MemoryPlan(
    always_live_by_tile=np.array([20, 40]) * KIB,
    peak_by_tile=np.array([100, 50]) * KIB,
    peak_position=1,
    live_by_ipu=np.array([[10, 90, 30]]) * KIB,
    tile_bytes=200 * KIB,
)


def texts(picture):
    found = ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    return [element.text for element in found]


def points_of(picture, colour):
    """Corners of the first shape of a colour in the axes, from left to right."""
    (path, *_) = re.findall(rf'<path d="([^"]*)"[^>]*(?:fill|stroke): {colour}', picture)
    numbers = np.array([float(number) for number in re.findall(r"[\d.]+", path)])
    return numbers.reshape(-1, 2)


def heights(picture, colour, bottom):
    return sorted({round(bottom - y, 3) for _, y in points_of(picture, colour)} - {0})


def test_memory_of_each_tile():
    picture = memory_picture(MEMORY)
    assert {"tile", "KiB", "when fullest", "always live", "what a tile has"} <= set(texts(picture))
    bottom = points_of(picture, "#ee9944")[:, 1].max()
    (limit,) = heights(picture, "#cc3344", bottom)
    assert heights(picture, "#ee9944", bottom) == pytest.approx([limit / 4, limit / 2], rel=1e-4)
    assert heights(picture, "#4477aa", bottom) == pytest.approx([limit / 10, limit / 5], rel=1e-4)


@pytest.mark.parametrize("num_ipus", [2, 4, 16, 64])
def test_tiles_of_several_ipus_have_borders(num_ipus):
    tiles = 10 * num_ipus
    memory = replace(
        MEMORY,
        always_live_by_tile=np.full(tiles, 20 * KIB),
        peak_by_tile=np.full(tiles, 100 * KIB),
        num_ipus=num_ipus,
    )
    picture = memory_picture(memory)
    left, right = (edge(points_of(picture, "#ee9944")[:, 0]) for edge in (np.min, np.max))
    lines = re.findall(
        r'<path d="M ([\d.]+) [\d.]+ \nL ([\d.]+) [\d.]+ ?\n?"[^>]*dasharray', picture
    )
    assert len(lines) == num_ipus - 1
    width = (right - left) / num_ipus
    expected = [left + width * ipu for ipu in range(1, num_ipus)]
    assert [float(x) for x, _ in lines] == pytest.approx(expected, rel=1e-4)
    found = texts(picture)
    named = [text for text in found if text.startswith("IPU ")]
    step = max(1, num_ipus // 16)
    assert named == [f"IPU {ipu}" for ipu in range(0, num_ipus, step)]
    assert "tile of each IPU" in found
    # Tiles are counted anew on each.
    assert set(found) & {"0", "5", "10", "20"} == ({"0", "5"} if num_ipus <= 8 else {"0"})
    assert "IPU 0" not in texts(memory_picture(MEMORY))


def test_bytes_in_use_over_time():
    rows = [row(name, compute=cycles) for name, cycles in (("a", 100), ("b", 300), ("c", 500))]
    picture = liveness_picture(rows, MEMORY, 100, clock_hz=1e6)
    assert {"time in a step, µs", "in use", "worst tile is fullest"} <= set(texts(picture))
    bottom = points_of(picture, "#ee9944")[:, 1].max()
    (limit,) = heights(picture, "#cc3344", bottom)
    # 60 KiB are always live; two tiles have 400 KiB.
    unit = limit / 400
    assert heights(picture, "#4477aa", bottom) == pytest.approx([60 * unit], rel=1e-4)
    expected = [70 * unit, 90 * unit, 150 * unit]
    assert heights(picture, "#ee9944", bottom) == pytest.approx(expected, rel=1e-4)
    # Copies take 100 of 1,000 cycles, and the rows what they take.
    left = points_of(picture, "#4477aa")[:, 0].min()
    right = points_of(picture, "#4477aa")[:, 0].max()
    edges = sorted(set(points_of(picture, "#ee9944")[:, 0].tolist()))
    shares = [(edge - left) / (right - left) for edge in edges]
    assert shares == pytest.approx([0.1, 0.2, 0.5, 1.0], abs=1e-4)


def test_pictures_are_deterministic_and_bear_no_date():
    assert memory_picture(MEMORY) == memory_picture(MEMORY)
    assert "metadata" not in memory_picture(MEMORY)


def test_thinned_values_keep_their_peaks():
    values, edges = thinned(np.array([1, 9, 2, 3, 8]), np.array([0, 1, 2, 4, 5, 7]), max_points=3)
    assert values.tolist() == [9, 3, 8]
    assert edges.tolist() == [0, 2, 5, 7]


def test_few_values_are_kept():
    values, edges = thinned(np.array([4, 5]), np.array([0, 1, 2]))
    assert (values.tolist(), edges.tolist()) == ([4, 5], [0, 1, 2])
