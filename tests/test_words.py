"""Names and docstrings that one reads once: one word for a thing, and texts that say something."""

import ast
import collections
import re
from collections.abc import Iterator

import pytest
from project_imports import PROJECT

SOURCES = sorted(
    path
    for package in ("ipu_keras", "ipu_addons", "ipu_keras_tools")
    for path in (PROJECT / package).rglob("*.py")
)
# The documents name them in several places.
DOCUMENTED = {"AiGraphcoreOpset1", "DeviceConnectionType", "PopnnGRU", "PopnnLSTM"}
SECTIONS = {"Args", "Arguments", "Attributes", "Call arguments", "Raises"}
EMPTY = re.compile(r"(Of|It|Its|They|Them|As of)\b")


@pytest.fixture(scope="module")
def trees():
    return {path.relative_to(PROJECT): ast.parse(path.read_text()) for path in SOURCES}


def test_no_two_classes_have_one_name(trees):
    found = collections.defaultdict(list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{path}:{node.lineno}")
    several = {name: places for name, places in found.items() if len(places) > 1}
    assert {name: places for name, places in several.items() if name not in DOCUMENTED} == {}


def test_no_three_modules_have_one_name(trees):
    found = collections.Counter(path.stem for path in trees if path.stem != "__init__")
    assert [name for name, count in found.items() if count > 2] == []


def entries(docstring: str) -> Iterator[tuple[str, str]]:
    """The entries of a docstring's sections, with their texts in one line each."""
    section, entry = "", ""
    for line in docstring.splitlines():
        if match := re.fullmatch(r"([A-Z][\w ]+):", line):
            section = match[1]
        elif line and not line.startswith("    "):
            section = ""
        elif section in SECTIONS and re.match(r"    [*\w]", line):
            if entry:
                yield tuple(entry.split(":", 1))
            entry = line.strip() if ":" in line else ""
            continue
        elif section in SECTIONS and entry and line.strip():
            entry += f" {line.strip()}"
            continue
        if entry:
            yield tuple(entry.split(":", 1))
        entry = ""
    if entry:
        yield tuple(entry.split(":", 1))


def docstrings(trees) -> Iterator[tuple[str, str]]:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, documented) and (found := ast.get_docstring(node)):
                yield f"{path}:{getattr(node, 'lineno', 1)}", found


def is_said(text: str) -> bool:
    """Whether a text is more than a form that was filled in."""
    return len(text.split()) >= 4 and not EMPTY.match(text.strip())


def test_what_an_entry_is():
    docstring = """Makes one.

    Args:
        first: A sentence that
            goes on.
        second: It.

    Raises:
        ValueError: There is none of it.

    Example:
        not: this
    """
    found = dict(entries(ast.get_docstring(ast.parse(f'"""{docstring}"""'))))
    assert found == {
        "first": " A sentence that goes on.",
        "second": " It.",
        "ValueError": " There is none of it.",
    }
    assert [is_said(text) for text in found.values()] == [True, False, True]


def test_every_entry_says_something(trees):
    found = [
        f"{place}: {name}:{text}"
        for place, docstring in docstrings(trees)
        for name, text in entries(docstring)
        if not is_said(text)
    ]
    assert found == []


def test_no_docstring_begins_as_if_it_went_on(trees):
    firsts = ((place, text.splitlines()[0]) for place, text in docstrings(trees))
    assert [f"{place}: {first}" for place, first in firsts if EMPTY.match(first)] == []
