"""No file and no class is so large that it may be two things."""

import ast
from collections.abc import Iterator
from pathlib import Path

from project_imports import PACKAGES, PROJECT

# Of Python and of Cython sources. This one declares a C interface and has its callbacks.
MOST_LINES = 600
LONG = {"_cext/_device.pyx"}
MOST_METHODS = 30


def sources() -> Iterator[Path]:
    folders = (*PACKAGES, "_cext", "tests", "benchmarks", "examples")
    for folder in folders:
        yield from (
            path for path in (PROJECT / folder).rglob("*") if path.suffix in (".py", ".pyx")
        )


def test_no_file_is_long():
    lines = {
        path.relative_to(PROJECT).as_posix(): path.read_text("utf-8").count("\n")
        for path in sources()
    }
    assert {path for path, number in lines.items() if number > MOST_LINES} == LONG


def test_no_class_has_many_methods():
    found = {
        f"{path.relative_to(PROJECT).as_posix()}: {node.name}"
        for path in sources()
        if path.suffix == ".py"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
        and sum(isinstance(one, ast.FunctionDef) for one in node.body) > MOST_METHODS
    }
    assert not found
