"""The benchmark of short scripts: what one process measures, and the table of several."""

import json
import subprocess

import pytest
import short_runs


@pytest.mark.parametrize("side", [short_runs.STOCK, short_runs.HERE])
def test_a_process_measures_its_script(side):
    command = short_runs.command("session", side, 2)
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert 0 < found["tracing"] <= found["processor"] or side == short_runs.STOCK
    assert found["compilation"] == found["programs"] == 0
    assert found["memory"] > 100


def test_the_table_compares_medians_with_stock():
    def runs(*seconds):
        rest = {"wall": 2.0, "tracing": 0.5, "compilation": 0.0, "memory": 600.0}
        return [{"processor": each, **rest} for each in seconds]

    results = {
        "mlp": {short_runs.STOCK: runs(2.0, 4.0, 9.0), short_runs.HERE: runs(1.0, 3.0, 3.0)},
        "session": {short_runs.STOCK: runs(1.0), short_runs.HERE: runs(2.0)},
    }
    table = short_runs.table_of(results, 48)
    assert [list(column.cells) for column in table.columns[:4]] == [
        ["mlp", "session"],
        ["4.00", "1.00"],
        ["3.00", "2.00"],
        ["0.75 ✓ ≤ 1.0", "2.00 ✗ ≤ 1.1"],
    ]
