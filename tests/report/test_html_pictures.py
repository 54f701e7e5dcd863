"""Pictures of memory: what is drawn has the proportions of the numbers."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from report_rows import row

from ipu_keras.cost.flat.memory import MemoryPlan
from ipu_keras.ir import TensorSpec
from ipu_keras.report.html_pictures import (
    broad_and_narrow,
    liveness_picture,
    memory_picture,
    roofline_picture,
    thinned,
)
from ipu_keras.report.roofline import LayerWork, Roof
from ipu_keras.report.tile_categories import PROGRAM, SOMETIMES

KIB = 1024
MEMORY = MemoryPlan(
    always_live_by_tile=np.array([20, 40]) * KIB,
    peak_by_tile=np.array([100, 50]) * KIB,
    peak_position=1,
    live_by_ipu=np.array([[10, 90, 30]]) * KIB,
    tile_bytes=200 * KIB,
)
CATEGORIES = {
    PROGRAM: np.array([10, 10]) * KIB,
    "variables": np.array([10, 30]) * KIB,
    SOMETIMES: np.array([80, 10]) * KIB,
}


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
    """Each category is on those below it."""
    picture = memory_picture(MEMORY, CATEGORIES)
    assert {"tile", "KiB", *CATEGORIES, "what a tile has", "fullest tile"} <= set(texts(picture))
    bottom = points_of(picture, "#ee9944")[:, 1].max()
    (limit,) = heights(picture, "#cc3344", bottom)
    for colour, sizes in (("#ee9944", [50, 100]), ("#4477aa", [20, 40]), ("#8a8f98", [10])):
        expected = [limit * size / 200 for size in sizes]
        assert heights(picture, colour, bottom) == pytest.approx(expected, rel=1e-3)


def test_of_many_tiles_the_fullest_of_neighbours_are_drawn():
    sizes = np.array([1, 2, 3, 100, 5, 6]) * KIB
    memory = replace(MEMORY, always_live_by_tile=0 * sizes, peak_by_tile=sizes)
    picture = memory_picture(memory, {SOMETIMES: sizes}, max_tiles=2)
    bottom = points_of(picture, "#ee9944")[:, 1].max()
    (limit,) = heights(picture, "#cc3344", bottom)
    expected = [limit * size / 200 for size in (3, 100)]
    assert heights(picture, "#ee9944", bottom) == pytest.approx(expected, rel=1e-3)


def test_a_picture_for_a_telephone_is_narrower():
    both = broad_and_narrow(memory_picture, MEMORY, CATEGORIES)
    broad, narrow = (f"<svg{one}" for one in both.split("<svg")[1:])
    found = [ElementTree.fromstring(one) for one in (broad, narrow)]
    assert [one.attrib["class"] for one in found] == ["broad", "narrow"]
    assert [one.attrib["width"] for one in found] == ["648pt", "288pt"]
    assert not {*re.findall(r'\bid="[^"]*"', broad)} & {*re.findall(r'\bid="[^"]*"', narrow)}


def test_layers_below_their_roof():
    """A point for each layer that computes, and a roof that bends at 10 operations for a byte."""
    roof = Roof(flops=1e12, bytes_per_second=1e11)

    def layer(name, flops, num_bytes, flops_per_second):
        return LayerWork(
            name=name,
            output=TensorSpec((1,), "float32"),
            cycles={"forward": 10},
            flops=flops,
            num_bytes=num_bytes,
            flops_per_second=flops_per_second,
            share_of_roof=0.5,
        )

    layers = [layer("a<b", 100, 100, 5e10), layer("c", 10_000, 100, 5e11), layer("d", 0, 9, 0.0)]
    picture = roofline_picture(layers, roof)
    titles = ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}title")
    assert [one.text for one in titles] == ["a<b", "c"]
    left, bend, right = points_of(picture, "#cc3344")
    assert bend[1] == right[1] < left[1]
    # The first is at 1 operation for a byte, the roof bends at 10, the second is at 100.
    paths = re.findall(r'<path d="([^"]*)"[^>]*><title>', picture)
    places = [np.array(re.findall(r"[\d.]+", one), float).reshape(-1, 2) for one in paths]
    first, second = (one[:4].mean(axis=0) for one in places)
    assert second[0] - bend[0] == pytest.approx(bend[0] - first[0], abs=0.01)
    # Both are half as high as the roof, which is ten times higher above the second.
    decade = (left[1] - bend[1]) / np.log10(20)
    assert first[1] - second[1] == pytest.approx(decade, abs=0.01)


@pytest.mark.parametrize("num_ipus", [2, 4, 16, 64])
def test_tiles_of_several_ipus_have_borders(num_ipus):
    tiles = 10 * num_ipus
    memory = replace(
        MEMORY,
        always_live_by_tile=np.full(tiles, 20 * KIB),
        peak_by_tile=np.full(tiles, 100 * KIB),
        num_ipus=num_ipus,
    )
    sizes = {"variables": np.full(tiles, 20 * KIB), SOMETIMES: np.full(tiles, 80 * KIB)}
    picture = memory_picture(memory, sizes)
    left, right = (edge(points_of(picture, "#ee9944")[:, 0]) for edge in (np.min, np.max))
    lines = re.findall(
        r'<path d="M ([\d.]+) [\d.]+ \nL ([\d.]+) [\d.]+ ?\n?"[^>]*dasharray', picture
    )
    assert len(lines) == num_ipus - 1
    width = (right - left) / num_ipus
    expected = [left + width * ipu for ipu in range(1, num_ipus)]
    assert [float(x) for x, _ in lines] == pytest.approx(expected, rel=1e-3)
    found = texts(picture)
    named = [text for text in found if text.startswith("IPU ")]
    step = max(1, num_ipus // 16)
    assert named == [f"IPU {ipu}" for ipu in range(0, num_ipus, step)]
    assert "tile of each IPU" in found
    # Tiles are counted anew on each.
    assert set(found) & {"0", "5", "10", "20"} == ({"0", "5"} if num_ipus <= 8 else {"0"})
    assert "IPU 0" not in texts(memory_picture(MEMORY, CATEGORIES))


def test_bytes_in_use_over_time():
    rows = [row(name, compute=cycles) for name, cycles in (("a", 100), ("b", 300), ("c", 500))]
    picture = liveness_picture(rows, MEMORY, 100, clock_hz=1e6)
    assert {"time in a step, µs", "in use", "worst tile is fullest"} <= set(texts(picture))
    bottom = points_of(picture, "#ee9944")[:, 1].max()
    (limit,) = heights(picture, "#cc3344", bottom)
    # 60 KiB are always live; two tiles have 400 KiB.
    unit = limit / 400
    assert heights(picture, "#4477aa", bottom) == pytest.approx([60 * unit], rel=1e-3)
    expected = [70 * unit, 90 * unit, 150 * unit]
    assert heights(picture, "#ee9944", bottom) == pytest.approx(expected, rel=1e-3)
    # Copies take 100 of 1,000 cycles, and the rows what they take.
    left = points_of(picture, "#4477aa")[:, 0].min()
    right = points_of(picture, "#4477aa")[:, 0].max()
    edges = sorted(set(points_of(picture, "#ee9944")[:, 0].tolist()))
    shares = [(edge - left) / (right - left) for edge in edges]
    assert shares == pytest.approx([0.1, 0.2, 0.5, 1.0], abs=1e-3)


def test_pictures_are_deterministic_and_bear_no_date():
    picture = memory_picture(MEMORY, CATEGORIES)
    assert picture == memory_picture(MEMORY, CATEGORIES)
    assert "metadata" not in picture


def test_thinned_values_keep_their_peaks():
    values, edges = thinned(np.array([1, 9, 2, 3, 8]), np.array([0, 1, 2, 4, 5, 7]), max_points=3)
    assert values.tolist() == [9, 3, 8]
    assert edges.tolist() == [0, 2, 5, 7]


def test_few_values_are_kept():
    values, edges = thinned(np.array([4, 5]), np.array([0, 1, 2]))
    assert (values.tolist(), edges.tolist()) == ([4, 5], [0, 1, 2])
