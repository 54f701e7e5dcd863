"""The HTML report in a browser: what it shows, what a click does, and that it loads nothing.

Run by `make test-browser`. The browser is Chromium: the program that the environment variable
`CHROMIUM` names, else `chromium`.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import keras
import pytest
import tensorflow as tf
from html_reports import SECTIONS
from html_tree import Element, read_html

from ipu_keras import profile

pytestmark = pytest.mark.browser

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Tests reach no network, whatever page or browser may try; the log says what they tried.
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--net-log-capture-mode=Everything",
    "--enable-logging=stderr",
    "--virtual-time-budget=5000",
    "--window-size=1200,900",
    "--dump-dom",
)
POLICY = re.compile('<meta http-equiv="Content-Security-Policy"[^>]*>')


@dataclass(frozen=True)
class Visit:
    """What a browser made of a page: elements after its scripts ran, requests, messages."""

    page: Element
    requests: frozenset[str]
    messages: list[str]


def requests_of_pages(log: dict) -> Iterator[str]:
    """What pages from files asked the network for: URLs, and hosts that they connect to.

    The browser asks for things of its own, which the log has as well: pages and
    their frames are told from them by where they come from.
    """
    for event in log["events"]:
        found = event.get("params", {})
        keys = ("network_isolation_key", "network_anonymization_key", "initiator")
        origins = [str(found.get(key, "")) for key in keys]
        if any(origin.startswith("file://") for origin in origins):
            yield str(found.get("url") or found.get("host") or found)


@pytest.fixture(scope="module")
def chromium() -> str:
    named = os.environ.get("CHROMIUM", "chromium")
    path = shutil.which(named)
    if path is None:
        pytest.fail(
            f"These tests need Chromium, and there is no program {named!r}. Install it (Debian: "
            "`apt-get install chromium`), or name it in the environment variable CHROMIUM"
        )
    return path


@pytest.fixture
def visit(chromium, tmp_path):
    def run(path: Path) -> Visit:
        log = tmp_path / "net-log.json"
        done = subprocess.run(
            [
                chromium,
                *FLAGS,
                f"--user-data-dir={tmp_path / 'profile'}",
                f"--log-net-log={log}",
                path.as_uri(),
            ],
            capture_output=True,
            check=True,
            encoding="utf-8",
            timeout=120,
        )
        return Visit(
            read_html(done.stdout),
            frozenset(requests_of_pages(json.loads(log.read_text("utf-8")))),
            [line for line in done.stderr.splitlines() if "CONSOLE" in line],
        )

    return run


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


@pytest.fixture
def with_script(resnet50, tmp_path):
    """A copy of the page in which a script runs after the page's own."""

    def write(script: str) -> Path:
        text = resnet50[1].read_text("utf-8")
        assert text.count("</body>") == 1
        path = tmp_path / "copy.html"
        path.write_text(text.replace("</body>", f"<script>{script}</script></body>"), "utf-8")
        return path

    return write


def test_the_page_of_resnet50(visit, resnet50):
    report, path = resnet50
    assert path.stat().st_size < 5e6
    found = visit(path)
    assert found.requests == frozenset()
    assert found.messages == []
    assert found.page.all("h1")[0].text == "resnet50.train on gc200"
    assert [one.attributes["id"] for one in found.page.all("section")] == SECTIONS
    layers = [row[0] for row in found.page.section("layers").table()[1:]]
    assert layers == [row.name for row in report.by("layer")]
    assert "resnet50/conv1_conv" in layers
    # Only the script makes buttons of headings and writes the times.
    assert found.page.section("layers").all("thead")[0].all("button")
    times = [one.text for one in found.page.section("trace").all("ol")[0].all("li")]
    assert (times[0], times[-1]) == ("0.0 µs", f"{report.seconds_per_step * 1e6:.1f} µs")


def test_every_section_is_seen(visit, with_script):
    """Sections follow each other, with height; pictures and tables are as wide as half the page."""
    measure = """
      const sizes = {};
      for (const one of document.querySelectorAll("section, figure svg, .timeline svg")) {
        const box = one.getBoundingClientRect();
        const name = one.closest("section").id + " " + one.tagName.toLowerCase();
        sizes[name] = [box.top, box.bottom, box.width];
      }
      document.body.dataset.sizes = JSON.stringify(sizes);
    """
    (body,) = visit(with_script(measure)).page.all("body")
    sizes = json.loads(body.attributes["data-sizes"])
    end = 0
    for section in SECTIONS:
        top, bottom, width = sizes.pop(f"{section} section")
        assert top >= end
        assert bottom - top > 100
        assert width > 1000
        end = bottom
    assert set(sizes) == {"memory svg", "liveness svg", "trace svg"}
    for top, bottom, width in sizes.values():
        assert bottom - top > 150
        assert width > 600


def test_without_its_policy_the_page_loads_nothing_either(visit, resnet50, tmp_path):
    text, number = POLICY.subn("", resnet50[1].read_text("utf-8"))
    assert number == 1
    path = tmp_path / "free.html"
    path.write_text(text, "utf-8")
    assert visit(path).requests == frozenset()


def test_requests_of_a_page_are_noticed(visit, tmp_path):
    """The tests above could not fail otherwise."""
    path = tmp_path / "page.html"
    path.write_text(
        """<!DOCTYPE html><html><head><title>page</title>
        <link rel="preconnect" href="https://connection.invalid">
        <link rel="stylesheet" href="https://style.invalid/a.css">
        </head><body><img src="http://picture.invalid/a.png">
        <iframe src="https://frame.invalid/"></iframe>
        <script>fetch("https://data.invalid/a").catch(() => {}); missing();</script>
        </body></html>""",
        "utf-8",
    )
    found = visit(path)
    assert found.requests >= {
        "https://style.invalid/a.css",
        "http://picture.invalid/a.png",
        "https://frame.invalid/",
        "https://data.invalid/a",
    }
    assert any("missing is not defined" in message for message in found.messages)


def test_its_policy_stops_requests(visit, with_script):
    """A name that got into the page as a script could still tell nobody."""
    found = visit(with_script('fetch("https://data.invalid/a").catch(() => {})'))
    assert found.requests == frozenset()
    assert any("Content Security Policy" in message for message in found.messages)


def click(section: str, column: str, times: int) -> str:
    return f"""
      {{
        const found = document.querySelectorAll("#{section} thead button");
        const [button] = Array.from(found).filter((one) => one.textContent === "{column}");
        for (let i = 0; i < {times}; i++) button.click();
      }}
    """


@pytest.mark.parametrize(
    ("times", "order", "reverse"), [(1, "descending", True), (2, "ascending", False)]
)
def test_a_click_sorts_by_figures(visit, with_script, resnet50, times, order, reverse):
    section = visit(with_script(click("layers", "exchange", times))).page.section("layers")
    sorted_by = {
        heading.text: heading.attributes.get("aria-sort")
        for heading in section.all("thead")[0].all("th")
    }
    assert {name: by for name, by in sorted_by.items() if by} == {"exchange": order}
    heading, *rows = section.table()
    shown = [int(row[heading.index("exchange")].replace(",", "")) for row in rows]
    expected = [row.exchange_cycles for row in resnet50[0].by("layer")]
    assert shown == sorted(expected, reverse=reverse)
    assert shown != expected


def test_a_click_sorts_by_words(visit, with_script, resnet50):
    """Only one column is sorted by at a time, and the other tables stay as they are."""
    clicks = click("families", "sync", 1) + click("families", "name", 1)
    page = visit(with_script(clicks)).page
    names = [row[0] for row in page.section("families").table()[1:]]
    assert names == sorted(row.name for row in resnet50[0].by("family"))
    headings = page.section("families").all("thead")[0].all("th")
    assert [one.text for one in headings if "aria-sort" in one.attributes] == ["name"]
    layers = [row[0] for row in page.section("layers").table()[1:]]
    assert layers == [row.name for row in resnet50[0].by("layer")]


def test_the_timeline_zooms_and_moves(visit, with_script, resnet50):
    clicks = """
      const button = (one) => document.querySelector(`.controls [data-${one}]`);
      button('zoom="0.5"').click();
      button('zoom="0.5"').click();
      button('move="0.5"').click();
    """
    trace = visit(with_script(clicks)).page.section("trace")
    start, top, width, height = map(float, trace.all("svg")[0].attributes["viewbox"].split())
    # Of 10,000 units, a quarter in the middle, then half of that quarter later.
    assert (start, width) == pytest.approx((5000, 2500))
    assert (top, height) == (0, 100)
    microseconds = resnet50[0].seconds_per_step * 1e6
    times = [one.text for one in trace.all("ol")[0].all("li")]
    assert times[0] == f"{0.5 * microseconds:.1f} µs"
    assert times[-1] == f"{0.75 * microseconds:.1f} µs"
