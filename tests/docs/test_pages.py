"""The programs on pages of the documentation run, and print what the pages show."""

import re

import pytest
from shown_programs import PROJECT, missing, programs, run

DOCS = PROJECT / "docs"
PATHS = [*DOCS.glob("tutorial/*.md"), *DOCS.glob("how-to/*.md"), DOCS / "faq.md", DOCS / "tasks.md"]
PAGES = {
    path.relative_to(DOCS).as_posix(): programs(path.read_text("utf-8")) for path in sorted(PATHS)
}

# What a page may ask its reader to do in one task.
MOST_LINES = 10
MOST_COMMANDS = 3
TASKS = [
    "Train",
    "Profile",
    "Read JSON",
    "Make it fit",
    "Pipeline",
    "Custom loop",
    "CI budget",
    "Port a Keras 2 script",
    "Compare two versions",
    "See why it compiled again",
]


@pytest.fixture(scope="module")
def printed():
    """What the programs of each page print."""
    return dict(zip(PAGES, run(PAGES.values()), strict=True))


@pytest.mark.parametrize(
    ("page", "number"),
    [(page, number) for page, found in PAGES.items() for number in range(len(found))],
)
def test_programs_print_what_is_shown(printed, page, number):
    found = printed[page][number]
    assert found.error is None, f"{found.text}\n{found.error}"
    shown = PAGES[page][number].expected
    assert missing(shown, found.text) == [], "python tests/shown_programs.py prints pages anew"


@pytest.mark.parametrize("page", PAGES)
def test_nothing_that_looks_like_a_program_is_left_out(page):
    """Every block is a program, or what the program directly above it prints."""
    found = PAGES[page]
    assert found
    assert {one.language for one in found} <= {"python", "sh"}
    fences = re.findall(r"^```.*$", (DOCS / page).read_text("utf-8"), re.M)
    assert len(fences) == 2 * (len(found) + sum(bool(one.shown) for one in found))


def test_each_task_is_short():
    text = (DOCS / "tasks.md").read_text("utf-8")
    sections = dict(re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", text, re.M | re.S))
    assert list(sections) == TASKS
    for name, section in sections.items():
        found = programs(section)
        lines = [line for one in found for line in one.code.splitlines() if line.strip()]
        is_python = any(one.language == "python" for one in found)
        assert len(lines) <= (MOST_LINES if is_python else MOST_COMMANDS), name
        assert found[-1].shown, name
