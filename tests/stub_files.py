"""The stub files by which type checkers know what has no file of its own when they look for it.

`python tests/stub_files.py` writes them, and with `--check` says which are out of date: in `stubs/`
the documented import names, which are aliases when a program runs, and beside the sources the
options of `IPUConfig` and the operations of PopART's builder, whose attributes come from tables.
"""

import ast
import importlib
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from attribute_stubs import builder_operations, config_options
from project_imports import PROJECT

from ipu_keras._aliases import ALIASES, real_name
from ipu_keras._documented_names import documented_names

GENERATED = "# Written by `python tests/stub_files.py`.\n"

# Folders in `stubs/`, which are beside `tensorflow` and others where they are installed.
STUBS = PROJECT / "stubs"

# Of these, one is enough: checkers find `tf.keras` in the files of Keras.
_WITHOUT_STUBS = {
    "tensorflow._api.v2.compat.v1.estimator",
    "tensorflow.compat.v1.estimator",
    "tensorflow.keras.ipu",
}

# The folder of the distribution types-tensorflow, which has its own `py.typed`. Without the rest of
# it, one would hide TensorFlow's names from pyright, see docs/design/0009-stubs.md.
_OF_TYPES_TENSORFLOW = "tensorflow-stubs"

# TensorFlow makes this name when it is imported, so checkers that look for a file find none.
_TENSORFLOW_1 = """\
from typing import Any

from tensorflow._api.v2.compat.v1 import *

def __getattr__(name: str) -> Any: ...
"""


def stub_files() -> dict[Path, str]:
    """The text of each stub file."""
    files = {_file(alias): text for alias, text in _alias_stubs().items()}
    for package in {path.relative_to(STUBS).parts[0] for path in files} - {_OF_TYPES_TENSORFLOW}:
        # PEP 561: what is not found here is looked for in the package itself.
        files[STUBS / package / "py.typed"] = "partial\n"
    files[STUBS / _OF_TYPES_TENSORFLOW / "compat" / "v1" / "__init__.pyi"] = (
        GENERATED + _TENSORFLOW_1
    )
    # Without a file in it, pip leaves a folder behind when it uninstalls what is below.
    for folder in (STUBS / _OF_TYPES_TENSORFLOW, STUBS / _OF_TYPES_TENSORFLOW / "compat"):
        files[folder / "ipu-keras.txt"] = "`python/ipu` and `compat` are of ipu-keras.\n"
    files[PROJECT / "ipu_keras" / "settings" / "config_options.pyi"] = GENERATED + config_options()
    files[PROJECT / "ipu_keras" / "popart" / "builder_operations.pyi"] = (
        GENERATED + builder_operations()
    )
    return files


def stubbed_modules() -> list[str]:
    """The documented names of modules, and of the packages around them."""
    found = set(ALIASES)
    for name in documented_names():
        while real_name(name := name.rpartition(".")[0]) is not None:
            found.add(name)
    return sorted(found - _WITHOUT_STUBS)


def public_names(source: Path) -> list[str]:
    """What a module offers: its `__all__`, or else what it defines and what it hands on.

    Args:
        source: The file of the module.
    """
    tree = ast.parse(source.read_text("utf-8"))
    names = set(_names(tree.body))
    return sorted(_all_of(tree) or names)


def _alias_stubs() -> Mapping[str, str]:
    modules = stubbed_modules()
    return {alias: _alias_stub(alias, modules) for alias in modules}


def _alias_stub(alias: str, modules: Iterable[str]) -> str:
    real = importlib.import_module(alias).__name__
    lines = {name: f"from {real} import {name} as {name}" for name in public_names(_source(alias))}
    for child in modules:
        parent, _, name = child.rpartition(".")
        if parent == alias and name not in lines:
            lines[name] = f"from {alias} import {name} as {name}"
    return GENERATED + "".join(f"{lines[name]}\n" for name in sorted(lines))


def _source(alias: str) -> Path:
    source = inspect.getsourcefile(importlib.import_module(alias))
    assert source is not None
    return Path(source)


def _file(alias: str) -> Path:
    top, *rest = alias.split(".")
    folder = STUBS.joinpath(f"{top}-stubs", *rest)
    is_package = _source(alias).name == "__init__.py" or not rest
    return folder / "__init__.pyi" if is_package else folder.with_suffix(".pyi")


def _names(body: Iterable[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) if name[0] != "_":
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) if name[0] != "_":
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)) if name[0] != "_":
                yield name
            case ast.ImportFrom(module=str(module), names=[ast.alias(name="*")]):
                handed_on = importlib.import_module(module)
                yield from getattr(handed_on, "__all__", None) or public_names(_source(module))
            case ast.ImportFrom(names=imported):
                yield from (each.name for each in imported if each.asname == each.name)
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=inner):
                yield from _names(inner)


def _all_of(tree: ast.Module) -> list[str]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return ast.literal_eval(value)
    return []


if __name__ == "__main__":
    files = stub_files()
    outdated = [
        path for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        if outdated:
            names = ", ".join(str(path.relative_to(PROJECT)) for path in outdated)
            sys.exit(f"Run `python tests/stub_files.py`, which writes other stubs: {names}")
    else:
        for path in outdated:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path], "utf-8")
