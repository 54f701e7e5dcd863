"""The project in examples/ci, as it is and after changes; docs/pytest.md shows what this reads."""

import re
import shutil
import sys

import pytest
from project_imports import PROJECT

# Before a run within this process, which forgets afterwards what it was the first to import.
import ipu_keras_tools.configured_ipus
import ipu_keras_tools.held_reports  # noqa: F401

pytest_plugins = ["pytester"]

PLUGIN = "ipu_keras_tools.pytest_plugin"
BASELINE = "ipu_baselines/test_model/test_training_fits.json"


@pytest.fixture
def project(pytester, monkeypatch):
    """A copy of the project, as the only thing that pytest finds."""
    monkeypatch.delitem(sys.modules, "model", raising=False)  # of tests of commands
    shutil.copytree(PROJECT / "examples" / "ci", pytester.path, dirs_exist_ok=True)
    return pytester.path


def run(pytester, *arguments):
    return pytester.runpytest_inprocess("-p", PLUGIN, "-p", "no:cacheprovider", *arguments)


def widen(project, units):
    source = (project / "model.py").read_text()
    (project / "model.py").write_text(source.replace("UNITS = 256", f"UNITS = {units}"))


def outline(text):
    """The message of a failed budget: its sentences, and of its tables the lines of figures."""
    message = text[text.index("digits.train does not keep") :]
    message = message[: re.search(r"\n[-=]{5,}", message).start()]
    return [line.rstrip() for line in message.splitlines()]


def test_the_budget_is_met(project, pytester):
    result = run(pytester)
    result.assert_outcomes(passed=2)
    # The baseline of the repository is what the model says today.
    again = run(pytester, "--ipu-update", "-k", "fits")
    assert "IPU baselines written" not in again.stdout.str(), (
        "In examples/ci, run: python -m pytest -p ipu_keras_tools.pytest_plugin --ipu-update"
    )


def test_a_wider_layer_breaks_it(project, pytester):
    widen(project, 65536)
    result = run(pytester, "-k", "fits")
    result.assert_outcomes(failed=1, deselected=1)
    lines = outline(result.stdout.str())
    assert lines[0] == (
        "digits.train does not keep ipu_fits(target='bow', max_cycles=420000, max_tile_memory=0.1)"
    )
    assert re.fullmatch(r"- max_tile_memory: .* of the fullest tile, and may be 10.0%", lines[1])
    assert re.fullmatch(r"- max_cycles: a step takes .* cycles, .*% more than 420,000", lines[2])
    text = "\n".join(lines)
    grown = text[text.index("What has grown since the baseline test_training_fits.json:") :]
    # By how much a number has grown, and of which layer.
    assert re.search(r"│ max_tile_bytes +│ +[\d,]+ │ +[\d,]+ │ +\+[\d,]+ │ +\+[\d.]+% │", grown)
    assert re.search(r"│ digits/hidden +│ .* │ +\+[\d.]+% │", grown)
    remedies = grown[grown.index("What would help, by the model:") :].splitlines()
    assert remedies[1].startswith("1. float16: less, and still too much, ")
    # That is what the page about it shows.
    page = (PROJECT / "docs" / "pytest.md").read_text("utf-8")
    assert text in page, f"docs/pytest.md is to show:\n{text}"


def test_the_baseline_is_updated(project, pytester):
    before = (project / BASELINE).read_text()
    widen(project, 512)
    # Within the budget: what has grown shows in the diff of a review.
    result = run(pytester, "--ipu-update", "-k", "fits")
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(["* IPU baselines written *", BASELINE])
    after = (project / BASELINE).read_text()
    changed = set(after.splitlines()) - set(before.splitlines())
    assert any(line.startswith('    "digits/hidden": ') for line in changed)
    assert len(after.splitlines()) == len(before.splitlines())
    run(pytester, "-k", "fits").assert_outcomes(passed=1, deselected=1)
