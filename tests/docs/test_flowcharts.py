"""Flowcharts as pictures: what is read, where it stands, what a reader hears."""

import re
from graphlib import CycleError
from itertools import combinations

import pytest
from flowcharts import centres, crossings, floors, ordered, parsed, picture
from html_tree import read_html
from shown_programs import PROJECT

TEXT = """
flowchart TD
    a["one"] --> b(["two"])
    a -.-> c
    b --> d["a/long/name_of_a_file.py: what it has"]
    c --> d
"""


def test_what_is_read():
    chart = parsed(TEXT)
    assert chart.texts == {
        "a": "one",
        "b": "two",
        "c": "c",
        "d": "a/long/name_of_a_file.py: what it has",
    }
    assert chart.round == {"b"}
    assert chart.lines == {
        ("a", "b"): False,
        ("a", "c"): True,
        ("b", "d"): False,
        ("c", "d"): False,
    }


@pytest.mark.parametrize(
    ("text", "received"),
    [
        ("flowchart LR\na --> b", "flowchart LR"),
        ("flowchart TD\na ==> b", "a ==> b"),
        ("flowchart TD\na{odd} --> b", r"a\{odd\} --> b"),
    ],
)
def test_other_words_are_refused(text, received):
    with pytest.raises(ValueError, match=f"Received: '{received}'"):
        parsed(text)


def test_a_circle_is_refused():
    with pytest.raises(CycleError):
        floors(parsed("flowchart TD\na --> b\nb --> a"))


def test_floors_are_by_the_longest_way_down():
    chart = parsed("flowchart TD\na --> b\nb --> c\na --> c\nd --> c")
    assert floors(chart) == [["a"], ["b", "d"], ["c"]]


def test_lines_that_need_not_cross_do_not():
    rows, steps = [["a", "b", "c"], ["x", "y", "z"]], [("a", "z"), ("b", "y"), ("c", "x")]
    assert crossings(rows, steps) == 3
    assert crossings(ordered(rows, steps), steps) == 0
    assert rows == [["a", "b", "c"], ["x", "y", "z"]]


def test_places_are_apart_and_near_what_they_are_joined_to():
    rows = [["a"], ["x", "y", "z"]]
    found = centres(rows, [("a", "x"), ("a", "y"), ("a", "z")], dict.fromkeys("axyz", 20.0))
    assert found["a"] == pytest.approx(found["y"])
    assert found["y"] - found["x"] == pytest.approx(20 + 14)
    assert found["z"] - found["y"] == pytest.approx(20 + 14)
    assert found["x"] == pytest.approx(20 / 2 + 1)


def test_a_picture_says_what_leads_to_what():
    page = read_html(picture(TEXT))
    assert page.all("title")[0].text == (
        "one leads to two; c. two leads to a/long/name_of_a_file.py: what it has. "
        "c leads to a/long/name_of_a_file.py: what it has."
    )
    texts = [one.text for one in page.all("text")]
    assert texts == ["one", "two", "c", "a/long/", "name_of_a_file.py:", "what it has"]
    dotted = [one.attributes.get("class") for one in page.all("path")]
    assert dotted == [None, None, "dotted", None, None]  # the first one is the arrow's head


def test_boxes_of_the_documentation_are_apart():
    text = (PROJECT / "docs" / "architecture.md").read_text("utf-8")
    charts = re.findall(r"^```mermaid\n(.*?)^```$", text, re.M | re.S)
    assert len(charts) == 2
    for chart in charts:
        page = read_html(picture(chart))
        assert len(page.all("path")) == 1 + len(parsed(chart).lines)
        boxes = [
            [float(one.attributes[name]) for name in ("x", "y", "width", "height")]
            for one in page.all("rect")
        ]
        assert len(boxes) == len(parsed(chart).texts)
        for (x, y, width, height), (left, top, wide, high) in combinations(boxes, 2):
            assert x + width < left or left + wide < x or y + height < top or top + high < y
