"""The HTML report in a browser: what it shows, what a click does, and that it loads nothing.

Run by `make test-browser`.
"""

import re

import keras
import pytest
import tensorflow as tf
from html_reports import SECTIONS
from html_tree import read_html

from ipu_keras import profile

pytestmark = pytest.mark.browser

POLICY = re.compile('<meta http-equiv="Content-Security-Policy"[^>]*>')


@pytest.fixture(scope="module")
def resnet50(tmp_path_factory):
    """The report of a training step of ResNet-50 with 4 images at half precision."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float16")
    try:
        model = keras.applications.ResNet50(weights=None)
    finally:
        keras.config.set_dtype_policy(before)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy")
    images = tf.TensorSpec((4, 224, 224, 3), tf.float16)
    report = profile(model, images, tf.TensorSpec((4,), tf.int32))
    path = tmp_path_factory.mktemp("resnet50") / "report.html"
    report.to_html(path)
    return report, path


def section(page, name):
    """What a page has by now under an id, as a tree."""
    return read_html(page.content()).section(name)


def test_the_page_of_resnet50(visit, resnet50):
    report, path = resnet50
    assert path.stat().st_size < 5e6
    page = read_html(visit(path).content())
    assert page.all("h1")[0].text == "resnet50.train on gc200"
    assert [one.attributes["id"] for one in page.all("section")] == SECTIONS
    layers = [row[0] for row in page.section("layers").table()[1:]]
    assert layers == [row.name for row in report.by("layer")]
    assert "resnet50/conv1_conv" in layers
    # Only the script makes buttons of headings and writes the times.
    assert page.section("layers").all("thead")[0].all("button")
    times = [one.text for one in page.section("trace").all("ol")[0].all("li")]
    assert (times[0], times[-1]) == ("0.0 µs", f"{report.seconds_per_step * 1e6:.1f} µs")


def test_every_section_is_seen(visit, resnet50):
    """Sections follow each other, with height; pictures and tables are as wide as half the page."""
    measure = """() => {
      const sizes = {};
      const select = "section, figure svg.broad, .tiles svg, .timeline svg";
      for (const one of document.querySelectorAll(select)) {
        const box = one.getBoundingClientRect();
        const name = one.closest("section").id + " " + one.tagName.toLowerCase();
        sizes[name] = [box.top, box.bottom, box.width];
      }
      return sizes;
    }"""
    sizes = visit(resnet50[1]).evaluate(measure)
    end = 0
    for name in SECTIONS:
        top, bottom, width = sizes.pop(f"{name} section")
        assert top >= end
        assert bottom - top > 100
        assert width > 1000
        end = bottom
    assert set(sizes) == {
        f"{name} svg" for name in ("memory", "values", "liveness", "trace", "roofline")
    }
    for top, bottom, width in sizes.values():
        assert bottom - top > 150
        assert width > 600


def test_without_its_policy_the_page_loads_nothing_either(visit, resnet50, tmp_path):
    text, number = POLICY.subn("", resnet50[1].read_text("utf-8"))
    assert number == 1
    path = tmp_path / "free.html"
    path.write_text(text, "utf-8")
    visit(path)


def test_requests_of_a_page_are_noticed(visit, tmp_path):
    """The tests above could not fail otherwise."""
    path = tmp_path / "page.html"
    path.write_text(
        """<!DOCTYPE html><html><head><title>page</title>
        <link rel="stylesheet" href="https://style.invalid/a.css">
        </head><body><img src="http://picture.invalid/a.png">
        <iframe src="https://frame.invalid/"></iframe>
        <script>fetch("https://data.invalid/a").catch(() => {}); missing();</script>
        </body></html>""",
        "utf-8",
    )
    visit(path).wait_for_load_state("networkidle")
    assert set(visit.requests) == {
        "style.invalid:443",
        "http://picture.invalid/a.png",
        "frame.invalid:443",
        "data.invalid:443",
    }
    assert any("missing is not defined" in message for message in visit.messages)
    visit.requests.clear()
    visit.messages.clear()


def test_its_policy_stops_requests(visit, resnet50):
    """A name that got into the page as a script could still tell nobody."""
    page = visit(resnet50[1])
    page.evaluate('fetch("https://data.invalid/a").catch(() => {})')
    assert any("Content Security Policy" in message for message in visit.messages)
    visit.messages.clear()


def click(page, section, column, times=1):
    button = page.locator(f"#{section} thead button").get_by_text(column, exact=True)
    for _ in range(times):
        button.click()


@pytest.mark.parametrize(
    ("times", "order", "reverse"), [(1, "descending", True), (2, "ascending", False)]
)
def test_a_click_sorts_by_figures(visit, resnet50, times, order, reverse):
    page = visit(resnet50[1])
    click(page, "layers", "exchange", times)
    layers = section(page, "layers")
    sorted_by = {
        heading.text: heading.attributes.get("aria-sort")
        for heading in layers.all("thead")[0].all("th")
    }
    assert {name: by for name, by in sorted_by.items() if by} == {"exchange": order}
    heading, *rows = layers.table()
    shown = [int(row[heading.index("exchange")].replace(",", "")) for row in rows]
    expected = [row.exchange_cycles for row in resnet50[0].by("layer")]
    assert shown == sorted(expected, reverse=reverse)
    assert shown != expected


def test_a_click_sorts_by_words(visit, resnet50):
    """Only one column is sorted by at a time, and the other tables stay as they are."""
    page = visit(resnet50[1])
    click(page, "families", "sync")
    click(page, "families", "name")
    families = section(page, "families")
    names = [row[0] for row in families.table()[1:]]
    assert names == sorted(row.name for row in resnet50[0].by("family"))
    headings = families.all("thead")[0].all("th")
    assert [one.text for one in headings if "aria-sort" in one.attributes] == ["name"]
    layers = [row[0] for row in section(page, "layers").table()[1:]]
    assert layers == [row.name for row in resnet50[0].by("layer")]


def test_the_timeline_zooms_and_moves(visit, resnet50):
    page = visit(resnet50[1])
    for change in ('zoom="0.5"', 'zoom="0.5"', 'move="0.5"'):
        page.locator(f".controls [data-{change}]").click()
    trace = section(page, "trace")
    start, top, width, height = map(float, trace.all("svg")[0].attributes["viewbox"].split())
    # Of 10,000 units, a quarter in the middle, then half of that quarter later.
    assert (start, width) == pytest.approx((5000, 2500))
    assert (top, height) == (0, 100)
    microseconds = resnet50[0].seconds_per_step * 1e6
    times = [one.text for one in trace.all("ol")[0].all("li")]
    assert times[0] == f"{0.5 * microseconds:.1f} µs"
    assert times[-1] == f"{0.75 * microseconds:.1f} µs"
