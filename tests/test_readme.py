"""The README's programs run, and print what it says that they print."""

import re

import pytest
from shown_programs import PROJECT, missing, programs, run

README = (PROJECT / "README.md").read_text(encoding="utf-8")

PROGRAMS = [one for one in programs(README) if one.language == "python"]


@pytest.fixture(scope="module")
def printed():
    """What each program prints."""
    found = [one for page in run([[one] for one in PROGRAMS]) for one in page]
    assert [one.error for one in found if one.error] == []
    return [one.text for one in found]


def test_there_are_programs():
    assert [bool(one.expected) for one in PROGRAMS] == [True, True, False]


def test_it_is_short():
    assert len(README.splitlines()) <= 200


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_programs_print_what_is_shown(printed, number):
    assert missing(PROGRAMS[number].expected, printed[number]) == []


def test_every_example_and_benchmark_that_is_named_exists():
    pages = [README, *(page.read_text("utf-8") for page in (PROJECT / "docs").rglob("*.md"))]
    named = {
        name for page in pages for name in re.findall(r"(?:examples|benchmarks)/\w+\.py", page)
    }
    assert len(named) > 5
    assert not [name for name in named if not (PROJECT / name).is_file()]
