"""Cells of notebooks, where the libraries of HTML reports are installed."""

from collections.abc import Callable
from typing import Any


def cell(render: Callable[[Any], str]) -> str | None:
    """What a notebook shows; `None` without the libraries, which makes it show the text.

    Args:
        render: Makes it with the module `html`.
    """
    try:
        from ipu_keras.report import html
    except ImportError:
        return None
    return render(html)
