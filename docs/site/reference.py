"""The pages of the reference: which documented names there are, and what they do.

`python docs/site/reference.py` writes the table of docs/reference/index.md, and that of errors into
docs/explanation/cost-model.md.
"""

import importlib
import inspect
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
# What the tables are made from besides the package.
sys.path.extend(str(DOCS.parent / folder) for folder in ("tests", "benchmarks"))


from ipu_keras._aliases import real_name  # noqa: E402
from ipu_keras._documented_names import documented_names  # noqa: E402
from ipu_keras_tools.checks.without_effect import lacks  # noqa: E402

_LONG = "tensorflow.python.ipu"
STATES = ("works", "partly")


@dataclass(frozen=True)
class Name:
    """A documented name.

    Args:
        name: It, as documents have it.
        found: What it stands for, which may be `None`.
        state: One of `STATES`.
        lacks: What has no effect, in words of the docstrings; only if it works in part.
    """

    name: str
    found: Any
    state: str
    lacks: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """Of the name."""
        return self.name.rpartition(".")[0]

    @property
    def attribute(self) -> str:
        """The name in its module."""
        return self.name.rpartition(".")[2]

    @property
    def source(self) -> str:
        """Where it is defined, as tools find it that read sources."""
        if inspect.isclass(self.found) or inspect.isroutine(self.found):
            found = inspect.unwrap(self.found)
            return f"{found.__module__}.{found.__qualname__}"
        return real_name(self.name) or self.name


@cache
def names() -> tuple[Name, ...]:
    """All documented names, each by its shortest one; sorted."""
    taken: dict[str, Name] = {}
    for name in sorted(documented_names(), key=lambda one: (len(one), one)):
        # Each operation and optimizer has two homes, and needs one page.
        short = re.sub(rf"^{_LONG}\.(ops|optimizers)\.(\w+)\.(\w+)$", rf"{_LONG}.\2.\3", name)
        taken.setdefault(short, _name(short))
    return tuple(sorted(taken.values(), key=lambda one: one.name))


def _name(name: str) -> Name:
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    idle = tuple(lacks(name, found))
    return Name(name, found, "partly" if idle else "works", idle)


def modules() -> dict[str, list[Name]]:
    """The names of each documented module."""
    found = defaultdict(list)
    for one in names():
        found[one.module].append(one)
    return dict(found)


def short(module: str) -> str:
    """A module as scripts call it that say `from tensorflow.python import ipu`."""
    return re.sub(rf"^{re.escape(_LONG)}", "ipu", module)


def table() -> str:
    """Modules, their names by state, and what lacks, in Markdown."""
    lines = ["| module | works | partly |", "|---|---|---|"]
    for module, members in modules().items():
        cells = (
            ", ".join(f"`{one.attribute}`" for one in members if one.state == state)
            for state in STATES
        )
        lines.append(f"| `{short(module)}` | {' | '.join(cells)} |")
    numbers = [sum(one.state == state for one in names()) for state in STATES]
    lines.append(f"| all: {len(names())} | {' | '.join(map(str, numbers))} |")
    lines += ["", "| name | what has no effect |", "|---|---|"]
    for one in names():
        lines += [f"| `{short(one.name)}` | {lack} |" for lack in one.lacks]
    return "\n".join(lines) + "\n"


def page(module: str) -> str:
    """The page of a module, for mkdocstrings.

    Args:
        module: Its documented name.
    """
    members = modules()[module]
    lines = [f"# {short(module)}", "", "| name | state |", "|---|---|"]
    for one in members:
        first = _first_names().get(one.source, one)
        other = "" if first is one else f": [`{first.name}`][{one.source}]"
        lines.append(f"| `{one.name}` | {_IN_WORDS[one.state]}{other} |")
    for one in members:
        if _first_names().get(one.source) is one:
            lines += ["", f"::: {one.source}", "    options:", f"      heading: {one.attribute}"]
    return "\n".join(lines) + "\n"


_IN_WORDS = {
    "works": "works",
    "partly": "works in part: something that it takes has no effect",
}


@cache
def _first_names() -> dict[str, Name]:
    """What exists, by its source: some have several names, of which the first one has the text."""
    found: dict[str, Name] = {}
    for one in names():
        if one.found is not None:
            found.setdefault(one.source, one)
    return found


def file_name(module: str) -> str:
    """Of the page of a module, within the reference."""
    return f"{short(module)}.md"


def with_table(text: str, name: str, found: str) -> str:
    """A page with a table as it is now.

    Args:
        text: The page.
        name: Of the table, in the comments around it.
        found: The table.
    """
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = text.partition(start)
    return before + start + "\n" + found + "\n" + end + rest.partition(end)[2]


def tables() -> dict[Path, tuple[str, str]]:
    """Pages that hold a table, with its name and text."""
    import fidelity

    from ipu_keras.report.error_bands import error_bands

    bands = fidelity.markdown(error_bands())
    return {
        DOCS / "reference" / "index.md": ("names", table()),
        DOCS / "explanation" / "cost-model.md": ("errors", bands),
    }


if __name__ == "__main__":
    for path, (name, found) in tables().items():
        path.write_text(with_table(path.read_text("utf-8"), name, found), "utf-8")
