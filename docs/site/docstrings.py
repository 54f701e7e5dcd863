"""Docstrings as pages show them: with examples as code, and with what members of PopART mean.

Markdown would take the `>>>` of examples for quotations in quotations. Functions that are made
from a table have no source to be read.
"""

import ast
import enum
import inspect
import re
from typing import Any

import griffe

from ipu_keras.settings.config_setters import SETTERS

# From the first prompt to an empty line.
_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n.*\S.*)*", re.M)


class Examples(griffe.Extension):
    """Fences the examples of all docstrings that a page shows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)


class Setters(griffe.Extension):
    """Gives `ipu_keras.utils` the functions that it makes of the table of setters."""

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        if mod.path != "ipu_keras.utils":
            return
        for setter in SETTERS:
            parameters = [
                griffe.Parameter(
                    each.name,
                    annotation=inspect.formatannotation(each.annotation),
                    kind=griffe.ParameterKind.positional_or_keyword,
                    default=None if each.default is each.empty else _shown(each.default),
                )
                for each in setter.signature.parameters.values()
            ]
            function = griffe.Function(setter.name, parameters=griffe.Parameters(*parameters))
            function.docstring = griffe.Docstring(fenced(setter.docstring), parent=function)
            mod.set_member(setter.name, function)


def _shown(default: Any) -> str:
    return str(default) if isinstance(default, enum.Enum) else repr(default)


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
