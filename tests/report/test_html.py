"""Pages of programs that are built by hand."""

import dataclasses
import json
import re
import subprocess
import sys
from itertools import pairwise

import pytest
from hlo_graphs import argument, graph, op, variable
from html_reports import SECTIONS, pipelined, program, report
from html_tree import read_html

import ipu_keras.report
from ipu_keras.advice.changes import Fix
from ipu_keras.machine.target import TARGETS
from ipu_keras.report import html
from ipu_keras.report.error_bands import error_bands
from ipu_keras.report.figures_in_words import throughput_in_words, verdict_in_words
from ipu_keras.report.fullest_tile import fullest_tile
from ipu_keras.report.glossary import TERMS
from ipu_keras.report.html import MAX_TABLE_ROWS
from ipu_keras.report.report import Report

GC200 = TARGETS["gc200"]
HOSTILE = """</script><script>alert("&'1'")</script>"""


def sorts(number):
    """Sorts that follow each other, and are not fused."""
    names = ["x", *(f"sort{i}" for i in range(number))]
    return graph(
        argument("x", 8),
        *(op(name, "sort", (8,), before, dimensions=(0,)) for before, name in pairwise(names)),
    )


def page(found):
    return read_html(html.page(found))


@pytest.fixture(scope="module")
def standard():
    """The page of `report()`."""
    return page(report())


def test_sections(standard):
    found = standard
    assert [section.attributes["id"] for section in found.all("section")] == SECTIONS
    assert [link.attributes["href"] for link in found.all("nav")[0].all("a")] == [
        f"#{section}" for section in SECTIONS
    ]
    assert found.all("title")[0].text == "step on gc200"
    headings = [one.tag for one in found.walk() if re.fullmatch("h[1-6]", one.tag)]
    assert headings == ["h1"] + ["h2"] * len(SECTIONS)
    assert all(table.all("caption")[0].text for table in found.all("table"))


def test_a_table_of_compute_sets(standard):
    """Rows as in `test_report`: those of the most cycles first."""
    heading, *rows = standard.section("compute-sets").table()
    cells = [dict(zip(heading, row, strict=True)) for row in rows]
    assert [row["name"].split()[0] for row in cells] == ["b", "a", "new"]
    (first,) = (row for row in cells if row["name"] == "a")
    # 64 floats of `w` on each tile come from where they lie: 64 cycles and 157 on the way.
    assert (first["bytes received"], first["exchange"]) == ("256", "221")
    # 1472 x 64 additions.
    assert (first["layer"], first["family"], first["MFLOP"]) == ("first", "elementwise", "0.1")
    values = [
        cell.attributes["data-value"]
        for cell in standard.section("compute-sets").all("tr")[2].all("td")
        if "data-value" in cell.attributes
    ]
    # The operations, runs, tiles with vertices, bytes that arrive, temporaries.
    assert values[-5:] == [str(1472 * 64), "1", "1472", "256", "0"]
    (heading, *_) = page(pipelined()).section("compute-sets").table()
    assert heading.index("IPU") == heading.index("runs") + 1
    assert (first["order"], first["tiles"]) == ("0", "1,472")


def pace(found):
    return throughput_in_words(found.samples_per_second, found.error_bands)


def test_totals():
    found = report(steps_per_execution=2, batch_size=1472)
    summary = page(found).section("summary")
    figures = dict(
        zip(
            [term.text for term in summary.all("dt")],
            [value.text for value in summary.all("dd")],
            strict=True,
        )
    )
    assert figures["cycles per step"] == f"{found.cycles_per_step:,}"
    assert figures["samples per second"] == f"{pace(found)}, 1,472 in a step"
    assert figures["bound by the"] == "host"
    memory = found.model.memory
    assert figures["fullest tile"] == (
        f"tile {memory.worst_tile}: {memory.max_tile_bytes:,} of 638,976 bytes"
    )
    assert figures["IPUs"] == "1"
    assert figures["an execution"] == f"2 steps, {found.seconds_per_execution * 1e3:.3f} ms"
    assert "weights are updated after" not in figures
    (options,) = (one for one in summary.all("table") if one.all("caption")[0].text == "Options")
    assert ["steps per execution", "2"] in [
        [cell.text for cell in row.walk() if cell.tag in ("th", "td")] for row in options.all("tr")
    ]
    # Both tables have all cycles of the IPU.
    for caption in ("how sure they are", "phase"):
        (table,) = (one for one in summary.all("table") if caption in one.all("caption")[0].text)
        cycles = [row.all("td")[0].attributes["data-value"] for row in table.all("tr")[1:]]
        assert sum(map(int, cycles)) == found.compute_cycles


def test_the_timeline_of_a_step(standard):
    found = report()
    timeline = standard.section("trace").all("svg")[0]
    assert timeline.attributes["viewbox"] == "0 0 10000 100"
    host, *groups = timeline.all("g")

    def cycles(rect, name):
        share = float(rect.attributes[name]) / 10_000
        return pytest.approx(share * found.cycles_per_step, abs=1e-8 * found.cycles_per_step)

    assert found.host_cycles == cycles(host.all("rect")[0], "width")
    start = found.host_cycles
    for row, drawn in zip(found.rows, groups, strict=True):
        assert drawn.all("title")[0].text.startswith(f"{row.name} layer {row.layer}, {row.family}")
        _, whole, *phases = drawn.all("rect")
        assert start == cycles(whole, "x")
        assert row.cycles == cycles(whole, "width")
        parts = [row.sync_cycles, row.exchange_cycles, row.compute_cycles]
        for phase, part in zip(phases, filter(None, parts), strict=True):
            assert start == cycles(phase, "x")
            assert part == cycles(phase, "width")
            start += part
    assert start == found.cycles_per_step


def test_a_program_that_does_not_fit(standard):
    needed = report().model.memory.max_tile_bytes
    assert "alert" not in {one.attributes.get("role") for one in standard.all("div")}
    lacks = report(target=GC200.with_numbers(tile_bytes=needed - 1))
    (alert,) = (
        one
        for one in page(lacks).section("summary").all("div")
        if one.attributes.get("role") == "alert"
    )
    assert lacks.memory_error in alert.text
    # 256 bytes each of `a`, `w` and `x`.
    assert "first 256, second 256, the infeed 256" in alert.text


def test_numbers_of_the_hardware_have_sources(standard):
    rows = {row[0]: row[1:] for row in standard.section("hardware").table()}
    assert rows["tile bytes"][:2] == ["638,976", "derived"]
    assert "arXiv:1912.03413" in rows["num workers"][2]
    assert rows["amp flops"][0].startswith("float16/float16: 128, ")
    assert rows["link latency seconds"][0] == "1.6e-07"


def test_errors_of_the_model(standard):
    section = standard.section("error-bands")
    rows = {}
    for table in section.all("table"):
        for row in table.all("tr")[1:]:
            name, *cells = (cell.text for cell in row.walk() if cell.tag in ("td", "th"))
            rows[name] = cells
    bands = {band.kind: band for band in error_bands().bands}
    kind = "convolutions below 30,000 cycles"
    band = bands[kind]
    assert rows[kind] == [
        "gc2",
        str(band.points),
        f"{band.median_error:+.1%}",
        f"{band.median_absolute_error:.1%}",
        f"{band.least_error:+.1%}",
        f"{band.greatest_error:+.1%}",
        f"{band.median_cycles_off:+,}",
    ]
    # Of bandwidths, no cycles are known.
    assert rows["large copies with the host, of 2 to 16 IPUs"][-1] == ""
    (point,) = (one for one in error_bands().points if one.kind == "random numbers")
    assert rows["random numbers"] == ["gc2", point.description, f"{point.error:+.1%}"]
    program = error_bands().programs[0]
    ratio = f"{program.throughput:.2f}"
    assert rows["MNIST MLP"] == ["bow", "hardware", ratio, "", "", "", "yes", program.configuration]


def test_long_tables_are_cut(standard):
    found = report(sorts(MAX_TABLE_ROWS + 5))
    section = page(found).section("compute-sets")
    assert section.all("caption")[0].text == f"Compute sets: {MAX_TABLE_ROWS + 5}"
    assert len(section.table()) == 1 + MAX_TABLE_ROWS
    rows = sorted(found.rows, key=lambda row: (-row.cycles, row.name))
    share = sum(row.cycles for row in rows[-5:]) / found.compute_cycles
    assert f"5 further rows with {share:.1%} of the cycles are left out here." in section.text
    assert "left out" not in standard.section("compute-sets").text


def test_a_program_that_computes_nothing():
    nothing = report(graph(variable("w", 8, result=0), results=("w",)))
    assert not nothing.rows
    found = page(nothing)
    assert "The program computes nothing." in found.section("liveness").text
    assert len(found.section("compute-sets").table()) == 1


def test_names_are_text():
    found = page(report(program(HOSTILE), name=HOSTILE))
    data, graph_, _ = found.all("script")
    assert {one.attributes["type"] for one in (data, graph_)} == {"application/json"}
    assert HOSTILE in json.loads(graph_.text)["layers"]
    assert found.all("h1")[0].text == f"{HOSTILE} on gc200"
    assert HOSTILE in [row[0] for row in found.section("layers").table()]
    cell = read_html(report(program(HOSTILE), name=HOSTILE)._repr_html_())
    assert cell.all("script") == []


def test_nothing_is_loaded(standard):
    for element in standard.walk():
        assert "src" not in element.attributes
        links = [element.attributes.get(name) for name in ("href", "xlink:href")]
        assert all(link is None or link.startswith("#") for link in links)
    styles = [one.text for one in standard.all("style")]
    styles += [str(value) for one in standard.walk() for value in one.attributes.values()]
    assert not re.search(r"url\((?!#)|@import", " ".join(styles))
    (policy,) = (
        one.attributes["content"] for one in standard.all("meta") if "http-equiv" in one.attributes
    )
    assert policy.startswith("default-src 'none';")


def test_ids_are_unique(standard):
    ids = [one.attributes["id"] for one in standard.walk() if "id" in one.attributes]
    assert len(ids) == len(set(ids))


RENDER = """
import sys
sys.path[:0] = sys.argv[1:]
from html_reports import report
from ipu_keras.report import html
sys.stdout.reconfigure(encoding="utf-8")
print(html.page(report()), end="")
"""


def test_equal_reports_have_equal_pages_in_any_process(tmp_path):
    report().to_html(tmp_path / "report.html")
    paths = [path for path in sys.path if path]
    other = subprocess.run(
        [sys.executable, "-c", RENDER, *paths], capture_output=True, check=True, encoding="utf-8"
    )
    assert (tmp_path / "report.html").read_text("utf-8") == other.stdout


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("an older report")
    # A character that UTF-8 has no form for, after much that it has.
    broken = dataclasses.replace(report().model, name="step \ud800")
    with pytest.raises(UnicodeEncodeError):
        Report.of(broken).to_html(path)
    assert path.read_text() == "an older report"
    report().to_html(str(path))
    assert "<h1>step on gc200</h1>" in path.read_text("utf-8")
    with pytest.raises(FileNotFoundError, match="written into a folder that exists"):
        report().to_html(tmp_path / "missing" / "report.html")


@pytest.mark.parametrize("library", ["jinja2", "matplotlib"])
def test_a_library_that_is_missing(monkeypatch, tmp_path, library):
    monkeypatch.delattr(ipu_keras.report, "html")
    for module in list(sys.modules):
        if module.startswith("ipu_keras.report.html") or module.startswith(f"{library}."):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=r'pip install "ipu-keras\[report\]"') as caught:
        report().to_html(tmp_path / "report.html")
    assert str(caught.value).startswith(f"An HTML report needs {library}")
    assert report()._repr_html_() is None


def test_the_verdict_comes_first():
    found = dataclasses.replace(
        report(), note="Inference is modelled, as the model is not compiled"
    )
    verdicts = [
        one.text
        for one in page(found).section("summary").all("p")
        if one.attributes.get("class") == "verdict"
    ]
    assert verdicts == [f"{found.note}.", f"{verdict_in_words(found)}."]


def test_headings_lead_to_the_glossary(standard):
    terms = {one.attributes["id"]: one for one in standard.section("glossary").all("div")}
    links = [one.attributes["href"] for one in standard.all("a")]
    named = {link.removeprefix("#") for link in links if link.startswith("#term-")}
    assert {"term-gaps", "term-stash", "term-overflowed", "term-vertex-state"} <= named
    assert "term-interleaved-non-interleaved" in named
    assert named <= terms.keys()
    assert terms["term-gaps"].all("dd")[0].text == TERMS["Gaps"]


def test_the_tree_leads_to_operations(standard):
    (tree,) = (one for one in standard.all("ul") if one.attributes.get("class") == "tree")
    links = [(one.text, one.attributes["data-operation"]) for one in tree.all("a")]
    assert links == [("a", "0"), ("b", "1"), ("new", "2")]


def test_the_map_of_tiles_has_their_bytes(standard):
    (data,) = standard.section("values").all("script")
    found = dict(json.loads(data.text))
    assert found["variables"] == [[256, 1472]]
    whole = sum(size * length for runs in found.values() for size, length in runs)
    assert whole == report().model.memory.total_bytes


def test_samples_that_nobody_counted():
    assert "samples per second" not in html.page(report())


def test_what_would_help_a_program_that_does_not_fit():
    fix = Fix(changes={"num_ipus": 2}, max_tile_bytes=600_000, fits=True, seconds_per_sample=2.5e-6)
    found = report(target=GC200.with_numbers(tile_bytes=1000))
    found = dataclasses.replace(found, fixes=(fix,))
    for text in (html.page(found), found._repr_html_()):
        (box,) = (
            one
            for one in read_html(text).all("div")
            if one.attributes.get("aria-label") == "What to do next"
        )
        assert box.all("li")[0].text == (
            "The layers on 2 IPUs: fits, 600,000 bytes on the fullest tile, 2.50 us per "
            "sample: config.auto_select_ipus = 2 model.set_pipeline_stage_assignment("
            "ipu_keras.suggest_pipeline(model, 2, *specs))"
        )


def test_several_ipus_and_what_to_know_besides():
    two_layers = graph(
        argument("x", 1472, 64),
        variable("v", 1472, 64),
        op("a", "add", (1472, 64), "x", "v", layer="first"),
        op("b", "sort", (1472, 64), "a", layer="second", dimensions=(0,)),
        variable("w", 1472, 64),
        op("c", "add", (1472, 64), "b", "w", layer="second"),
    )
    found = report(two_layers, num_ipus=2)
    shared, fullest = found.remarks
    summary = page(found).section("summary").text
    assert shared == "It is for 2 IPUs, which share the layers; one computes at a time"
    assert fullest == f"The fullest tile is {fullest_tile(found.model.memory)} of 2"
    assert f"{shared}. {fullest}." in summary
    titles = [one.text for one in page(found).section("trace").all("title")]
    assert any("on IPU 1" in title for title in titles)
    assert not any("on IPU" in one.text for one in page(report()).section("trace").all("title"))


def test_memory_by_category():
    found = report()
    tables = {
        table.all("caption")[0].text: table for table in page(found).section("memory").all("table")
    }
    memory = found.model.memory
    for caption, sizes in (
        ("In use all the time, over all tiles", memory.always_live_by_category),
        ("In use some of the time, over all tiles", memory.not_always_live_by_category),
    ):
        cells = [row.all("td")[0].attributes["data-value"] for row in tables[caption].all("tr")[1:]]
        assert list(map(int, cells)) == list(sizes.values())


def test_the_cell_of_a_notebook():
    found = report()
    cell = read_html(found._repr_html_())
    assert cell.all("h3")[0].text == "step on gc200"
    layers, families = cell.all("table")
    assert [row.text.split()[0] for row in layers.all("tr")] == ["name", "second", "first", "sgd"]
    assert families.all("caption")[0].text == "Families of operations"
    # Two paths of at most 300 steps among them.
    assert len(found._repr_html_()) < 60_000
    memory, shown = cell.all("figure"), found._repr_html_()
    assert [one.all("figcaption")[0].text for one in memory] == ["Memory of each tile"]
    # Ids of two cells in a notebook are not the same, but where all of the picture is.
    ids = [one.attributes["id"] for one in cell.walk() if "id" in one.attributes]
    assert ids
    assert len(ids) == len(set(ids))
    other = read_html(report(sorts(8))._repr_html_())
    assert shown == found._repr_html_()
    assert not set(ids) & {one.attributes.get("id") for one in other.walk()}


def test_the_cell_of_a_pipeline():
    found = pipelined()
    cell = read_html(found._repr_html_())
    memory, pipeline = cell.all("figure")
    for ipu in range(4):
        assert f"IPU {ipu}" in memory.text
    lanes = [one for one in pipeline.walk() if one.attributes.get("class") == "lane"]
    assert [lane.text.split()[:2] for lane in lanes] == [["IPU", str(ipu)] for ipu in range(4)]
    timing = found.pipeline_timing
    for ipu, lane in enumerate(lanes):
        events = [event for event in timing.events if event.instruction.part.ipu == ipu]
        starts = [10_000 * event.start / timing.cycles for event in events if event.cycles]
        drawn = [float(bar.attributes["x"]) for bar in lane.all("rect")]
        assert drawn == pytest.approx(starts, abs=0.01)
    assert "copy to another IPU" in pipeline.text


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_a_pipeline_is_shown_with_its_ipus(num_replicas):
    found = pipelined(num_replicas)
    whole = page(found)
    summary = whole.section("summary")
    pairs = zip(summary.all("dt"), summary.all("dd"), strict=True)
    figures = {term.text: value.text for term, value in pairs}
    replicas = "" if num_replicas == 1 else " on each of 2 replicas"
    assert figures["IPUs"] == str(4 * num_replicas)
    assert figures["samples per second"] == (f"{pace(found)}, 64 in a step{replicas}")
    assert figures["weights are updated after"] == "8 steps"
    tile = found.model.memory.worst_tile % 1472
    ipu = found.model.memory.worst_ipu
    assert figures["fullest tile"].startswith(f"tile {tile} of IPU {ipu}: ")
    text = " ".join(section.text for section in whole.all("section"))
    text = text.replace("place_ops_on_io_tiles = True", "")  # a line to write
    for word in ("num ipus", " None,", " None.", "{'", "True", "False"):
        assert word not in text, f"{word!r} is no word for people"
    assert {f"IPU {k}" for k in range(4)} <= {
        one.text for one in whole.section("memory").all("text")
    }


def test_the_weight_update_is_a_phase_of_its_own():
    found = pipelined()
    whole = page(found)
    (table,) = (
        one
        for one in whole.section("summary").all("table")
        if one.all("caption")[0].text == "Cycles by phase"
    )
    assert {row.all("th")[0].text for row in table.all("tr")[1:]} == {
        "forward",
        "backward",
        "weight update",
    }
    heading, *rows = whole.section("compute-sets").table()
    cells = [dict(zip(heading, row, strict=True)) for row in rows]
    assert {row["phase"] for row in cells if row["name"].startswith("u")} == {"weight update"}
    drawn = [one.attributes.get("class") for one in whole.section("trace").all("rect")]
    updates = [row for row in found.rows if row.weight_update and row.cycles]
    assert drawn.count("update") == len(updates)
    (legend,) = (
        one
        for one in whole.section("trace").all("ul")
        if one.attributes.get("aria-label") == "Colours of phases"
    )
    assert {one.text for one in legend.all("li")} == {"forward", "backward", "weight update"}
