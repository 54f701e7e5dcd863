"""Templates of pages, and how they write numbers and words."""

from collections.abc import Mapping
from typing import Any

from ipu_keras.advice.durations import in_words
from ipu_keras.report.libraries import needs_report_extra

with needs_report_extra("An HTML report"):
    from jinja2 import Environment, PackageLoader, StrictUndefined, Template


def template_named(name: str) -> Template:
    """Loads a template of this package by the name of its file."""
    environment = Environment(
        loader=PackageLoader("ipu_keras.report"),
        # Names of models and layers come from anywhere, and must not become markup.
        autoescape=True,
        # A misspelt figure must fail in a test, and not leave a hole in a page.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(duration=in_words, number=_number, percent=_percent, words=words_of)
    return environment.get_template(name)


def _number(value: Any) -> str:
    """Groups digits by three; shows mappings as names with numbers."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_number(number)}" for name, number in value.items())
    return f"{value:g}" if value < 1000 else f"{value:,.0f}"


def _percent(share: float) -> str:
    return f"{share:.1%}"


def words_of(name: str) -> str:
    return name.replace("_", " ")
