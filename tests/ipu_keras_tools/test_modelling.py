"""What users' code prints and raises while a command models it."""

import json
import sys

import pytest

from ipu_keras_tools.main import main

SOURCE = """
import keras

class Layer(keras.layers.Layer):
    def call(self, x):
        print("traced")
        return x

def printing():
    print("made")
    dense = keras.layers.Dense(2, name="dense")
    return keras.Sequential([keras.Input((64,)), dense, Layer(name="own")], name="net")

def broken():
    raise RuntimeError("the maker broke")

def ends(x):
    raise SystemExit(0)

def divided(x):
    return x / (1 // 0)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a module, which is where the command is run."""
    (tmp_path / "made.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("made", None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", "RuntimeError: the maker broke"),
        ("ends", "SystemExit: 0"),
        ("divided", "ZeroDivisionError: integer division or modulo by zero"),
    ],
)
def test_what_is_raised_is_shown_with_the_users_lines_only(folder, capsys, name, message):
    """Nor is it taken for the answer that a step does not fit, or that all is well."""
    assert main(["profile", f"made:{name}", "8x64"]) == 2
    first, place, *code = capsys.readouterr().err.splitlines()
    assert first == f"ipu-keras profile: error: SUBJECT has raised {message}"
    assert place.startswith(f'  File "{folder}/made.py", line ')
    assert all(line.startswith("    ") for line in code)


@pytest.mark.parametrize("command", ["profile", "suggest-pipeline --num-ipus 2"])
def test_what_is_printed_is_no_answer(folder, capsys, command):
    name, *options = command.split()
    arguments = [name, "made:printing", "8x64", *options]
    assert main([*arguments, "--json"]) == 0
    in_json = capsys.readouterr()
    assert json.loads(in_json.out)
    assert main(arguments) == 0
    in_words = capsys.readouterr()
    assert set(in_json.err.split()) == set(in_words.err.split()) == {"made", "traced"}
    assert "traced" not in in_words.out
