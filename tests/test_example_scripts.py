"""How examples are run: by themselves with `--help`, and all of them by one command."""

import ast
import importlib
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
MODULES = {"digits_data.py", "script_arguments.py"}
SCRIPTS = sorted(path for path in EXAMPLES.glob("*.py") if path.name not in MODULES)

# Runs a script where nothing that takes seconds can be imported.
LIGHTLY = """
import runpy, sys
for heavy in ("tensorflow", "keras", "numpy", "sklearn", "onnx", "popart", "ipu_keras"):
    sys.modules[heavy] = None
script = sys.argv[1]
sys.argv = sys.argv[1:]
sys.path.insert(0, script.rpartition("/")[0])
runpy.run_path(script, run_name="__main__")
"""


def light(script, *arguments):
    """Runs a script that way."""
    return subprocess.run(
        [sys.executable, "-c", LIGHTLY, script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "100"},
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help_says_what_it_shows_and_imports_nothing_heavy(script):
    done = light(script, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: {script.name} [-h]")
    assert ast.get_docstring(ast.parse(script.read_text("utf-8"))) in done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_unknown_options_are_refused_before_anything_is_done(script):
    done = light(script, "--epoch-s", "3")
    assert done.returncode == 2
    assert f"{script.name}: error: " in done.stderr


@pytest.mark.parametrize("given", ["0", "-1", "1.5", "many"])
def test_counts_begin_with_one(given):
    done = light(EXAMPLES / "session_training.py", f"--epochs={given}")
    assert done.returncode == 2
    assert f"argument --epochs: must be a number from 1 on. Received: '{given}'" in done.stderr


@pytest.fixture
def module(monkeypatch):
    """The module with the arguments of scripts."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("script_arguments")


def test_modules_that_are_imported_have_their_defaults(module, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["pytest", "--epochs", "3"])
    options = {"epochs": (15, "passes"), "file": ("a.onnx", "where to")}
    assert vars(module.script_arguments("a_module", None, **options)) == {
        "epochs": 15,
        "file": "a.onnx",
    }
    assert module.script_arguments("__main__", None, **options).epochs == 3


@pytest.fixture
def run_all():
    """What is in the script that runs the others."""
    return runpy.run_path(str(EXAMPLES / "run_all.py"))


def test_one_command_knows_all_scripts(run_all, capsys):
    assert run_all["main"](["--list"]) == 0
    expected = [path.name for path in SCRIPTS if path.name != "run_all.py"]
    assert len(expected) >= 28
    assert capsys.readouterr().out.split() == expected


def test_it_refuses_names_of_no_script(run_all, capsys):
    with pytest.raises(SystemExit):
        run_all["main"](["digits.py", "digit.py"])
    assert "error: no such script: digit.py; --list names them" in capsys.readouterr().err


def test_it_leaves_files_of_the_folder_as_they_are(run_all, tmp_path):
    script, made = EXAMPLES / "popart_make_model.py", tmp_path / "made.onnx"
    called = run_all["command"](script, tmp_path)
    assert called == [sys.executable, str(script), "--file", str(made)]


ENDS_WELL = """
if __name__ == "__main__":
    print("not shown")
"""
FAILS = """
if __name__ == "__main__":
    print("before it fails")
    raise ValueError("the reason")
"""


@pytest.fixture
def folder(tmp_path):
    """A folder of scripts that take no time, one of which fails, beside a module."""
    shutil.copy(EXAMPLES / "run_all.py", tmp_path)
    sources = {"first.py": ENDS_WELL, "second.py": FAILS, "module.py": "SIZE = 3\n"}
    for name, source in sources.items():
        (tmp_path / name).write_text(source)
    return tmp_path


def test_it_says_which_failed_and_why(folder, capfd):
    run = runpy.run_path(str(folder / "run_all.py"))["main"]
    assert run([]) == 1
    first, second, *shown, last = capfd.readouterr().out.splitlines()
    assert first.split()[0] == "first.py"
    assert first.endswith(" s")
    assert second.split()[0] == "second.py"
    assert second.endswith("s  failed with exit code 1")
    assert "before it fails" in shown
    assert "ValueError: the reason" in shown
    assert last == "1 of 2 scripts ran to their end"


def test_it_runs_only_what_it_was_asked_for(folder, capfd):
    run = runpy.run_path(str(folder / "run_all.py"))["main"]
    assert run(["first.py"]) == 0
    first, last = capfd.readouterr().out.splitlines()
    assert first.startswith("first.py ")
    assert last == "1 of 1 scripts ran to their end"
