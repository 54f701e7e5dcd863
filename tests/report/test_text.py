"""Paragraphs and tables as plain text."""

from rich.table import Table
from rich.text import Text

from ipu_keras.report.text import PlainTable, rendered

NAMES = ("[red]hi[/red]", "[/x]", ":fire:", "a\\[b]", "[link=x]y")


def test_names_are_no_markup():
    for name in NAMES:
        assert rendered(name, Text(name)) == f"{name}\n" * 2
        table = Table(name, title=name, show_footer=True)
        table.add_column(name, footer=name)
        table.add_row(name, name)
        assert rendered(table).count(name) == 6


def test_only_texts_are_never_wrapped():
    words = " ".join(["words"] * 50)
    assert rendered(Text(words)) == f"{words}\n"
    lines = rendered(words).splitlines()
    assert [len(line) <= 110 for line in lines] == [True] * 3
    assert " ".join(line.strip() for line in lines) == words


def test_plain_tables():
    table = PlainTable(title="[b]", columns=("name", "size"), rows=(("[x]", "1"), ("y" * 200, "2")))
    title, drawn = table.parts()
    assert title == "[b]"
    lines = [line.split("│")[1:-1] for line in rendered(drawn).splitlines() if "│" in line]
    assert [cell.strip() for cell in lines[0]] == ["[x]", "1"]
    # A long name is whole, on several lines.
    assert "".join(name.strip() for name, _ in lines[1:]) == "y" * 200
    assert lines[1][1] == "    2 "
    assert list(PlainTable(title="none", columns=("name",), rows=()).parts()) == ["none"]
