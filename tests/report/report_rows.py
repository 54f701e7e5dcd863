"""Rows of reports, made by hand."""

from ipu_keras.report.rows import Row


def row(name, *, compute=0, exchange=0, sync=0, layer="", family="elementwise", **others):
    """A row with these cycles; numbers that are not given are 0."""
    numbers = {"flops": 0, "exchange_bytes": 0, "temporary_bytes": 0, "repeat": 1}
    fields = {"backward": False, "confidence": "derived", **numbers, **others}
    return Row(
        name=name,
        family=family,
        layer=layer,
        compute_cycles=compute,
        exchange_cycles=exchange,
        sync_cycles=sync,
        **fields,
    )


def cells(text):
    """The cells of each line of a table, but those of its headings."""
    lines = (line.split("│")[1:-1] for line in text.splitlines())
    return [[cell.strip() for cell in line] for line in lines if line]
