"""The stub files are those that the package gives, and type checkers find all names by them."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from project_imports import PROJECT
from stub_files import STUBS, public_names, stub_files, stubbed_modules

from ipu_keras._documented_names import documented_names

# What each calls a name that it does not find. Of attributes of values, those of our own classes:
# what pyright guesses of the type of a Keras model that was loaded, or of what a session returns,
# is not ours.
OUR_CLASSES = r"Ai\w+|Builder|Report|IPU\w+|\w+Options"
UNRESOLVED_BY_PYRIGHT = re.compile(
    r"could not be resolved$|is unknown import symbol|is not a known attribute of module|"
    rf"is not defined|Cannot (access|assign to) attribute .* for class \"({OUR_CLASSES})\""
)
UNRESOLVED_BY_MYPY = ("import-not-found", "attr-defined", "name-defined")

# A program with ten names that there are not, each in a line with this comment.
MISTAKES = """
from tensorflow.python import ipu
from tensorflow.python.ipu.config import IPUConfigs  # wrong
from tensorflow.python.ipu.ops.rnn_ops import PopnnGUR  # wrong
from keras.ipu.extensions import PipelineStages  # wrong
from ipu_tensorflow_addons.keras.layers import SerialDence  # wrong
from popart import Bilder  # wrong
import ipu_keras
import popart
import tensorflow.python.ipu.configuration  # wrong

config = ipu.config.IPUConfig()
config.auto_selct_ipus = 2  # wrong
config.io_tiles.num_io_tiels = 32  # wrong
popart.Builder().aiOnnx.matmull(["a", "b"])  # wrong
popart.Builder().addInputTensors("FLOAT", [2])  # wrong
config.auto_select_ipus = [1, 2]
config.floating_point_behaviour.esr = True
builder = popart.Builder(opsets={"ai.onnx": 11})
x: str = builder.aiOnnx.conv([builder.addInputTensor("FLOAT", [2]), "w"], dilations=[1, 1])
builder.aiGraphcore.gelu([x], debugContext="gelu")
report = ipu_keras.profile(print)
report.to_json()
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The Python of an environment with these sources and stubs, and else what is installed here.

    Checkers run where they are installed, and look there for packages.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    installed = Path(sysconfig.get_path("purelib"))
    ours = {folder.name for folder in STUBS.iterdir()} | {"ipu_keras", "ipu_addons"}
    for entry in installed.iterdir():
        if entry.name not in ours and entry.suffix != ".pth":
            (site / entry.name).symlink_to(entry)
    shutil.copytree(installed / "tensorflow-stubs", site / "tensorflow-stubs")
    shutil.rmtree(site / "tensorflow-stubs" / "python" / "ipu", ignore_errors=True)
    shutil.copytree(STUBS, site, dirs_exist_ok=True)
    for package in ("ipu_keras", "ipu_addons"):
        shutil.copytree(
            PROJECT / package, site / package, ignore=shutil.ignore_patterns("__pycache__", "*.so")
        )
    return folder / "bin" / "python"


def run(command, folder):
    """Runs a checker, with nothing on Python's path but what is installed."""
    hidden = ("PYTHONPATH", "MYPYPATH", "VIRTUAL_ENV")
    return subprocess.run(
        [sys.executable, "-m", *command, "."],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in hidden},
        capture_output=True,
        text=True,
        timeout=600,
    )


def pyright(python, folder):
    """Names that it does not find in the programs of a folder: file, line and message."""
    done = run(["pyright", "--outputjson", "--pythonpath", python], folder)
    try:
        found = json.loads(done.stdout)
    except json.JSONDecodeError:
        pytest.fail(done.stdout + done.stderr)
    assert found["summary"]["filesAnalyzed"] == len(list(folder.glob("*.py")))
    return [
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1, each["message"])
        for each in found["generalDiagnostics"]
        if each["severity"] == "error" and UNRESOLVED_BY_PYRIGHT.search(each["message"])
    ]


def mypy(python, folder):
    """The same by mypy."""
    options = ["--config-file=", "--cache-dir", os.devnull, "--output=json"]
    done = run(["mypy", *options, "--python-executable", python], folder)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [
        (each["file"], each["line"], each["message"])
        for each in found
        if each["severity"] == "error"
        and (
            each["code"] in UNRESOLVED_BY_MYPY
            # Of others than ours, installed packages need not be typed.
            or (each["code"] == "import-untyped" and "ipu" in each["message"])
        )
    ]


@pytest.fixture(scope="module", params=[pyright, mypy], ids=["pyright", "mypy"])
def unresolved(request, python, tmp_path_factory):
    """What a checker does not find: in examples, in imports of all names, and in mistakes."""
    folder = tmp_path_factory.mktemp("programs")
    for source in (PROJECT / "examples").glob("*.py"):
        shutil.copy(source, folder)
    (folder / "all_names.py").write_text("\n".join(imports()), "utf-8")
    (folder / "mistakes.py").write_text(MISTAKES, "utf-8")
    return request.param(python, folder)


def imports():
    """A line for each documented name."""
    names = [name.rpartition(".") for name in documented_names()]
    return [f"from {module} import {name} as _{i}" for i, (module, _, name) in enumerate(names)]


def test_files_are_up_to_date():
    files = stub_files()
    assert {
        path.relative_to(PROJECT).as_posix()
        for path, text in files.items()
        if not path.is_file() or path.read_text("utf-8") != text
    } == set(), "Run: python tests/stub_files.py"
    there = {path for path in STUBS.rglob("*") if path.is_file()}
    assert {path.name for path in there - files.keys()} == set()


def test_modules_have_what_their_stubs_say():
    missing = {
        f"{module}.{name}"
        for module in stubbed_modules()
        for name in public_names(Path(importlib.import_module(module).__file__))
        if not hasattr(importlib.import_module(module), name)
    }
    assert missing == set()


def test_examples_have_no_unresolved_name(unresolved):
    assert [each for each in unresolved if each[0] not in ("all_names.py", "mistakes.py")] == []


def test_every_documented_name_is_found(unresolved):
    lines = imports()
    assert len(lines) > 300
    assert [lines[line - 1] for file, line, _ in unresolved if file == "all_names.py"] == []


def test_misspelt_names_are_reported_and_others_are_not(unresolved):
    wrong = {i for i, line in enumerate(MISTAKES.splitlines(), 1) if line.endswith("# wrong")}
    assert len(wrong) == 10
    assert {line for file, line, _ in unresolved if file == "mistakes.py"} == wrong
