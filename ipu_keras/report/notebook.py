"""Cells of notebooks, where the libraries of HTML reports are installed."""

from collections.abc import Sequence

from ipu_keras.report.text import PlainTable


def tables_cell(title: str, tables: Sequence[PlainTable]) -> str | None:
    """Returns tables below a heading as a part of a page; of an empty table, only the title.

    The result is `None`, after which a notebook shows the text, without the libraries.
    """
    try:
        from ipu_keras.report.html_templates import template_named
    except ImportError:
        return None
    return template_named("notebook_tables.html.j2").render(title=title, tables=tables)
