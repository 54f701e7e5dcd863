"""Cells of notebooks, where the libraries of HTML reports are installed."""

from collections.abc import Callable
from typing import Any


def cell(render: Callable[[Any], str]) -> str | None:
    """Returns what a notebook shows; `None`, after which it shows the text, without the libraries.

    Args:
        render: A function that makes the cell with the module `html`.
    """
    try:
        from ipu_keras.report import html
    except ImportError:
        return None
    return render(html)
