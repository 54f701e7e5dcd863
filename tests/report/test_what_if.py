"""Tables of choices whose reports are built by hand."""

import sys

import pytest
from hlo_graphs import argument, graph, op, staged_step
from html_tree import read_html

import ipu_keras.report
from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.passes import model_graph
from ipu_keras.machine.target import TARGETS
from ipu_keras.program import Pipeline
from ipu_keras.report.report import Report
from ipu_keras.report.what_if import Choice, WhatIf
from ipu_keras.settings.pipeline_choices import SelectionOrder

HEADINGS = ["cycles per step", "samples/s", "fullest tile", "fits", "bound by"]


def choice(size, target, name="step"):
    step = graph(argument("x", size, 64), op("y", "tanh", (size, 64), "x"))
    report = Report.of(model_graph(name, step, target, CostOptions()), batch_size=size)
    return Choice({"batch_size": size, "target": target}, report)


def table(name="step"):
    """Of three choices the first two fit, and the second is the faster one."""
    tiny = TARGETS["bow"].with_numbers(tile_bytes=1000)
    return WhatIf(
        (
            choice(1472, TARGETS["gc200"], name),
            choice(1472, TARGETS["bow"], name),
            choice(14720, tiny, name),
        )
    )


def test_the_smallest_has_the_fewest_ipus_of_all_replicas_and_stages():
    """Four copies of two stages are faster than one IPU, and eight of them."""
    step = staged_step(2, batch=4096, width=256)

    def row(**options):
        model = model_graph("step", step, TARGETS["gc200"], CostOptions(**options))
        return Choice(options, Report.of(model, batch_size=4096))

    pipeline = Pipeline(device_mapping=(0, 1))
    counts = {"gradient_accumulation_count": 8, "steps_per_execution": 8}
    alone, staged = row(**counts), row(pipeline=pipeline, **counts)
    copies = row(pipeline=pipeline, num_replicas=4, **counts)
    assert [one.num_ipus for one in (alone, staged, copies)] == [1, 2, 8]
    assert copies.samples_per_second > alone.samples_per_second
    assert WhatIf((staged, copies, alone)).best is alone


def test_data_frame():
    found = table()
    frame = found.to_dataframe()
    reports = [row.report for row in found.rows]
    assert list(frame.columns) == [
        "batch_size",
        "target",
        "cycles_per_step",
        "seconds_per_step",
        "samples_per_second",
        "max_tile_bytes",
        "tile_bytes",
        "fits",
        "bound",
        "is_best",
    ]
    assert frame["batch_size"].tolist() == [1472, 1472, 14720]
    assert frame["target"].tolist() == ["gc200", "bow", "bow"]
    for name in ("cycles_per_step", "seconds_per_step", "samples_per_second", "bound"):
        assert frame[name].tolist() == [getattr(report, name) for report in reports]
    assert frame["max_tile_bytes"].tolist() == [r.model.memory.max_tile_bytes for r in reports]
    assert frame["tile_bytes"].tolist() == [638_976, 638_976, 1000]
    assert frame["fits"].tolist() == [True, True, False]
    assert frame["is_best"].tolist() == [row is found.best for row in found.rows]
    assert frame["is_best"].sum() == 1


def test_a_data_frame_without_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    message = (
        r"^A data frame needs pandas, which is not installed\. Install it with "
        r'`pip install "ipu-keras\[report\]"`$'
    )
    for make in (table().to_dataframe, table().rows[0].report.to_dataframe):
        with pytest.raises(ImportError, match=message):
            make()


def test_repr():
    cycles = table().best.report.cycles_per_step
    assert repr(table()) == (
        "<WhatIf of 'step' on gc200, bow: 3 choices, 2 of which fit; best is batch_size=1472, "
        f"target=bow with {cycles:,} cycles per step>"
    )
    none = WhatIf(table().rows[2:])
    assert repr(none) == "<WhatIf of 'step' on bow: 1 choices, 0 of which fit>"


def test_text(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    lines = str(table()).splitlines()
    assert lines[0] == "What if: step"
    headings = [cell.strip() for cell in lines[2].split("┃")[1:-1]]
    assert headings == ["row", "batch size", "target", *HEADINGS]
    assert [line.split("│")[1].strip() for line in lines[4:7]] == ["0", "1 *", "2"]
    assert "What if: [red]x[/red] :fire:\n" in str(table("[red]x[/red] :fire:"))
    assert "What if: [/x]\n" in str(table("[/x]"))


def test_choices_are_in_words():
    """As a page has them, not as Python writes them."""
    given = {
        "batch_size": 14720,
        "dtype": None,
        "recomputation": True,
        "matmul_options": {"partialsType": "half"},
        "selection_order": SelectionOrder.SNAKE,
        "pipeline": Pipeline(device_mapping=(0, 1, 0)),
    }
    found = WhatIf((Choice(given, choice(1472, TARGETS["gc200"], "step").report),))
    cells = [cell.text for cell in read_html(found._repr_html_()).all("tr")[1].walk()]
    words = "14720, as traced, yes, partialsType half, SNAKE, Grouped, stages on IPUs 0, 1, 0"
    assert ", ".join(cells[1:7]) == words
    assert cells[-1] == "host"


def test_the_cell_of_a_notebook():
    cell = read_html(table()._repr_html_())
    assert cell.all("h3")[0].text == "step on gc200, bow"
    assert cell.all("caption")[0].text == "What if: step"
    heading, *rows = cell.table()
    assert heading == ["row", "batch size", "target", *HEADINGS]
    drawn = [line.split("│")[1:-1] for line in str(table()).splitlines() if "│" in line]
    assert rows == [[cell.strip() for cell in line] for line in drawn]
    hostile = "<script>alert(1)</script>"
    other = read_html(table(hostile)._repr_html_())
    assert other.all("script") == []
    assert other.all("h3")[0].text == f"{hostile} on gc200, bow"


def test_a_cell_without_its_libraries(monkeypatch):
    monkeypatch.delattr(ipu_keras.report, "html_templates", raising=False)
    monkeypatch.delitem(sys.modules, "ipu_keras.report.html_templates", raising=False)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert table()._repr_html_() is None
