"""Changes between figures that are made by hand."""

import re
import sys
from dataclasses import replace

from html_tree import read_html

import ipu_keras.report
from ipu_keras.report.compared import Change, Compared
from ipu_keras.report.difference import difference

BEFORE = Compared(
    name="train on gc200",
    settings={"batch_size": 4, "target": "gc200", "steps": 2},
    totals={"cycles_per_step": 1000, "seconds_per_step": 0.5, "flops": 2.5e6, "samples": 8.0},
    layers={"top": 300, "stem": 500, "same": 150, "old": 50},
    families={"dot": 1000},
    memory={"variables": 640, "activations": 0},
)
AFTER = Compared(
    name="train on bow",
    settings={"batch_size": 8, "target": "gc200", "recomputation": True},
    totals={"cycles_per_step": 1200, "seconds_per_step": 0.6, "flops": 5e6},
    layers={"top": 360, "stem": 400, "same": 150, "new": 50},
    families={"dot": 960},
    memory={"variables": 640, "activations": 4096},
)


def lines_of(text):
    """The cells of a table's lines by the first one."""
    cells = [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in text.splitlines()]
    return {name: others for name, *others in filter(None, cells)}


def test_settings_that_differ():
    found = difference(BEFORE, AFTER).settings
    assert found == {"batch_size": (4, 8), "steps": (2, None), "recomputation": (None, True)}


def test_the_largest_change_comes_first():
    layers = difference(BEFORE, AFTER).layers
    assert list(layers.items()) == [
        ("stem", Change(500, 400)),
        ("top", Change(300, 360)),
        ("new", Change(0, 50)),
        ("old", Change(50, 0)),
        ("same", Change(150, 150)),
    ]
    assert [one.change for one in layers.values()] == [-100, 60, 50, -50, 0]
    assert [one.ratio for one in layers.values()] == [-0.2, 0.2, None, -1, 0]


def test_totals_that_both_have():
    totals = difference(BEFORE, AFTER).totals
    assert list(totals) == ["cycles_per_step", "seconds_per_step", "flops"]
    assert totals["cycles_per_step"].change == 200


def test_the_way_back_is_the_opposite():
    there, back = difference(BEFORE, AFTER), difference(AFTER, BEFORE)
    assert {name: one.change for name, one in there.layers.items()} == {
        name: -one.change for name, one in back.layers.items()
    }


def test_text():
    text = str(difference(BEFORE, AFTER))
    lines = lines_of(text)
    assert lines["batch_size"] == ["4", "8"]
    assert lines["cycles_per_step"] == ["1,000", "1,200", "+200", "+20.0%"]
    assert lines["seconds_per_step"] == ["0.5", "0.6", "+0.1", "+20.0%"]
    assert lines["flops"] == ["2,500,000", "5,000,000", "+2,500,000", "+100.0%"]
    assert lines["new"] == ["0", "50", "+50", ""]
    assert lines["activations"] == ["0", "4,096", "+4,096", ""]
    assert text.index("stem") < text.index("top")
    assert "same" not in lines
    assert "Layers, cycles (4 of 5 differ)" in text


def test_text_of_equal_figures():
    text = str(difference(BEFORE, BEFORE))
    assert text.splitlines() == [
        "Same settings",
        "Totals (0 of 4 differ)",
        "Layers, cycles (0 of 4 differ)",
        "Families, cycles (0 of 1 differ)",
        "Memory of all tiles, bytes (0 of 2 differ)",
    ]


def test_text_of_many_layers():
    layers = {f"layer{index:02}": index for index in range(30)}
    none = {"name": "train", "settings": {}, "totals": {}, "families": {}, "memory": {}}
    text = str(difference(Compared(layers={}, **none), Compared(layers=layers, **none)))
    assert "Layers, cycles (29 of 30 differ; the largest 15 changes)" in text
    assert "layer15" in text
    assert "layer14" not in text


def test_names_are_plain_text():
    settings = {"program": "[/x] :fire:"}
    layers = {"[red]hi[/red]": 1}
    text = str(difference(BEFORE, replace(AFTER, settings=settings, layers=layers)))
    lines = lines_of(text)
    assert lines["program"] == ["None", "[/x] :fire:"]
    assert lines["[red]hi[/red]"] == ["0", "1", "+1", ""]


def test_repr():
    found = difference(BEFORE, AFTER)
    assert found.names == ("train on gc200", "train on bow")
    assert repr(found) == (
        "<Difference from 'train on gc200' to 'train on bow': cycles_per_step 1,000 -> 1,200, "
        "seconds_per_step 0.5 -> 0.6>"
    )


def test_the_cell_of_a_notebook():
    found = difference(replace(BEFORE, name="<b>"), replace(AFTER, memory=BEFORE.memory))
    cell = read_html(found._repr_html_())
    assert cell.all("b") == []
    assert cell.all("h3")[0].text == "From <b> to train on bow"
    captions = [one.text for one in cell.all("caption")]
    assert captions == [
        "Settings",
        "Totals (3 of 3 differ)",
        "Layers, cycles (4 of 5 differ)",
        "Families, cycles (1 of 1 differ)",
    ]
    assert [one.text for one in cell.all("p")] == ["Memory of all tiles, bytes (0 of 2 differ)"]
    rows = [[one.text for one in row.walk()] for row in cell.all("tr")]
    assert ["batch_size", "4", "8"] in rows
    assert ["stem", "500", "400", "-100", "-20.0%"] in rows
    assert ["new", "0", "50", "+50", ""] in rows
    # Figures are on the right, settings on the left.
    settings, totals = cell.all("table")[:2]
    assert {one.attributes.get("class") for one in settings.all("td")} == {None}
    assert {one.attributes.get("class") for one in totals.all("td")} == {"figure"}


def test_a_cell_without_its_libraries(monkeypatch):
    monkeypatch.delattr(ipu_keras.report, "html_templates", raising=False)
    monkeypatch.delitem(sys.modules, "ipu_keras.report.html_templates", raising=False)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert difference(BEFORE, AFTER)._repr_html_() is None
