"""Docstrings as pages show them: with examples as code, and with what members of PopART mean.

Markdown would take the `>>>` of examples for quotations in quotations.
"""

import ast
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


class Meanings(griffe.Extension):
    """Lists what members of PopART's enumerations mean, which stands behind their numbers."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        if cls.docstring and "Enumeration" in map(str, cls.bases):
            cls.docstring.value = "\n".join([cls.docstring.value, "", *meanings(cls)])


def meanings(cls: griffe.Class) -> list[str]:
    """A line for each member of an enumeration that says what it means."""
    values = {name: ast.literal_eval(str(each.value)) for name, each in cls.attributes.items()}
    return [f"* `{name}`: {value[1]}" for name, value in values.items() if isinstance(value, tuple)]


def fenced(docstring: str) -> str:
    """A docstring with its examples in fences."""
    return _EXAMPLE.sub(r"\1```pycon\n\g<0>\n\1```", docstring)
