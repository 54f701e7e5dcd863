"""What every module of the project imports, and the picture of its rooms.

`python tests/project_imports.py` prints the picture for docs/architecture.md.
"""

import ast
import graphlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PACKAGES = ("ipu_keras", "ipu_addons", "ipu_keras_tools")


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


def owner(target: str, modules: Iterable[str]) -> str | None:
    """Returns the project's module that an imported name is, or is taken from."""
    while target and target not in modules:
        target = target.rpartition(".")[0]
    return target or None


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


def folder_of(module: str) -> str:
    """The folder of `ipu_keras` that has a module, or the module if none has it."""
    package, _, rest = module.partition(".")
    return f"{package}.{rest.partition('.')[0]}" if package == "ipu_keras" and rest else package


def folder_graph(imports: Iterable[Import], modules: Iterable[str]) -> dict[str, set[str]]:
    """Returns by folder those that it imports, apart from names of the package itself."""
    graph: dict[str, set[str]] = {}
    for item in imports:
        imported = owner(item.target, modules)
        if imported not in (None, "ipu_keras") and folder_of(imported) != folder_of(item.module):
            graph.setdefault(folder_of(item.module), set()).add(folder_of(imported))
    return graph


def _chains(graph: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """By what imports others, the longest chain that begins with it."""
    chains: dict[str, list[str]] = {}
    for one in graphlib.TopologicalSorter(graph).static_order():
        below = [chains[other] for other in graph.get(one, ())]
        chains[one] = [one, *max(below, key=len, default=[])]
    return chains


def read_project() -> dict[str, list[Import]]:
    """Returns the imports of each module; compiled units and stubs count as ones without any."""
    modules = {}
    for path in sorted(path for package in PACKAGES for path in (PROJECT / package).rglob("*.py")):
        parts = path.relative_to(PROJECT).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        modules[module] = imports_in(path.read_text("utf-8"), module, is_package=is_package)
    units = {f"ipu_keras.{path.stem}": [] for path in (PROJECT / "_cext").glob("*.pyx")}
    stubs = {
        ".".join(path.relative_to(PROJECT).with_suffix("").parts): []
        for path in (PROJECT / "ipu_keras").rglob("*.pyi")
    }
    return modules | units | stubs


# What users name: they stand on one floor, and need each other.
_DOCUMENTED = "documented names"
# Documented names above all others, with the room that stands on these as well.
_ESTIMATORS = (
    "ipu_estimator",
    "ipu_pipeline_estimator",
    "ipu_run_config",
    "ipu_session_run_hooks",
)
_PRIVATE_FILES = ("ipu_keras._aliases", "ipu_keras._requirements")


def _box_of(folder: str) -> str | None:
    """What the picture calls a folder; `None` if it leaves it out."""
    name = folder.removeprefix("ipu_keras.")
    if folder in PACKAGES[1:]:
        return folder
    if folder == "ipu_keras" or folder in _PRIVATE_FILES or name.startswith("_"):
        return None
    if name in _ESTIMATORS:
        return "estimators"
    is_file = (PROJECT / "ipu_keras" / f"{name}.py").exists()
    return _DOCUMENTED if is_file or name in ("data", "ops", "optimizers") else name


def _reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    pending = [start]
    while pending:
        new = graph.get(pending.pop(), set()) - found
        found |= new
        pending.extend(new)
    return found


def room_graph(imports: Iterable[Import], modules: Iterable[str]) -> dict[str, set[str]]:
    """Returns by room those that it imports; documented names are one, as in the picture."""
    graph: dict[str, set[str]] = {}
    for folder, others in folder_graph(imports, modules).items():
        box = _box_of(folder)
        boxes = {other for other in map(_box_of, others) if other not in (None, box)}
        if box is not None:
            graph.setdefault(box, set()).update(boxes)
    return graph


def longest_chain(imports: Iterable[Import], modules: Iterable[str]) -> list[str]:
    """Returns rooms of which each imports the next one, as many as there are.

    What is taken from the package itself is what any module may name, such as its version.

    Raises:
        graphlib.CycleError: Two rooms need each other.
    """
    return max(_chains(room_graph(imports, modules)).values(), key=len)


def longest_chain_of_modules(imports: Iterable[Import], modules: Iterable[str]) -> list[str]:
    """Returns modules of which each imports the next one, as many as there are."""
    graph: dict[str, set[str]] = {}
    for item in imports:
        imported = owner(item.target, modules)
        if imported not in (None, item.module):
            graph.setdefault(item.module, set()).add(imported)
    return max(_chains(graph).values(), key=len)


def picture(imports: Iterable[Import], modules: Iterable[str]) -> str:
    """Returns the rooms and their imports in Mermaid's words.

    An import that follows from others is left out: of a room above two that import each other in
    turn, only the arrow to the upper one is drawn.
    """
    graph = room_graph(imports, modules)
    floors = {box: len(chain) for box, chain in _chains(graph).items()}
    order = sorted(floors, key=lambda box: (-floors[box], box))
    arrows = [
        f"    {box.replace(' ', '_')} --> {other.replace(' ', '_')}"
        for box in order
        for other in sorted(graph.get(box, ()))
        if not any(other in _reached(graph, between) for between in graph[box] - {other})
    ]
    names = [f'    {box.replace(" ", "_")}["{box}"]' for box in order]
    return "\n".join(["```mermaid", "flowchart TD", *names, *arrows, "```"])


if __name__ == "__main__":
    project = read_project()
    print(picture([item for imports in project.values() for item in imports], project))
