"""The site in a browser, from its folder: pages, the search, and axe-core's rules.

Run by `make test-browser`. Links and anchors are held by test_site.py, without a browser.
"""

import pytest
from browser import LOOKS, violations
from site_build import build, pages

pytestmark = pytest.mark.browser

# One of each kind: text, programs with tables, pictures, options, docstrings, a notebook.
KINDS = [
    "index",
    "tutorial/pipeline-it",
    "architecture",
    "popart",
    "reference/ipu.config",
    "notebooks/first_fit",
]
_WRONG = """() => ({
  unknown: Array.from(document.querySelectorAll("*"))
    .filter((one) => one instanceof HTMLUnknownElement).map((one) => one.outerHTML.slice(0, 80)),
  width: document.documentElement.scrollWidth - innerWidth,
})"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    build(folder)
    return folder


def test_every_page_opens(visit, site):
    """Nothing is asked of the network or said on the console, and all words are on the page."""
    found = pages(site)
    assert len(found) > 80
    for path in found:
        page = visit(path)
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate(_WRONG) == {"unknown": [], "width": 0}, (path, width)
        assert visit.messages == visit.requests == [], path
        visit.close()


def test_what_is_wrong_would_be_found(visit, tmp_path):
    """The test above could not fail otherwise."""
    path = tmp_path / "page.html"
    path.write_text(
        "<!DOCTYPE html><title>page</title><p>{<A.b: 0>}</p><p style='width: 2000px'>wide</p>",
        "utf-8",
    )
    assert visit(path).evaluate(_WRONG) == {"unknown": ['<a.b: 0="">}</a.b:>'], "width": 728}


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_axe_finds_nothing(visit, site, width, scheme):
    for kind in KINDS:
        assert violations(visit(site / f"{kind}.html", width, scheme)) == {}, kind


def test_the_search_finds_pages_without_a_server(visit, site):
    page = visit(site / "tutorial" / "first-fit.html")
    page.get_by_role("textbox", name="Search").click()
    page.keyboard.type("stochastic rounding")
    results = page.locator(".md-search-result__link")
    results.first.wait_for()
    assert "matching documents" in page.locator(".md-search-result__meta").text_content()
    results.filter(has_text="stochastic").first.click()
    page.wait_for_url(lambda url: "first-fit" not in url)
    assert "stochastic" in page.locator("article").text_content().lower()


def test_a_flowchart_is_a_picture_with_words(visit, site):
    page = visit(site / "architecture.html")
    charts = page.get_by_role("img", name="leads to")
    assert charts.count() == 2
    for number in range(2):
        box = charts.nth(number).bounding_box()
        assert box["height"] > 300
        assert box["x"] >= 0
        assert box["x"] + box["width"] < 1280
