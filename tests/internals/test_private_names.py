"""Every private name that the package uses has the form that it relies on."""

import ast
import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

from ipu_keras.internals import keras as keras_internals
from ipu_keras.internals import tensorflow as tensorflow_internals
from ipu_keras.internals.forms import PrivateName

PACKAGES = (tensorflow_internals, keras_internals)


def modules() -> list[ModuleType]:
    return [
        importlib.import_module(f"{package.__name__}.{found.name}")
        for package in PACKAGES
        for found in pkgutil.iter_modules(package.__path__)
    ]


def private_names() -> list[PrivateName]:
    found = {
        id(value): value
        for module in modules()
        for value in vars(module).values()
        if isinstance(value, PrivateName)
    }
    return list(found.values())


@pytest.mark.parametrize("name", private_names(), ids=lambda name: name.path)
def test_it_has_the_form_that_is_relied_on(name: PrivateName):
    # The error names the library's version, the form and what was found instead.
    name.get()


def test_none_is_named_twice():
    paths = [name.path for name in private_names()]
    assert len(set(paths)) == len(paths)


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__)
def test_there_is_no_name_without_a_form(module: ModuleType):
    """Neither by an import, nor by one that the test above does not see."""
    tree = ast.parse(Path(module.__file__).read_text("utf-8"))
    imported = [
        item.module if isinstance(item, ast.ImportFrom) else alias.name
        for item in ast.walk(tree)
        if isinstance(item, ast.Import | ast.ImportFrom)
        for alias in item.names
    ]
    private = ("tensorflow.python", "tensorflow.core", "tensorflow.compiler", "keras.src")
    assert [name for name in imported if name.startswith(private)] == []
    made = [
        item
        for item in ast.walk(tree)
        if isinstance(item, ast.Call) and getattr(item.func, "id", "") == "PrivateName"
    ]
    kept = [value for value in vars(module).values() if isinstance(value, PrivateName)]
    assert len(made) == len(kept)
