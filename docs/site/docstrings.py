"""Examples of docstrings as code: Markdown would take their `>>>` for quotations in quotations."""

import re
from typing import Any

import griffe

# From the first prompt to an empty line.
_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n.*\S.*)*", re.M)


class Examples(griffe.Extension):
    """Fences the examples of all docstrings that a page shows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    """A docstring with its examples in fences."""
    return _EXAMPLE.sub(r"\1```pycon\n\g<0>\n\1```", docstring)
