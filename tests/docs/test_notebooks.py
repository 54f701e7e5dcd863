"""The notebooks run, and hold what they show today: in words, and in pictures."""

import json

import pytest
from html_tree import read_html
from notebooks import PATHS, executed, html, shown

NOTEBOOKS = {path.stem: json.loads(path.read_text("utf-8")) for path in PATHS}


def test_there_are_two():
    assert list(NOTEBOOKS) == ["first_fit", "transformer_on_four_ipus"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_they_show_what_they_hold(path):
    held = NOTEBOOKS[path.stem]
    assert shown(executed(path)) == shown(held), "python tests/notebooks.py"


def test_a_report_shows_the_memory_of_tiles():
    report, choices = (read_html(page) for page in html(NOTEBOOKS["first_fit"]))
    (figure,) = report.all("figure")
    assert "Memory of each tile" in figure.text
    assert len(figure.all("svg")) == 1
    assert choices.all("caption")[0].text == "What if: classifier.train"


def test_the_transformer_does_not_fit_and_then_does():
    before, title, stages, choices, after = (
        read_html(page) for page in html(NOTEBOOKS["transformer_on_four_ipus"])
    )
    assert "Out of memory" in before.text
    assert "Stages of transformer.train" in title.text
    assert "slowest" in stages.text
    assert [row.text.split()[-2] for row in choices.all("tr")[1:]] == ["yes", "yes"]
    assert "Out of memory" not in after.text
    memory, pipeline = after.all("figure")
    for ipu in range(4):
        assert f"IPU {ipu}" in memory.text
    lanes = pipeline.all("svg")
    assert [lane.attributes["aria-label"] for lane in lanes] == [
        f"What IPU {ipu} does, over time" for ipu in range(4)
    ]
    assert all(lane.all("rect") for lane in lanes)
