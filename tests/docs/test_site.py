"""The site builds without a warning, and asks for nothing from the network."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import reference
from html_tree import read_html
from shown_programs import PROJECT
from site_build import build, pages

# What a browser loads without being asked to.
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Its folder."""
    folder = tmp_path_factory.mktemp("site")
    said = build(folder)
    # Strictness is no use where warnings are not seen.
    assert "INFO    -  Documentation built" in said
    assert "WARNING -" not in said
    return folder


class _Tags(HTMLParser):
    """Collects what a page has, closed or not, as the theme leaves open what HTML allows."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, {name: value or "" for name, value in attrs}))


@pytest.fixture(scope="module")
def tags(site):
    """By page, the names and attributes of all tags."""
    found = {}
    for path in pages(site):
        reader = _Tags()
        reader.feed(path.read_text("utf-8"))
        found[path] = reader.found
    return found


def test_every_page_of_the_documentation_is_in_it(site):
    sources = {path.relative_to(PROJECT / "docs") for path in (PROJECT / "docs").rglob("*.md")}
    built = {path.relative_to(site).with_suffix(".md") for path in pages(site)}
    notebooks = {Path("notebooks") / f"{path.stem}.md" for path in notebook_paths()}
    modules = {Path("reference") / reference.file_name(name) for name in reference.modules()}
    assert built == sources | notebooks | modules


def notebook_paths() -> list[Path]:
    return sorted((PROJECT / "docs" / "notebooks").glob("*.ipynb"))


def test_nothing_is_loaded_from_the_network(site, tags):
    for path, found in tags.items():
        for tag, attributes in found:
            loaded = attributes.get(LOADS.get(tag, ""), "")
            assert not loaded.startswith(("http:", "https:", "//")), path
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", path.read_text("utf-8")), path


def test_links_lead_to_pages_and_headings_that_exist(tags):
    ids = {path: {one.get("id") for _, one in found} for path, found in tags.items()}
    for path, found in tags.items():
        for link in (attributes.get("href", "") for tag, attributes in found if tag == "a"):
            target, _, heading = link.partition("#")
            if ":" in target or not link:
                continue
            file = (path.parent / target).resolve() if target else path
            file = file / "index.html" if file.is_dir() else file
            assert file.is_file(), f"{path}: {link}"
            assert heading in ("", "__skip") or heading in ids[file], f"{path}: {link}"


def test_the_reference_shows_docstrings(site):
    text = read_html((site / "reference" / "ipu.ipu_strategy.html").read_text("utf-8")).text
    assert "tensorflow.python.ipu.ipu_strategy.IPUStrategy works" in text
    assert "experimental_run_v2" in text
    whole = read_html((site / "reference" / "ipu.config.html").read_text("utf-8")).text
    assert "tensorflow.python.ipu.config.IPUConfig works in part" in whole


def test_examples_of_docstrings_are_code(site):
    page = read_html((site / "reference" / "ipu.dataset_benchmark.html").read_text("utf-8"))
    assert page.all("blockquote") == []
    assert ">>> dataset = tf . data" in " ".join(one.text for one in page.all("code"))


def test_what_has_two_names_is_described_once(site):
    names = "ipu_keras.popart.builder.Builder"
    first = (site / "reference" / "popart.html").read_text("utf-8")
    other = (site / "reference" / "popart.builder.html").read_text("utf-8")
    assert first.count(f'id="{names}"') == 1
    assert f'id="{names}"' not in other
    assert f'href="popart.html#{names}"' in other


def test_notebooks_show_their_pictures(site):
    page = read_html((site / "notebooks" / "transformer_on_four_ipus.html").read_text("utf-8"))
    assert [one.all("figcaption")[0].text.split()[0] for one in page.all("figure")] == [
        "Memory",
        "Memory",
        "Grouped",
    ]
