"""Who may import whom: the table of the architecture, held against every module's source.

A pattern names a module and everything below it; one that ends in `.*`, only what is below.
"""

import ast
import graphlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
PACKAGES = ("ipu_keras", "ipu_addons")


@dataclass(frozen=True)
class Room:
    """Modules with one set of rules. The standard library is open to all of them.

    Args:
        name: What a violation calls it.
        modules: Patterns of the modules that are in this room.
        allowed: Patterns of what they may import.
        forbidden: Patterns of what they may not, though `allowed` has it.
    """

    name: str
    modules: tuple[str, ...]
    allowed: tuple[str, ...]
    forbidden: tuple[str, ...] = ()


CONFIG = (
    "ipu_keras.compilation_outputs",
    "ipu_keras.config",
    "ipu_keras.config_tree",
    "ipu_keras.configured_model",
    "ipu_keras.engine_options",
    "ipu_keras.errors",
    "ipu_keras.flags",
    "ipu_keras.gradient_accumulation",
    "ipu_keras.pipeline_choices",
    "ipu_keras.program",
    "ipu_keras.recompilation",
    "ipu_keras.system",
    "ipu_keras.target",
)
MODEL = (
    "ipu_keras.atomic_files",
    "ipu_keras.canonical_json",
    "ipu_keras.compiler",
    "ipu_keras.executable",
    "ipu_keras.executable_cache",
    "ipu_keras.ir",
    "ipu_keras.report",
)
KERNELS = ("ipu_keras._costmodel", "ipu_keras._kernels")
# What is behind the documented names, and may change without notice.
INTERNAL = (
    "*._*",
    "ipu_keras.config_tree",
    "ipu_keras.device",
    "ipu_keras.feeds",
    "ipu_keras.flags",
    "ipu_keras.host",
    "ipu_keras.program",
    "ipu_keras.runtime",
    "ipu_keras.system",
    "ipu_keras.tracing",
    *MODEL,
    "keras.src",
    "tensorflow.python",
)

# The first room that has a module is the module's room.
ROOMS = (
    Room("config", CONFIG, allowed=(*CONFIG, "numpy")),
    # `rich` draws the tables of reports, `filelock` guards the files of caches; the others
    # make further forms of reports.
    Room(
        "model",
        MODEL,
        allowed=(
            *CONFIG,
            *MODEL,
            *KERNELS,
            "filelock",
            "jinja2",
            "matplotlib",
            "numpy",
            "pandas",
            "perfetto",
            "rich",
        ),
    ),
    Room(
        "runtime",
        ("ipu_keras.runtime",),
        allowed=(
            *CONFIG,
            "ipu_keras._engine",
            "ipu_keras.executable",
            "ipu_keras.runtime",
            "numpy",
        ),
    ),
    Room(
        "keras",
        ("ipu_keras.keras",),
        allowed=("ipu_keras", "keras", "numpy", "tensorflow"),
        forbidden=("ipu_keras._*", "ipu_keras.compiler.*"),
    ),
    Room("requirements", ("ipu_keras._requirements",), allowed=("keras", "tensorflow")),
    Room("aliases", ("ipu_keras._aliases",), allowed=("tensorflow.keras",)),
    Room(
        "surface",
        ("ipu_keras.*",),
        allowed=("ipu_keras", "numpy", "tensorflow"),
        forbidden=("ipu_keras.keras",),
    ),
    # `ipu_keras/__init__.py` stands above all rooms: it names what users get from them.
    Room("package", ("ipu_keras",), allowed=("ipu_keras",)),
    Room(
        "addons",
        ("ipu_addons",),
        allowed=("ipu_addons", "ipu_keras", "keras", "numpy", "tensorflow"),
        forbidden=INTERNAL,
    ),
)

# A function-level import says that a room is wrong, except for these (module, target).
FUNCTION_LEVEL_IMPORTS = {
    ("ipu_keras._requirements", "tensorflow"): "is what the function finds out",
    ("ipu_keras._requirements", "keras"): "would fail without TensorFlow, which is checked first",
    (
        "ipu_keras.compilations",
        "ipu_keras.auto_report.report_compilation",
    ): "the cost model is for those who ask for it: its import takes as long as all the rest",
    (
        "ipu_keras.auto_report",
        "ipu_keras.profiling.report_of_program",
    ): "reports are for those who ask for them, and for programs that do not fit",
    (
        "ipu_keras.auto_report",
        "ipu_keras.report_files.out_of_memory",
    ): "reports are for those who ask for them, and for programs that do not fit",
    (
        "ipu_keras.auto_report",
        "ipu_keras.report_files.write_files",
    ): "reports are for those who ask for them, and for programs that do not fit",
    (
        "ipu_keras.ops.summary_ops",
        "ipu_keras.profiling.last_report",
    ): "the cost model is for those who ask for it: its import takes as long as all the rest",
    (
        "ipu_keras.report.report",
        "ipu_keras.report.html",
    ): "needs libraries of an extra, whose import takes a second",
    (
        "ipu_keras.report.notebook",
        "ipu_keras.report.html",
    ): "needs libraries of an extra, whose import takes a second",
    (
        "ipu_keras.report.perfetto_trace",
        "perfetto.trace_builder.proto_builder.TraceProtoBuilder",
    ): "is of the extra `report`, which not every user installs",
    (
        "ipu_keras.report.data_frame",
        "pandas",
    ): "is of the extra `report`, which not every user installs",
    (
        "ipu_keras.executable_cache",
        "filelock.FileLock",
    ): "is for those who have a directory of executables: importing it can take 0.1 s",
    (
        "ipu_keras._aliases",
        "tensorflow.keras",
    ): "must not be loaded in a process without TensorFlow",
}


@dataclass(frozen=True)
class Import:
    """One imported name: `target` is as the statement has it, made absolute."""

    module: str
    target: str
    line: int
    in_function: bool

    def __str__(self):
        return f"{self.module}:{self.line} imports {self.target}"


class _Collector(ast.NodeVisitor):
    """Lists every name that a module imports, by statement or by a call with a constant."""

    def __init__(self, module: str, *, is_package: bool):
        self.imports: list[Import] = []
        self._module = module
        self._package = module if is_package else module.rpartition(".")[0]
        self._depth = 0

    def _visit_function(self, node):
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_function

    def _add(self, target: str, node: ast.stmt | ast.expr):
        self.imports.append(Import(self._module, target, node.lineno, self._depth > 0))

    def visit_Import(self, node):
        for alias in node.names:
            self._add(alias.name, node)

    def visit_ImportFrom(self, node):
        parents = self._package.split(".")
        base = parents[: len(parents) - node.level + 1] if node.level else []
        source = ".".join([*base, *filter(None, [node.module])])
        for alias in node.names:
            self._add(source if alias.name == "*" else f"{source}.{alias.name}", node)

    def visit_Call(self, node):
        function = node.func.attr if isinstance(node.func, ast.Attribute) else None
        function = node.func.id if isinstance(node.func, ast.Name) else function
        match node.args:
            case [ast.Constant(value=str(target)), *_] if function in (
                "__import__",
                "import_module",
            ):
                self._add(target, node)
        self.generic_visit(node)


def imports_in(source: str, module: str, *, is_package: bool = False) -> list[Import]:
    """Returns what the source of `module` imports, in the order of its lines."""
    collector = _Collector(module, is_package=is_package)
    collector.visit(ast.parse(source))
    return collector.imports


def matches(name: str, patterns: Iterable[str]) -> bool:
    return any(
        fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*") for pattern in patterns
    )


def owner(target: str, modules: Iterable[str]) -> str | None:
    """Returns the project's module that an imported name is, or is taken from."""
    while target and target not in modules:
        target = target.rpartition(".")[0]
    return target or None


def subject(target: str, modules: Iterable[str]) -> str:
    """Returns what the rules judge: a public name counts as the module that offers it."""
    module = owner(target, modules)
    if module is None or "._" in target.removeprefix(module):
        return target
    return module


def room_of(module: str) -> Room | None:
    return next((room for room in ROOMS if matches(module, room.modules)), None)


def violations(imports: Iterable[Import], modules: Iterable[str]) -> Iterator[str]:
    """Yields a line for each import that the importing module's room does not allow."""
    for item in imports:
        if item.target.partition(".")[0] in sys.stdlib_module_names:
            continue
        room = room_of(item.module)
        judged = subject(item.target, modules)
        if room is None:
            yield f"{item}, and is in no room"
        elif matches(judged, room.forbidden) or not matches(judged, room.allowed):
            yield f"{item}, which the room {room.name!r} may not"


def undeclared_function_imports(imports: Iterable[Import]) -> Iterator[str]:
    """Yields a line for each function-level import that has no reason in the table."""
    for item in imports:
        if item.in_function and (item.module, item.target) not in FUNCTION_LEVEL_IMPORTS:
            yield f"{item} in a function"


def import_cycle(imports: Iterable[Import], modules: Iterable[str]) -> list[str]:
    """Returns the modules of an import cycle, the first one repeated at the end, or nothing."""
    graph: dict[str, set[str]] = {}
    for item in imports:
        imported = owner(item.target, modules)
        if imported is not None:
            graph.setdefault(item.module, set()).add(imported)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def read_project() -> dict[str, list[Import]]:
    """Returns the imports of each module; compiled units count as modules without any."""
    modules = {}
    for path in sorted(path for package in PACKAGES for path in (PROJECT / package).rglob("*.py")):
        parts = path.relative_to(PROJECT).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        modules[module] = imports_in(path.read_text("utf-8"), module, is_package=is_package)
    units = {f"ipu_keras.{path.stem}": [] for path in (PROJECT / "_cext").glob("*.pyx")}
    return modules | units


@pytest.fixture(scope="module")
def project() -> Mapping[str, list[Import]]:
    return read_project()


@pytest.fixture(scope="module")
def all_imports(project) -> list[Import]:
    return [item for imports in project.values() for item in imports]


def test_the_project_is_read(project):
    assert {"ipu_keras", "ipu_keras.config", "ipu_keras._device", "ipu_addons"} <= set(project)


def test_imports_follow_the_table(all_imports, project):
    assert list(violations(all_imports, project)) == []


def test_no_import_cycle(all_imports, project):
    assert import_cycle(all_imports, project) == []


def test_function_level_imports_have_a_reason(all_imports):
    assert list(undeclared_function_imports(all_imports)) == []


def test_every_reason_is_needed(all_imports):
    found = {(item.module, item.target) for item in all_imports if item.in_function}
    assert set(FUNCTION_LEVEL_IMPORTS) - found == set()


# The checker itself, on sources made up for it.

MODULES = {
    "ipu_addons",
    "ipu_keras",
    "ipu_keras._aliases",
    "ipu_keras._device",
    "ipu_keras._engine",
    "ipu_keras._kernels",
    "ipu_keras._requirements",
    "ipu_keras.compiler",
    "ipu_keras.compiler.compilation",
    "ipu_keras.config",
    "ipu_keras.executable",
    "ipu_keras.ir",
    "ipu_keras.keras",
    "ipu_keras.keras.extensions",
    "ipu_keras.ops",
    "ipu_keras.ops.nn_ops",
    "ipu_keras.program",
    "ipu_keras.runtime",
    "ipu_keras.utils",
}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("ipu_keras.config", "import re, numpy"),
        ("ipu_keras.ir.graph", "from ipu_keras import config, _kernels"),
        ("ipu_keras.runtime.engine", "from ipu_keras import _engine, executable, program"),
        ("ipu_keras.ops.nn_ops", "import tensorflow as tf; from ipu_keras import _device"),
        ("ipu_keras.ops.nn_ops", "from tensorflow.python.eager import context"),
        ("ipu_keras.keras.layers", "import keras; from ipu_keras.compiler import compile_program"),
        ("ipu_keras.keras.layers", "from ipu_keras.runtime import Engine"),
        ("ipu_keras._requirements", "import keras, tensorflow"),
        ("ipu_keras", "from ipu_keras import keras as keras"),
        ("ipu_addons.layers", "import keras; from ipu_keras.ops import nn_ops"),
    ],
)
def test_allowed(module, source):
    assert list(violations(imports_in(source, module), MODULES)) == []


@pytest.mark.parametrize(
    ("module", "source", "target"),
    [
        ("ipu_keras.config", "import tensorflow as tf", "tensorflow"),
        ("ipu_keras.config", "from ipu_keras.utils import running", "ipu_keras.utils.running"),
        ("ipu_keras.program", "from ipu_keras import executable", "ipu_keras.executable"),
        ("ipu_keras.target", "import scipy", "scipy"),
        ("ipu_keras.errors", "from . import _engine", "ipu_keras._engine"),
        ("ipu_keras.ir.graph", "import tensorflow.python.eager", "tensorflow.python.eager"),
        ("ipu_keras.compiler.cost", "from keras import layers", "keras.layers"),
        ("ipu_keras.executable", "from ipu_keras import _device", "ipu_keras._device"),
        ("ipu_keras.report.text", "from ..runtime import Engine", "ipu_keras.runtime.Engine"),
        ("ipu_keras.runtime.engine", "import ipu_keras.compiler", "ipu_keras.compiler"),
        ("ipu_keras.runtime.engine", "import ipu_keras.ir", "ipu_keras.ir"),
        ("ipu_keras.runtime.engine", "from ipu_keras import _device", "ipu_keras._device"),
        ("ipu_keras.runtime.engine", "import tensorflow", "tensorflow"),
        ("ipu_keras.runtime.engine", "import keras", "keras"),
        ("ipu_keras.ops.nn_ops", "import keras", "keras"),
        ("ipu_keras.device.placement", "def f(): import keras.ops", "keras.ops"),
        ("ipu_keras.ipu_strategy", "from ipu_keras import keras", "ipu_keras.keras"),
        ("ipu_keras.host", "if TYPE_CHECKING: import keras", "keras"),
        ("ipu_keras.host", "importlib.import_module('keras.ops')", "keras.ops"),
        ("ipu_keras.host", "__import__('keras')", "keras"),
        ("ipu_keras.keras.layers", "from ipu_keras import _device", "ipu_keras._device"),
        ("ipu_keras.keras.layers", "import ipu_keras._engine", "ipu_keras._engine"),
        (
            "ipu_keras.keras.layers",
            "from ipu_keras.compiler.compilation import schedule",
            "ipu_keras.compiler.compilation.schedule",
        ),
        ("ipu_keras._aliases", "import tensorflow", "tensorflow"),
        ("ipu_keras._requirements", "import ipu_keras.config", "ipu_keras.config"),
        ("ipu_keras", "import tensorflow", "tensorflow"),
        ("ipu_addons.layers", "from ipu_keras.utils import _check", "ipu_keras.utils._check"),
        ("ipu_addons.layers", "from ipu_keras import _device", "ipu_keras._device"),
        ("ipu_addons.layers", "from ipu_keras.runtime import Engine", "ipu_keras.runtime.Engine"),
        ("ipu_addons.layers", "from keras import src", "keras.src"),
        ("ipu_addons.layers", "import tensorflow.python.eager", "tensorflow.python.eager"),
        ("popart.session", "import onnx", "onnx"),
    ],
)
def test_not_allowed(module, source, target):
    [violation] = violations(imports_in(source, module), MODULES)
    assert violation.startswith(f"{module}:1 imports {target}, ")


@pytest.mark.parametrize(
    ("source", "is_package", "targets"),
    [
        ("from . import a, b", False, ["ipu_keras.ops.a", "ipu_keras.ops.b"]),
        ("from . import a", True, ["ipu_keras.ops.nn_ops.a"]),
        ("from .a import b", False, ["ipu_keras.ops.a.b"]),
        ("from .. import utils", False, ["ipu_keras.utils"]),
        ("from ..utils import *", False, ["ipu_keras.utils"]),
        ("import a.b as c, d", False, ["a.b", "d"]),
        ("class A:\n    try:\n        import a\n    except E: pass", False, ["a"]),
    ],
)
def test_import_statements(source, is_package, targets):
    imports = imports_in(source, "ipu_keras.ops.nn_ops", is_package=is_package)
    assert [item.target for item in imports] == targets


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    import json",
        "async def f():\n    from json import loads",
        "class A:\n    def f(self):\n        if self: import json",
        "f = lambda: __import__('json')",
        "def f():\n    return importlib.import_module('json')",
    ],
)
def test_function_level_import_is_seen(source):
    [found] = undeclared_function_imports(imports_in(source, "ipu_keras.utils"))
    assert found.startswith("ipu_keras.utils:")
    assert found.endswith("in a function")


def test_function_level_import_with_a_reason():
    source = "def check():\n    import tensorflow"
    assert list(undeclared_function_imports(imports_in(source, "ipu_keras._requirements"))) == []


@pytest.mark.parametrize(
    ("sources", "cycle"),
    [
        (
            {"ipu_keras.utils": "from ipu_keras import config", "ipu_keras.config": "import re"},
            set(),
        ),
        (
            {
                "ipu_keras.utils": "from ipu_keras import config",
                "ipu_keras.config": "def f(): from ipu_keras.executable import Executable",
                "ipu_keras.executable": "import ipu_keras.utils",
            },
            {"ipu_keras.utils", "ipu_keras.config", "ipu_keras.executable"},
        ),
        (
            # Names taken from the package itself, which imports the module.
            {
                "ipu_keras": "from ipu_keras import config as config",
                "ipu_keras.config": "from ipu_keras import IPUStrategy",
            },
            {"ipu_keras", "ipu_keras.config"},
        ),
    ],
)
def test_cycles(sources, cycle):
    imports = [
        item
        for module, source in sources.items()
        for item in imports_in(source, module, is_package=module == "ipu_keras")
    ]
    assert set(import_cycle(imports, MODULES)) == cycle
