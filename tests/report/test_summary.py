"""What reports of programs that are built by hand say."""

import json
from dataclasses import replace

import pytest
from hlo_graphs import argument, graph, op
from report_rows import cells
from small_reports import GC200, report

from ipu_keras.advice.changes import Fix
from ipu_keras.cost.passes import model_graph
from ipu_keras.program.compilation_history import Recompilation
from ipu_keras.report.report import Report
from ipu_keras.report.summary import fixes_table
from ipu_keras.report.text import rendered

FIXES = (
    Fix(changes={"dtype": "float16"}, max_tile_bytes=600_000, fits=True, seconds_per_sample=1e-3),
    Fix(changes={"num_ipus": 2}, max_tile_bytes=700_000, fits=False, seconds_per_sample=5e-7),
)


def test_fixes():
    assert cells(rendered(fixes_table(FIXES))) == [
        ["float16", "600,000", "yes", "1.00 ms"],
        ["the layers on 2 IPUs", "700,000", "no", "500 ns"],
    ]


def test_reports_have_those_there_are():
    table = rendered(fixes_table(FIXES))
    assert table not in str(report())
    found = replace(report(), fixes=FIXES)
    assert table in str(found)
    assert [fix["changes"] for fix in found.to_dict()["fixes"]] == [one.changes for one in FIXES]


def test_the_text_of_the_ipu_stays_on_one_line():
    """Whoever looks for it finds it, though it is longer than other lines."""
    large = graph(argument("x", 1_472_000, 64), op("y", "tanh", (1_472_000, 64), "x"))
    found = Report.of(model_graph("step", large, GC200.with_numbers(tile_bytes=200_000)))
    needed = found.model.memory.max_tile_bytes
    assert needed > 200_000
    line = (
        f"Memory allocation error : Out of memory on tile {found.model.memory.worst_tile}: "
        f"{needed} bytes used but tiles only have 200000 bytes of memory"
    )
    assert len(line) > 110
    assert line in str(found).splitlines()


def test_regions_of_the_fullest_tile():
    found = report()
    regions = found.to_dict()["memory"]["worst_tile_by_region"]
    assert sum(regions.values()) == found.model.memory.max_tile_bytes
    assert regions["overflowed"] == 0
    line = f"Regions of that tile: non-interleaved {regions['non_interleaved']:,}, interleaved"
    assert line in str(found)


def test_recompilations():
    again = Recompilation("step", ("x has the shape (2,) instead of (3,)", "y is given"))
    once = replace(report(), recompilations=(again,))
    twice = replace(once, recompilations=(again, again))
    assert json.loads(report().to_json())["recompilations"] == []
    assert json.loads(twice.to_json())["recompilations"] == [list(again.reasons)] * 2
    assert "Compiled again" not in str(report())
    line = "Compiled again once, last because x has the shape (2,) instead of (3,); y is given"
    assert line in " ".join(str(once).split())
    assert "Compiled again 2 times, last" in str(twice)


def test_text():
    text = str(report())
    assert "step on gc200" in text
    for part in ("second", "elementwise", "variables", "bound by the host"):
        assert part in text
    assert "An execution" not in text
    found = report(steps_per_execution=8)
    assert f"8 steps takes {8 * found.cycles_per_step:,} cycles" in str(found)


@pytest.mark.parametrize("name", ["[red]hi[/red] run :fire:", "[/x]", "\\[b]"])
def test_names_are_plain_text(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    step = graph(argument("x", 8), op("y", "sort", (8,), "x", layer=name, dimensions=(0,)))
    text = str(Report.of(model_graph(name, step, GC200)))
    assert text.startswith(f"{name} on gc200: ")
    assert f"│ {name} │" in text


def test_text_of_memory():
    memory = report().model.memory
    _, _, table = str(report()).partition("Memory of all tiles")
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines()]
    lines = {name: sizes for name, *sizes in filter(None, cells)}
    assert lines["variables"] == ["376,832", ""]
    assert lines["activations"] == ["", f"{memory.bytes_by_category['activations']:,}"]
    always, others = (int(size.replace(",", "")) for size in lines["all"])
    assert always == report().always_live_bytes
    assert always + others == memory.total_bytes
