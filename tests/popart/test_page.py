"""docs/popart.md has the tables of what there is."""

import popart_tables


def test_the_page_is_up_to_date():
    text = popart_tables.PAGE.read_text("utf-8")
    assert popart_tables.page(text) == text, "Run python tests/popart_tables.py"
    assert text.count("\n| `") > 190
