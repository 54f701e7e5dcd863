"""What lies on tiles, by category."""

import numpy as np
import pytest
from html_reports import pipelined, report

from ipu_keras.report.tile_categories import PROGRAM, SOMETIMES, bytes_by_tile, in_runs


def test_categories_of_a_small_program():
    """A float of `w` for each of 64 rows is on each tile; no constants and no stashes are."""
    found = bytes_by_tile(report().model)
    assert list(found) == [PROGRAM, "variables", SOMETIMES]
    assert found["variables"].tolist() == [256] * 1472


@pytest.mark.parametrize("of", [report, pipelined])
def test_categories_add_up(of):
    memory = of().model.memory
    found = bytes_by_tile(of().model)
    np.testing.assert_array_equal(sum(found.values()), memory.peak_by_tile)
    always = sum(sizes for name, sizes in found.items() if name != SOMETIMES)
    np.testing.assert_array_equal(always, memory.always_live_by_tile)
    for name in ("variables", "constants", "stashes"):
        total = found[name].sum() if name in found else 0
        assert total == memory.bytes_by_category.get(name, 0)


def test_runs():
    assert in_runs(np.array([5, 5, 7, 5])) == [(5, 2), (7, 1), (5, 1)]
    assert in_runs(np.array([0])) == [(0, 1)]
