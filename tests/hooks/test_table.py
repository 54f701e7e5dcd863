"""Each row of the table of hooks, in a process that looks before, during and after."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from project_imports import PROJECT

from ipu_keras.hooks.table import ENTRIES, KERAS, TENSORFLOW

ROWS = {f"{hook.owner}.{hook.name}": hook for hook in (*TENSORFLOW, *KERAS)}
ENTRY_ROWS = {f"{hook.owner}.{hook.name}": hook for hook in ENTRIES}


@pytest.fixture(scope="module")
def found():
    """By row what a process found out about it."""
    script = Path(__file__).with_name("hooks_in_a_process.py")
    paths = [path or os.getcwd() for path in sys.path]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    process = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=300, env=environment
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.parametrize("row", ROWS)
def test_a_hook_is_installed(found, row):
    assert found["rows"][row]["installed"]


@pytest.mark.parametrize("row", ROWS)
def test_a_hook_leaves_others_alone(found, row):
    """Outside of a strategy's scope all is as in TensorFlow and Keras without `ipu_keras`."""
    result = found["rows"][row]
    assert result["with_hook"] == result["stock"]


@pytest.mark.parametrize("row", ROWS)
def test_a_hook_can_be_undone(found, row):
    assert found["rows"][row]["original_is_back"]


def test_the_table_has_all_hooks(found):
    assert sorted(found["installed"]) == sorted(ROWS)


@pytest.mark.parametrize("row", ENTRY_ROWS)
def test_a_table_of_keras_gets_entries_for_extended_classes_only(found, row):
    assert found["entries"][row] == {"new": 1, "extended": True}


# Nothing else may change TensorFlow or Keras.

LIBRARIES = ("tensorflow", "keras", "ipu_keras.internals")

# Functions that return modules and classes; others return objects, which may be our own.
OWNERS = (
    "import_module",
    "backend_module",
    "cloning_module",
    "context_module",
    "eager_iterator",
    "name_scope",
    "nn_operations",
    "session_class",
    "node_class",
    "tf_keras_models",
)


class Changes(ast.NodeVisitor):
    """Lists the lines that assign to what is reached from a module of a library by its name."""

    def __init__(self):
        self.lines: list[int] = []
        # Names that stand for something in a library.
        self._names: set[str] = set()

    def _reaches(self, node):
        """Whether an expression is something of a library."""
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        if isinstance(node, ast.Call):
            function = node.func
            name = getattr(function, "attr", getattr(function, "id", None))
            return name in OWNERS
        return isinstance(node, ast.Name) and node.id in self._names

    def _imported(self, node, source):
        for alias in node.names:
            library = source or alias.name
            if library.startswith(LIBRARIES):
                self._names.add(alias.asname or alias.name.partition(".")[0])

    def visit_Import(self, node):
        self._imported(node, None)

    def visit_ImportFrom(self, node):
        self._imported(node, node.module or "")

    def _target(self, target, value):
        if isinstance(target, ast.Tuple | ast.List):
            values = value.elts if isinstance(value, ast.Tuple) else [None] * len(target.elts)
            for one, its in zip(target.elts, values, strict=False):
                self._target(one, its)
        elif isinstance(target, ast.Attribute | ast.Subscript):
            if self._reaches(target.value):
                self.lines.append(target.lineno)
        elif isinstance(value, ast.Attribute | ast.Name | ast.Call) and self._reaches(value):
            self._names.add(target.id)

    def visit_Assign(self, node):
        for target in node.targets:
            self._target(target, node.value)
        self.generic_visit(node)

    def visit_AugAssign(self, node):
        self._target(node.target, None)

    def visit_AnnAssign(self, node):
        self._target(node.target, node.value)

    def visit_Delete(self, node):
        for target in node.targets:
            self._target(target, None)

    def visit_Call(self, node):
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        sets = name in ("setattr", "delattr", "__setattr__", "__delattr__")
        if sets and node.args and self._reaches(node.args[0]):
            self.lines.append(node.lineno)
        self.generic_visit(node)


def changes(source):
    visitor = Changes()
    visitor.visit(ast.parse(source))
    return visitor.lines


def test_only_hooks_change_libraries():
    hooks = PROJECT / "ipu_keras" / "hooks"
    paths = [
        path for name in ("ipu_keras", "ipu_addons") for path in (PROJECT / name).rglob("*.py")
    ]
    found = {
        f"{path.relative_to(PROJECT)}:{line}"
        for path in paths
        if hooks not in path.parents
        for line in changes(path.read_text("utf-8"))
    }
    assert found == set(), "what changes TensorFlow or Keras belongs in ipu_keras/hooks"


@pytest.mark.parametrize(
    "source",
    [
        "import keras\nkeras.Model.__new__ = make",
        "from keras import Model\nModel.__new__ = make",
        "import tensorflow as tf\ntf.nn.conv2d: object = other",
        "from tensorflow.python.eager import context\ncontext._cache = {}",
        "from keras.src import api_export\napi_export.NAMES[cls] = 'name'",
        "import keras\ndef f():\n    layer = keras.layers.Dense\n    layer.call = call",
        "import keras\na, keras.Layer.call = 1, 2",
        "import keras\nsetattr(keras.Layer, name, call)",
        "import keras\ndel keras.Layer.call",
        "import keras\ntype.__setattr__(keras.Layer, name, call)",
        "import importlib\nimportlib.import_module('keras').Layer = other",
        "from ipu_keras.internals.keras import models\nmodels.Functional.call = call",
        "from ipu_keras.internals.keras.models import node_class\nnode_class().outputs = outputs",
        "from ipu_keras.internals.keras import models\nnode = models.node_class()\nnode.x = 1",
    ],
)
def test_a_change_is_found(source):
    assert changes(source) == [len(source.splitlines())]


@pytest.mark.parametrize(
    "source",
    [
        "import keras\nmodel = keras.Model()\nmodel.optimizer = optimizer",
        "import keras\nself.layer = keras.layers.Dense(1)",
        "import numpy\nnumpy.x = 1",
    ],
)
def test_an_object_of_our_own_may_be_changed(source):
    assert changes(source) == []
