"""Scripts for Keras 2 IPU code: what fails in them is named, and nothing else.

A comment `# now: ...` says that the line below it fails, and what to write in its place. That it
is so, is tried: with all of these lines replaced a script runs, and with all but one it fails at
that one.
"""

import re
import traceback
import warnings
from pathlib import Path

import keras
import pytest

from ipu_keras.machine.system import SYSTEM
from ipu_keras_tools.checks.reading import findings_of

FOLDER = Path(__file__).parents[1] / "keras_2_scripts"
SCRIPTS = sorted(FOLDER.glob("*.py"))
EXAMPLES = Path(__file__).parents[3] / "examples"


def failing(path):
    """By the number of a line that fails, what to write in its place."""
    lines = path.read_text().splitlines()
    return {
        number + 1: re.match(r"\s*", line)[0] + line.partition("# now: ")[2]
        for number, line in enumerate(lines, 1)
        if line.lstrip().startswith("# now: ")
    }


CASES = [(path, line) for path in SCRIPTS for line in failing(path)]


def ported(path, keep=None):
    """The source with what is to be written now, but for one line."""
    lines = path.read_text().splitlines()
    for number, instead in failing(path).items():
        if number != keep:
            lines[number - 1] = instead
    return "\n".join(lines)


def run(path, source):
    """Runs a source as that of a script; returns the line and the error at which it ends."""
    SYSTEM.reset()
    keras.backend.clear_session()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(source, str(path), "exec"), {"__name__": "__main__"})
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        return [frame.lineno for frame in frames if frame.filename == str(path)], error
    finally:
        SYSTEM.reset()
    return [], None


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_they_are_twelve():
    assert len(SCRIPTS) == 12
    assert len(CASES) >= 30


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_all_that_fails_is_named_and_nothing_else(path):
    found = findings_of(path.read_text(), str(path))
    assert [one.line for one in found.problems] == list(failing(path))
    assert all(one.instead for one in found.problems if "is documented" not in one.said)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_what_is_written_instead_runs(path):
    assert run(path, ported(path)) == ([], None)
    assert findings_of(ported(path), str(path)).problems == ()


@pytest.mark.parametrize(("path", "line"), CASES, ids=lambda one: getattr(one, "stem", one))
def test_each_line_fails_as_it_is_said(path, line):
    lines, error = run(path, ported(path, keep=line))
    [problem] = [one for one in findings_of(path.read_text(), "").problems if one.line == line]
    assert line in lines
    assert type(error).__name__ == problem.error
    # Addresses and values that are not known before are left out.
    said = re.sub(r"^'\w+' object", "", problem.said)
    beginning = re.split(r"\{|0x|<tensorflow", said)[0]
    assert beginning in " ".join(str(error).split())


def test_examples_will_run():
    for path in sorted(EXAMPLES.rglob("*.py")):
        found = findings_of(path.read_text(), str(path))
        assert found.problems == ()
