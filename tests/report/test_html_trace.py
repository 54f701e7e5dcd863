"""Bars of the timeline in the HTML report."""

from itertools import pairwise

import numpy as np
import pytest
from report_rows import row

from ipu_keras.cost.tile.cost import Cost
from ipu_keras.report.html_trace import LANES, TIMELINE_WIDTH, FamilyColours, spans, units_of

ROWS = [
    row(name, compute=cycles, family="sort")
    for name, cycles in {"a": 10, "b": 1, "c": 1, "d": 2, "e": 9, "f": 1}.items()
]
COSTS = [Cost(tiles=tiles) for tiles in (4, 1, 8, 2, 3, 5)]


@pytest.mark.parametrize("total", [7, 2**24 + 1, 10**12])
def test_units_are_few_and_fine_enough(total):
    """Browsers keep them as float32: neighbours of which a screen shows both stay two."""
    units = units_of(total)
    assert (units(0), units(total)) == (0, TIMELINE_WIDTH)
    assert units(total // 2) == pytest.approx(TIMELINE_WIDTH * (total // 2) / total, abs=5e-5)
    pixel = TIMELINE_WIDTH / 2000 / 1000  # of a wide screen that shows a thousandth of all
    assert np.float32(TIMELINE_WIDTH - pixel) < np.float32(TIMELINE_WIDTH)


def test_each_row_is_a_span():
    found = spans(ROWS, COSTS)
    assert [span.row for span in found] == ROWS
    assert [span.start for span in found] == [0, 10, 11, 12, 14, 23]
    assert [span.num_tiles for span in found] == [4, 1, 8, 2, 3, 5]


def test_short_rows_are_drawn_with_their_neighbours():
    """24 cycles by four: spans end where they have 6 cycles or more, or no row follows."""
    found = spans(ROWS, COSTS, max_spans=4)
    assert [span.row.name for span in found] == ["a", "b to e", "f"]
    assert [span.num_compute_sets for span in found] == [1, 4, 1]
    assert [span.start for span in found] == [0, 10, 23]
    assert [span.num_tiles for span in found] == [4, 8, 5]
    assert found[1].row.cycles == 13


def test_no_rows():
    assert spans([], []) == ()


def test_lanes_do_not_overlap():
    lanes = list(LANES.values())
    for above, below in pairwise(lanes):
        assert above.top + above.height < below.top
    assert lanes[-1].top + lanes[-1].height == 100


def test_colours():
    colours = FamilyColours(tuple(f"family {number}" for number in range(12)))
    assert colours.of("family 0") == "family-0"
    assert colours.of("family 9") == "family-9"
    assert colours.of("family 10") == colours.of("mixed") == "other"
