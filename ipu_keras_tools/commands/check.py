"""The command `ipu-keras check`, which reads scripts without running them."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from ipu_keras.report.text import PlainTable, rendered
from ipu_keras.store.atomic_files import read_whole
from ipu_keras_tools.checks.findings import PARTLY, WORKS, Findings
from ipu_keras_tools.checks.parsing import MOST_BYTES
from ipu_keras_tools.checks.scripts import Scripts
from ipu_keras_tools.files import read_named
from ipu_keras_tools.results import UsageError, print_result, printable_lines


def run(given: argparse.Namespace) -> int:
    """Prints what was found; returns 1 if a script will fail."""
    scripts = Scripts(is_tensorflow_1=given.tf1)
    for path in map(Path, given.paths):
        _read(path, scripts)
    found = scripts.findings()
    plain = [{**asdict(one), "will_run": one.will_run} for one in found]
    print_result(given, plain, "\n".join(_text(found)))
    return 0 if all(one.will_run for one in found) else 1


def _read(path: Path, scripts: Scripts) -> None:
    if not path.is_dir():
        source = read_named(path, MOST_BYTES)
        try:
            scripts.read(path, source)
        except SyntaxError as error:
            raise UsageError(f"{path} is no Python: {error}") from error
        return
    found = sorted(path.rglob("*.py"))
    if not found:
        print(f"warning: {printable_lines(str(path))} has no script (*.py)", file=sys.stderr)
    for one in found:
        try:
            source = read_whole(one, MOST_BYTES)
        except OSError as error:
            said = printable_lines(f"{one} is left out: {error.strerror or error}")
            print(f"warning: {said}", file=sys.stderr)
            continue
        # A script of Python 2, for example. In a folder, which nobody has named file by file, it
        # does not keep the others from being read; its findings say what it is.
        with suppress(SyntaxError):
            scripts.read(one, source)


def _notes(found: Findings) -> Iterator[str]:
    """Says each thing without an effect once, with all its places."""
    places: dict[str, list[str]] = {}
    for note in found.notes:
        what = f"`{note.argument}` of `{note.name}`" if note.argument else f"`{note.name}`"
        said = f"{what} has no effect here: {note.why}"
        places.setdefault(said, []).append(f"{note.line}:{note.column}")
    for said, (first, *others) in places.items():
        also = f" (and at {', '.join(others)})" if others else ""
        yield f"{found.path}:{first}: note: {said}{also}"


def _text(found: Sequence[Findings]) -> Iterator[str]:
    for one in found:
        for problem in one.problems:
            yield f"{one.path}:{problem.line}:{problem.column}: {problem.error}: {problem.said}"
            if problem.instead:
                yield f"    {problem.instead}"
        yield from _notes(one)
    uses = [use for one in found for use in one.names]
    rows = {
        (use.name, use.state, use.why)
        for use in sorted(uses, key=lambda use: (use.state, use.name))
        if use.state != WORKS
    }
    if rows:
        table = PlainTable(
            title="Names of the documents that do not work, or not fully",
            columns=("name", "state", "why"),
            rows=tuple(sorted(rows)),
            words=("state", "why"),
        )
        yield rendered(table).rstrip()
    names: dict[str, set[str]] = {state: set() for state in (WORKS, PARTLY)}
    for use in uses:
        names[use.state].add(use.name)
    failing = sum(not one.will_run for one in found)
    problems = sum(len(one.problems) for one in found)
    notes = sum(len(one.notes) for one in found)
    yield (
        f"{failing} of {len(found)} will fail; reasons: {problems}; notes: {notes}; "
        f"IPU names that work: {len(names[WORKS])}, in part: {len(names[PARTLY])}"
    )
