"""Pages of two reports beside each other."""

import pytest
from html_reports import GC200, pipelined, program, report
from html_tree import read_html

SECTIONS = ["summary", "memory", "liveness", "layers", "families", "settings"]


@pytest.fixture(scope="module")
def pair():
    before = report(batch_size=1472)
    slower = GC200.with_numbers(memcpy_bytes=4, host_latency_cycles=200_000)
    return before, report(program("other"), slower, batch_size=1472, steps_per_execution=8)


@pytest.fixture
def page(pair, tmp_path):
    before, after = pair
    before.diff(after).to_html(tmp_path / "change.html")
    return read_html((tmp_path / "change.html").read_text("utf-8"))


def test_sections(page):
    assert [section.attributes["id"] for section in page.all("section")] == SECTIONS
    assert page.all("title")[0].text == page.all("h1")[0].text
    assert page.all("h1")[0].text == "From step on gc200 to step on gc200"
    for element in page.walk():
        assert "src" not in element.attributes
        assert str(element.attributes.get("href", "#")).startswith("#")


def test_figures_before_and_after(page, pair):
    before, after = pair
    rows = {row[0]: row[1:] for row in page.section("summary").table()}
    change = after.cycles_per_step - before.cycles_per_step
    assert rows["cycles per step"] == [
        f"{before.cycles_per_step:,}",
        f"{after.cycles_per_step:,}",
        f"{change:+,}",
        f"{change / before.cycles_per_step:+.1%}",
    ]
    shown = [one.text for one in page.section("summary").all("dd")]
    ratio = f"{change / before.cycles_per_step:+.1%}"
    assert shown[0] == f"{before.cycles_per_step:,} → {after.cycles_per_step:,} {ratio}"


def test_layers(page, pair):
    """A layer that has another name is in one of the reports only."""
    before, after = pair
    heading, *rows = page.section("layers").table()
    assert heading[:5] == ["layer", "cycles before", "after", "change", "ratio"]
    lines = {row[0]: row[1:] for row in rows}
    assert set(lines) == {"first", "other", "second", "sgd"}
    first = next(layer for layer in before.layers if layer.name == "first")
    cycles, peak, flops, parameters = (lines["first"][k : k + 4] for k in (0, 4, 8, 12))
    for cells, number in (
        (cycles, first.cycles),
        (peak, first.peak_bytes),
        (flops, first.flops),
        (parameters, first.parameters),
    ):
        assert cells == [f"{number:,}", "0", f"{-number:,}", "-100.0%"]
    # What grows from nothing has no ratio, and sorts as 0.
    other = next(row for row in page.section("layers").all("tr") if row.text.startswith("other"))
    assert [cell.attributes["data-value"] for cell in other.all("td")][1:4:2] == [
        str(next(layer for layer in after.layers if layer.name == "other").cycles),
        "0",
    ]


def test_pictures_and_settings(page):
    for section in ("memory", "liveness"):
        words = {one.text for one in page.section(section).all("text")}
        assert {"before", "after"} <= words
    rows = page.section("settings").table()
    assert ["steps per execution", "1", "8"] in rows
    assert ["target.memcpy bytes", "8", "4"] in rows


def test_programs_on_other_numbers_of_ipus(tmp_path):
    report().diff(pipelined()).to_html(tmp_path / "change.html")
    memory = read_html((tmp_path / "change.html").read_text("utf-8")).section("memory")
    assert {f"IPU {k}" for k in range(4)} <= {one.text for one in memory.all("text")}


def test_equal_reports(tmp_path):
    report().diff(report()).to_html(tmp_path / "same.html")
    page = read_html((tmp_path / "same.html").read_text("utf-8"))
    assert "Both have the same settings." in page.section("settings").text
    assert all("no change" in one.text for one in page.section("summary").all("dd"))


def test_names_are_text(tmp_path):
    hostile = "</script><script>alert(1)</script>"
    report(program(hostile), name=hostile).diff(report()).to_html(tmp_path / "page.html")
    page = read_html((tmp_path / "page.html").read_text("utf-8"))
    assert len(page.all("script")) == 1
    assert hostile in [row[0] for row in page.section("layers").table()]
