"""The pages as people use them: wide and narrow, light and dark, by keyboard, read aloud.

Run by `make test-browser`, as test_html_browser.py. A page is held to axe-core's rules, which
know contrast, names and roles; that nothing is beside the page or over something else; and that
what can be done with a mouse is done by keys.
"""

from itertools import combinations

import pytest
from browser import LOOKS, violations
from hlo_graphs import argument, graph, op
from html_reports import GC200, pipelined, report

pytestmark = pytest.mark.browser

PAGES = ("report", "pipeline", "too_large", "change")

# Boxes of what must not lie over each other, and what is wider than it may be.
_MEASURE = """
() => {
  const shown = (one) => one.getClientRects().length > 0;
  const select = "section, dl > div, .controls > *, .legend li, nav a, .next li";
  const box = (one) => {
    const { left, right, top, bottom } = one.getBoundingClientRect();
    return { parent: one.parentElement.className + one.parentElement.tagName,
             text: one.textContent.slice(0, 40), left, right, top, bottom };
  };
  const clipped = Array.from(document.querySelectorAll("dd, dt, button, .next code, h1, .ticks li"))
    .filter((one) => shown(one) && one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0)
    .map((one) => one.outerHTML.slice(0, 80));
  const groups = new Map();
  for (const one of Array.from(document.querySelectorAll(select)).filter(shown)) {
    if (!groups.has(one.parentElement)) groups.set(one.parentElement, []);
    groups.get(one.parentElement).push(box(one));
  }
  return {
    width: document.documentElement.scrollWidth,
    groups: Array.from(groups.values()),
    clipped,
  };
}
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Files by their names."""
    folder = tmp_path_factory.mktemp("pages")
    many = graph(
        argument("x", 1472, 64),
        op("a", "sort", (1472, 64), "x", layer="a_layer/with/a/long/name" * 3, dimensions=(0,)),
    )
    reports = {
        "report": report(batch_size=1472),
        "pipeline": pipelined(),
        "too_large": report(many, GC200.with_numbers(tile_bytes=1000), name="model.train" * 5),
    }
    for name, one in reports.items():
        one.to_html(folder / f"{name}.html")
    reports["report"].diff(reports["pipeline"]).to_html(folder / "change.html")
    return {name: folder / f"{name}.html" for name in PAGES}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_axe_finds_nothing(visit, pages, name, width, scheme):
    assert violations(visit(pages[name], width, scheme)) == {}


def test_axe_would_find_something(visit, tmp_path):
    """The test above could not fail otherwise."""
    path = tmp_path / "bad.html"
    path.write_text(
        '<!DOCTYPE html><html lang="en"><title>bad</title><body><main><h1>bad</h1><button></button>'
        '<p style="color: #bbb; background: #fff">faint</p></main></body></html>',
        "utf-8",
    )
    assert {"button-name", "color-contrast"} <= set(violations(visit(path)))


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_nothing_is_beside_the_page_clipped_or_over_something_else(
    visit, pages, name, width, scheme
):
    found = visit(pages[name], width, scheme).evaluate(_MEASURE)
    assert found["width"] == width
    assert found["clipped"] == []
    assert found["groups"]
    for group in found["groups"]:
        for one, other in combinations(group, 2):
            apart = (
                one["right"] <= other["left"] + 1
                or other["right"] <= one["left"] + 1
                or one["bottom"] <= other["top"] + 1
                or other["bottom"] <= one["top"] + 1
            )
            assert apart, (one, other)


@pytest.mark.parametrize("name", PAGES)
def test_no_table_is_cut_on_a_screen(visit, pages, name):
    cut = visit(pages[name]).evaluate(
        "() => Array.from(document.querySelectorAll('.wide'))"
        ".filter((one) => one.scrollWidth > one.clientWidth)"
        ".map((one) => one.getAttribute('aria-label'))"
    )
    assert cut == []


@pytest.mark.parametrize("width", [1280, 400])
def test_pictures_are_whole_and_can_be_read(visit, pages, width):
    """One of two is shown, as wide as the page, in letters of 10 pixels or more."""
    found = visit(pages["pipeline"], width).evaluate(
        """() => Array.from(document.querySelectorAll("figure svg"))
          .filter((one) => one.getClientRects().length)
          .map((one) => {
            const box = one.getBoundingClientRect();
            const letters = Array.from(one.querySelectorAll("text"), (text) =>
              text.getBoundingClientRect().height);
            return [one.className.baseVal, box.left, box.right, Math.min(...letters)];
          })"""
    )
    assert [one[0] for one in found] == ["broad" if width == 1280 else "narrow"] * 3
    for _, left, right, letters in found:
        assert 0 <= left < right <= width
        assert right - left > 0.85 * width
        assert letters >= 10


@pytest.mark.parametrize("name", PAGES)
def test_on_a_telephone_names_have_a_figure_beside_them(visit, pages, name):
    """Further ones are reached by scrolling, while names stay where they are."""
    page = visit(pages[name], 400)
    beside = page.evaluate(
        """() => Array.from(document.querySelectorAll(".wide tbody tr:first-child"))
          .filter((row) => row.cells.length > 1 && row.checkVisibility())
          .map((row) => [row.cells[0].textContent, row.cells[1].getBoundingClientRect().right])"""
    )
    assert beside
    assert [cell for cell, right in beside if right > 400] == []
    page.evaluate("for (const one of document.querySelectorAll('.wide')) one.scrollLeft = 200")
    moved = page.evaluate(
        """() => Array.from(document.querySelectorAll(".wide tbody tr:first-child > th"))
          .filter((one) => one.checkVisibility())
          .map((one) => one.getBoundingClientRect().left)"""
    )
    assert min(moved) >= 0


# What is clicked after the link to a section, and what is seen then.
CLICKS = {
    "Memory map": ("the fullest tile at its fullest", "#values .tiles p", "at its fullest: "),
    "Execution trace": ("zoom in", "#trace .ticks", " µs"),
    "Program tree": ("stage 0", "#tree", "forward"),
    "Compute sets": ("cycles", "#compute-sets thead", "cycles"),
    "Operations": ("find", "#operations [data-chosen]", "instructions of XLA: "),
}


@pytest.mark.parametrize("width", [1280, 400])
def test_two_clicks_lead_to_what_people_look_for(visit, pages, width):
    page = visit(pages["pipeline"], width)

    def follow(title):
        page.locator("nav").get_by_role("link", name=title, exact=True).click()
        place = page.evaluate("location.hash")
        assert page.locator(f"{place} h2").text_content() == title
        # The heading is where the window begins.
        assert -1 < page.locator(f"{place} h2").bounding_box()["y"] < 100
        return page.locator(place)

    assert follow("Liveness").locator("svg:visible").count() == 1
    assert follow("Memory").locator("svg:visible").get_by_text("fullest tile").count() == 1
    for title, (what, where, seen) in CLICKS.items():
        section = follow(title)
        section.locator("button, summary").get_by_text(what, exact=what != "stage 0").first.click()
        shown = page.locator(where).filter(has_text=seen)
        assert shown.first.is_visible(), title


def test_the_map_of_tiles_is_as_dark_as_tiles_are_full(visit, pages):
    page = visit(pages["pipeline"])
    memory = pipelined().model.memory
    page.locator("#values select[name=ipu]").select_option("1")
    squares = page.locator(".tiles rect")
    assert squares.count() == 1472
    fullest = memory.peak_by_tile[1472:].argmax()
    opacities = page.evaluate(
        "Array.from(document.querySelectorAll('.tiles rect'), (one) => one.style.fillOpacity)"
    )
    share = memory.peak_by_tile[1472 + fullest] / memory.tile_bytes
    assert max(map(float, opacities)) == pytest.approx(0.06 + 0.94 * share, abs=1e-3)
    size = memory.peak_by_tile[1472 + 5]
    assert squares.nth(5).text_content() == f"tile 5: {size:,} bytes"
    squares.nth(5).click()
    assert page.get_by_label("tile", exact=True).input_value() == "5"
    said = page.locator(".tiles p").text_content()
    assert said.startswith(f"Tile 5 of IPU 1 at its fullest: {size:,} of 638,976 bytes: code")
    page.get_by_label("colour all bytes").select_option("variables")
    assert f"tile 5: {size:,} bytes" != squares.nth(5).text_content()


def test_the_search_of_operations(visit, pages):
    page = visit(pages["report"])
    operations = page.locator("#operations")
    # `b` takes the most cycles.
    chosen = operations.locator("[data-chosen]")
    assert chosen.locator("strong").text_content() == "b"
    page.get_by_label("search").fill("FIRST elementwise")
    assert operations.locator("[data-found]").text_content() == "1 of 3 operations"
    assert chosen.text_content().startswith("alayer firstelementwise, forward, ")
    takes, taken = (operations.locator(f"[data-{name}] li") for name in ("takes", "taken"))
    assert takes.all_text_contents() == [
        "input x float32[1472, 64]",
        "variable w float32[1472, 64]",
    ]
    assert taken.all_text_contents() == ["b float32[1472, 64]"]
    taken.get_by_role("button").click()
    assert chosen.locator("strong").text_content() == "b"
    page.locator("#compute-sets tbody").get_by_role("link", name="new").click()
    assert chosen.locator("strong").text_content() == "new"
    page.get_by_label("search").fill("nothing like it")
    assert operations.locator("[data-found]").text_content() == "0 of 3 operations"


def test_light_and_dark_differ(visit, pages):
    colours = {
        scheme: visit(pages["report"], scheme=scheme).evaluate(
            "[getComputedStyle(document.body).backgroundColor, "
            "getComputedStyle(document.body).color]"
        )
        for scheme in ("light", "dark")
    }
    assert colours["light"] == ["rgb(255, 255, 255)", "rgb(28, 31, 36)"]
    assert colours["dark"] == ["rgb(21, 24, 28)", "rgb(230, 232, 235)"]


def test_keys_reach_all_that_can_be_used(visit, pages):
    """Tab after Tab, in the order of the page, and what has the focus is seen to have it."""
    page = visit(pages["pipeline"])
    everything = page.evaluate(
        "() => Array.from(document.querySelectorAll("
        "'a[href], button, select, input, summary, [tabindex=\"0\"]'))"
        ".filter((one) => one.checkVisibility())"
        ".map((one, place) => { one.dataset.place = place; return place; })"
    )
    reached = []
    for _ in everything:
        page.keyboard.press("Tab")
        place, outline = page.evaluate(
            "() => [document.activeElement.dataset.place, "
            "getComputedStyle(document.activeElement).outlineStyle]"
        )
        reached.append(int(place))
        assert outline != "none", place
    assert reached == everything
    assert len(everything) > 50


def test_keys_sort_zoom_and_filter(visit, pages):
    page = visit(pages["pipeline"])
    page.locator("#layers thead button", has_text="parameters").focus()
    page.keyboard.press("Enter")
    heading = page.get_by_role("columnheader", name="parameters")
    assert heading.get_attribute("aria-sort") == "descending"
    page.locator("#trace").get_by_role("button", name="zoom in").focus()
    page.keyboard.press("Space")
    assert page.locator("#trace svg").get_attribute("viewBox") == "2500 0 5000 100"
    for _ in range(20):
        page.keyboard.press("Space")
    # Not nearer than what float32 holds, or 100 cycles.
    width = float(page.locator("#trace svg").get_attribute("viewBox").split()[2])
    cycles = float(page.locator("#trace .timeline").get_attribute("data-cycles"))
    assert width == pytest.approx(max(10, 1e6 / cycles))


def test_the_map_shows_what_lies_on_a_tile(visit, pages):
    page = visit(pages["pipeline"])
    rows = page.locator("#map tbody tr:visible")
    number = rows.count()
    status = page.get_by_role("status")
    assert status.text_content().startswith(f"{number} of {number} values")
    page.get_by_role("button", name="the fullest tile at its fullest").click()
    memory = pipelined().model.memory
    tile = memory.worst_tile % 1472
    assert page.get_by_label("tile", exact=True).input_value() == str(tile)
    size = sum(bytes_ for _, bytes_ in pipelined().layers_of_worst_tile())
    assert 0 < rows.count() < number
    assert f"{size:,} bytes on that tile" in status.text_content()
    page.get_by_role("button", name="all", exact=True).first.click()
    page.wait_for_function(f"document.querySelectorAll('#map tr[hidden]').length === 0 && {number}")
    assert rows.count() == number


def test_a_reader_hears_names_of_pictures_and_fields(visit, pages):
    page = visit(pages["pipeline"])
    for role, name in (
        ("navigation", "Sections"),
        ("group", "What to do next"),
        ("group", "Memory of each tile"),
        ("group", "Memory over time"),
        ("img", "What the IPU does in one step, over time"),
        ("img", "What each IPU of the pipeline does, over time"),
        ("combobox", "IPU"),
        ("spinbutton", "tile"),
        ("combobox", "while"),
        ("table", "Compute sets: "),
    ):
        assert page.get_by_role(role, name=name).count() >= 1, (role, name)


def test_bars_of_a_long_step_are_drawn_where_they_are(visit, tmp_path):
    """Of far more cycles than float32 counts, the last bar ends where the picture does."""
    rows = 1472 * 4096
    long = graph(
        argument("x", rows, 16),
        *(
            op(f"s{k}", "sort", (rows, 16), "x" if k == 0 else f"s{k - 1}", dimensions=(0,))
            for k in range(3)
        ),
    )
    found = report(long, GC200.with_numbers(tile_bytes=10**9))
    assert found.cycles_per_step > 2**25
    found.to_html(tmp_path / "long.html")
    edges = visit(tmp_path / "long.html").evaluate(
        """() => {
          const svg = document.querySelector("#trace svg").getBoundingClientRect();
          const bars = Array.from(document.querySelectorAll("#trace svg rect"));
          const ends = bars.map((one) => one.getBoundingClientRect().right);
          return [svg.left, svg.right, Math.max(...ends)];
        }"""
    )
    assert edges[2] == pytest.approx(edges[1], abs=1)
