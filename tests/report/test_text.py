"""Paragraphs and tables as plain text."""

import doctest
import io
import sys

from rich.text import Text

from ipu_keras.report import text
from ipu_keras.report.text import PlainTable, rendered

NAMES = ("[red]hi[/red]", "[/x]", ":fire:", "a\\[b]", "[link=x]y")


def cells(text):
    """The cells of each line of a table, also of its headings."""
    lines = (line.replace("┃", "│").split("│")[1:-1] for line in text.splitlines())
    return [[cell.strip() for cell in line] for line in lines if line]


def test_names_are_no_markup():
    for name in NAMES:
        assert rendered(name, Text(name)) == f"{name}\n" * 2
        table = PlainTable(title=name, columns=(name,), rows=((name,),), footer=(name,))
        assert rendered(table).count(name) == 4


def test_examples():
    assert doctest.testmod(text).failed == 0


def test_terminals_obey_no_name():
    name = "\x1b[31mred\x9b\n\u202e é"
    shown = r"\x1b[31mred\x9b\n\u202e é"
    table = PlainTable(title=name, columns=(name,), rows=((name,),), footer=(name,))
    assert rendered(name, table).count(shown) == 5


def test_terminals_with_few_characters(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    drawn = rendered(PlainTable(title="é", columns=("name",), rows=(("\u202eü",),)))
    assert drawn.splitlines() == [
        r"\xe9",
        "+------------+",
        "| name       |",
        "|------------|",
        r"| \u202e\xfc |",
        "+------------+",
    ]


def test_only_texts_are_never_wrapped():
    words = " ".join(["words"] * 50)
    assert rendered(Text(words)) == f"{words}\n"
    lines = rendered(words).splitlines()
    assert [len(line) <= 80 for line in lines] == [True] * 4
    assert " ".join(line.strip() for line in lines) == words


def test_a_long_name_is_whole_on_several_lines():
    rows = ("[x]", "1"), ("y" * 200, "2")
    title, *_ = rendered(PlainTable(title="[b]", columns=("name", "size"), rows=rows)).splitlines()
    found = cells(rendered(PlainTable(title="[b]", columns=("name", "size"), rows=rows)))
    assert title == "[b]"
    assert found[:2] == [["name", "size"], ["[x]", "1"]]
    assert "".join(name for name, _ in found[2:]) == "y" * 200
    assert found[2][1] == "2"
    assert rendered(PlainTable(title="none", columns=("name",), rows=())) == "none\n"


def numbers(count, digits):
    headings = tuple(f"of column {k}" for k in range(count))
    cells = tuple(str(k) * digits for k in range(count))
    return PlainTable(
        title="numbers",
        columns=("name", *headings),
        rows=(("first", *cells),),
        footer=("all", *cells),
    )


def test_where_it_is_narrow_headings_are_broken_and_numbers_are_not():
    assert cells(rendered(numbers(4, 9)))[0] == ["name", *(f"of column {k}" for k in range(4))]
    text = rendered(numbers(6, 8))
    assert ("of column 0" in text, "of column 5" in text, "column 5" in text) == (True, False, True)
    assert cells(text)[-1] == ["all", *(str(k) * 8 for k in range(6))]


def test_where_it_is_narrower_cells_are_closer():
    assert "│ all " in rendered(numbers(6, 8))
    text = rendered(numbers(6, 10))
    assert "│all  │ 0000000000│ 1111111111│" in text
    assert cells(text)[0] == ["name", *(f"of column {k}" for k in range(6))]


def test_what_does_not_fit_goes_into_further_tables_of_as_many_columns():
    found = [line for line in cells(rendered(numbers(7, 12))) if line[0] == "all"]
    assert found == [
        ["all", *(str(k) * 12 for k in range(4))],
        ["all", *(str(k) * 12 for k in range(4, 7))],
    ]


def test_words_share_what_is_left():
    columns, words = ("name", "state", "why"), ("state", "why")
    row = "a_name", "works", "because " * 20
    text = rendered(PlainTable(title="t", columns=columns, rows=(row,), words=words))
    assert cells(text)[1] == ["a_name", "works", " ".join(["because"] * 7)]
    assert max(map(len, text.splitlines())) == 80
