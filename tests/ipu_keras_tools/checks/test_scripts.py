"""Scripts with modules of their own beside them, and scripts of TensorFlow 1."""

import json
import subprocess
import sys

import pytest

from ipu_keras_tools.checks.scripts import Scripts
from ipu_keras_tools.main import main

MODULES = {
    "helper.py": """
import keras
from main import nothing
def model(): return keras.Sequential([])
def made(rate): return keras.optimizers.SGD(lr=rate)
class Net(keras.Model):
    def run(self): return self.predict_proba(1)
""",
    "old.py": "print 'of Python 2'",
    "package/__init__.py": "",
    "package/nets.py": """
from . import parts
from .inner.deep import VALUE
from helper import model
def net(): return model()
""",
    "package/parts.py": "import keras\nRATE = keras.optimizers.SGD().lr",
    "package/inner/deep.py": "import keras\nVALUE = keras.optimizers.SGD()",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, source in MODULES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines_of(folder, capsys, source):
    (folder / "main.py").write_text(source)
    main(["check", "main.py", "--json"])
    found = json.loads(capsys.readouterr().out)
    return {one["path"]: [each["line"] for each in one["problems"]] for one in found}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import helper\nhelper.model().reset_states()", {"main.py": [2], "helper.py": [5, 7]}),
        ("from helper import *\nmodel().reset_states()", {"main.py": [2], "helper.py": [5, 7]}),
        ("from helper import Net as N\nN().reset_states()", {"main.py": [2], "helper.py": [5, 7]}),
        ("import package.inner.deep as d\nd.VALUE.lr", {"main.py": [2], "package/__init__.py": []}),
        ("def f():\n  import package.parts\n", {"package/parts.py": [2]}),
        (
            "from package import nets\nnets.net().reset_states()\nnets.VALUE.lr\nnets.parts.RATE",
            {"main.py": [2, 3], "package/parts.py": [2], "helper.py": [5, 7]},
        ),
        ("import old", {"old.py": [1], "main.py": []}),
        # What the script gives to objects of a module, and what is not there.
        ("import helper\nm = helper.model()\nm.own = 3\nm.own", {"main.py": []}),
        (
            "import nowhere, package.nowhere\nfrom helper import nowhere\nnowhere.lr",
            {"main.py": []},
        ),
    ],
)
def test_modules_beside_a_script(folder, capsys, source, found):
    lines = lines_of(folder, capsys, source)
    assert {path: lines[path] for path in found} == found


def test_what_a_module_is_called_with(folder, capsys):
    """Its functions are read as they are called, whoever calls them."""
    (folder / "main.py").write_text("import helper\nhelper.made(0.5)")
    main(["check", "main.py"])
    assert "helper.py:5:24: ValueError: Argument(s) not recognized: {'lr': 0.5}\n" in (
        capsys.readouterr().out
    )


def test_errors_that_the_script_catches(folder, capsys):
    source = "try: import package.parts\nexcept AttributeError: pass"
    assert lines_of(folder, capsys, source)["package/parts.py"] == []


def test_many_that_import_each_other_are_read_once(tmp_path):
    count = 100
    imports = "".join(f"import s{k}\n" for k in range(count))
    scripts = Scripts()
    for k in range(count):
        path = tmp_path / f"s{k}.py"
        path.write_text(f"import keras\n{imports}def f(): return s{(k + 1) % count}.f()\n")
    for k in range(count):
        path = tmp_path / f"s{k}.py"
        scripts.read(path, path.read_bytes())
    assert [one.problems for one in scripts.findings()] == [()] * count


def test_tensorflow_1(tmp_path):
    (tmp_path / "helper.py").write_text("import tensorflow as tf\nX = tf.layers.dense\ntf.nothing")
    (tmp_path / "main.py").write_text(
        "import tensorflow as tf, helper\nfrom tensorflow.train import AdamOptimizer\n"
        "import tensorflow.contrib\nwith tf.Session() as s: s.run(tf.placeholder(tf.float32))\n"
        "tf.data.Dataset.range(3).make_one_shot_iterator()\n"
    )
    process = subprocess.run(
        [sys.executable, "-m", "ipu_keras", "check", "--tf1", "main.py", "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert process.returncode == 1, process.stderr
    helper, script = json.loads(process.stdout)
    assert [(one["line"], one["instead"]) for one in helper["problems"]] == [(3, "")]
    [problem] = script["problems"]
    assert (problem["line"], problem["said"]) == (3, "No module named 'tensorflow.contrib'")
    assert problem["instead"].startswith("TensorFlow 2 has no `tf.contrib`: IPU software for")
