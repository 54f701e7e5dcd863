"""Who may import whom: the table of the architecture, held against every module's source."""

import graphlib
from collections.abc import Iterable, Mapping

import pytest
from project_imports import (
    PROJECT,
    Import,
    import_cycle,
    imports_in,
    longest_chain,
    longest_chain_of_modules,
    owner,
    picture,
    read_project,
)
from rooms import (
    FLOORS,
    FUNCTION_LEVEL_IMPORTS,
    ROOMS,
    arrows_up,
    matches,
    undeclared_function_imports,
    violations,
)

from ipu_keras.store.executable_cache import CODE

# A longer chain means that somebody who follows a call has to know too much.
MOST_ROOMS_IN_A_CHAIN = 10
MOST_MODULES_IN_A_CHAIN = 35


@pytest.fixture(scope="module")
def project() -> Mapping[str, list[Import]]:
    return read_project()


@pytest.fixture(scope="module")
def all_imports(project) -> list[Import]:
    return [item for imports in project.values() for item in imports]


def test_the_project_is_read(project):
    assert {
        "ipu_keras",
        "ipu_keras.config",
        "ipu_keras._device",
        "ipu_addons",
        "ipu_keras_tools",
    } <= set(project)


def test_imports_follow_the_table(all_imports, project):
    assert list(violations(all_imports, project)) == []


def test_no_import_cycle(all_imports, project):
    assert import_cycle(all_imports, project) == []


def test_no_arrow_goes_up_within_a_room(all_imports, project):
    assert list(arrows_up(all_imports, project)) == []


def test_every_folder_of_a_room_is_a_floor():
    folders = {
        (path.parent.parent.name, path.parent.name)
        for path in (PROJECT / "ipu_keras").glob("*/*/__init__.py")
    }
    floors = {(room, floor) for room, floors in FLOORS.items() for floor in floors}
    assert folders - floors == set()


def test_floors_that_exist(project):
    missing = [
        (room, floor)
        for room, floors in FLOORS.items()
        for floor in floors
        if f"ipu_keras.{room}.{floor}" not in project
    ]
    assert missing == []


def test_no_chain_of_rooms_is_long(all_imports, project):
    chain = longest_chain(all_imports, project)
    assert len(chain) <= MOST_ROOMS_IN_A_CHAIN, chain


def test_no_chain_of_modules_is_long(all_imports, project):
    chain = longest_chain_of_modules(all_imports, project)
    assert len(chain) <= MOST_MODULES_IN_A_CHAIN, " ".join(chain)


def test_the_picture_is_that_of_the_code(all_imports, project):
    text = (PROJECT / "docs" / "architecture.md").read_text("utf-8")
    found = text[text.index("```mermaid") :].partition("\n```\n")[0] + "\n```"
    assert found == picture(all_imports, project), (
        "Replace the picture in docs/architecture.md by what this prints: "
        "python tests/project_imports.py"
    )


def test_every_folder_is_a_room():
    folders = {path.parent.name for path in (PROJECT / "ipu_keras").glob("*/__init__.py")}
    rooms = {room.modules[0].removeprefix("ipu_keras.") for room in ROOMS}
    assert folders - rooms == {"data", "horovod", "ops", "optimizers", "popdist"}


def needed_by(start: Iterable[str], project: Mapping[str, list[Import]]) -> set[str]:
    """Returns modules of the project with all that they import, directly or not."""
    found: set[str] = set()
    pending = list(start)
    while pending:
        module = pending.pop()
        if module not in found:
            found.add(module)
            imported = (owner(item.target, project) for item in project[module])
            pending.extend(other for other in imported if other is not None)
    return found


def test_cached_models_follow_from_the_digest_of_the_code(project):
    """A change of any module that decides on a graph or its model gives them other keys."""
    covered = [f"ipu_keras.{entry.removesuffix('.py').replace('/', '.')}" for entry in CODE]
    needed = needed_by(["ipu_keras.cost.passes", "ipu_keras.tracing.hlo"], project)
    # A package of re-exports decides on nothing, and numbers do not change what programs cost.
    others = {"ipu_keras", "ipu_keras.machine", "ipu_keras.machine.numerics", "ipu_keras.store"}
    assert {name for name in needed if not matches(name, covered)} <= others


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
    "ipu_keras._requirements",
    "ipu_keras.config",
    "ipu_keras.cost",
    "ipu_keras.cost.passes",
    "ipu_keras.hooks",
    "ipu_keras.hooks.installation",
    "ipu_keras.hooks.keras",
    "ipu_keras.hooks.keras.layer_calls",
    "ipu_keras.hooks.tensorflow",
    "ipu_keras.hooks.tensorflow.eager",
    "ipu_keras.host",
    "ipu_keras.host.plan",
    "ipu_keras.internals",
    "ipu_keras.internals.fallbacks",
    "ipu_keras.internals.forms",
    "ipu_keras.internals.keras",
    "ipu_keras.internals.keras.models",
    "ipu_keras.internals.tensorflow",
    "ipu_keras.internals.tensorflow.xla",
    "ipu_keras.ir",
    "ipu_keras.keras",
    "ipu_keras.keras.extensions",
    "ipu_keras.ops",
    "ipu_keras.ops.nn_ops",
    "ipu_keras.program",
    "ipu_keras.program.executable",
    "ipu_keras.runtime",
    "ipu_keras.settings",
    "ipu_keras.settings.flags",
    "ipu_keras.utils",
}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("ipu_keras.config", "import re, numpy; from ipu_keras.settings import flags"),
        ("ipu_keras.settings.flags", "import re, numpy"),
        (
            "ipu_keras.runtime.engine",
            "from ipu_keras import _engine; from ipu_keras.program import executable",
        ),
        ("ipu_keras.ops.nn_ops", "import tensorflow as tf; from ipu_keras import _device"),
        ("ipu_keras.ops.nn_ops", "from ipu_keras.internals.tensorflow import contexts"),
        ("ipu_keras.host.plan", "from ipu_keras.internals.fallbacks import fallbacks"),
        ("ipu_keras.internals.tensorflow.contexts", "from tensorflow.python.eager import context"),
        ("ipu_keras.internals.tensorflow.contexts", "from ipu_keras.internals import forms"),
        ("ipu_keras.keras.layers", "import keras; from ipu_keras.cost import overlap"),
        ("ipu_keras.keras.layers", "from ipu_keras.runtime import Engine"),
        ("ipu_keras.keras.layers", "from ipu_keras.hooks.keras import layer_calls"),
        ("ipu_keras.keras.layers", "from ipu_keras.internals.keras import models"),
        ("ipu_keras.internals.keras.models", "from keras.src.models import functional"),
        ("ipu_keras.device.placement", "from ipu_keras.hooks.tensorflow import eager"),
        (
            "ipu_keras.hooks.keras.layer_calls",
            "import keras; from ipu_keras.hooks import installation",
        ),
        ("ipu_keras.hooks.keras.layer_calls", "from ipu_keras.internals.keras import models"),
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
        ("ipu_keras.settings.flags", "import tensorflow as tf", "tensorflow"),
        ("ipu_keras.settings.flags", "from ipu_keras import config", "ipu_keras.config"),
        ("ipu_keras.program.pipeline", "from ipu_keras import host", "ipu_keras.host"),
        ("ipu_keras.machine.target", "import scipy", "scipy"),
        ("ipu_keras.machine.target", "from .. import _engine", "ipu_keras._engine"),
        ("ipu_keras.cost.passes", "from ipu_keras import host", "ipu_keras.host"),
        ("ipu_keras.host.plan", "from ipu_keras.cost import overlap", "ipu_keras.cost.overlap"),
        ("ipu_keras.config", "from ipu_keras.cost import passes", "ipu_keras.cost.passes"),
        ("ipu_keras.ir.graph", "import tensorflow.python.eager", "tensorflow.python.eager"),
        ("ipu_keras.cost.cost", "from keras import layers", "keras.layers"),
        ("ipu_keras.program.executable", "from ipu_keras import _device", "ipu_keras._device"),
        ("ipu_keras.report.text", "from ..runtime import Engine", "ipu_keras.runtime.Engine"),
        ("ipu_keras.runtime.engine", "import ipu_keras.cost", "ipu_keras.cost"),
        ("ipu_keras.runtime.engine", "from ipu_keras import _device", "ipu_keras._device"),
        ("ipu_keras.runtime.engine", "import tensorflow", "tensorflow"),
        ("ipu_keras.runtime.engine", "import keras", "keras"),
        ("ipu_keras.ops.nn_ops", "import keras", "keras"),
        (
            "ipu_keras.ops.nn_ops",
            "from ipu_keras.hooks.keras import layer_calls",
            "ipu_keras.hooks.keras.layer_calls",
        ),
        (
            "ipu_keras.ops.nn_ops",
            "from ipu_keras.internals.keras import models",
            "ipu_keras.internals.keras.models",
        ),
        ("ipu_keras.keras.layers", "from keras.src import backend", "keras.src.backend"),
        ("ipu_keras.hooks.keras.layer_calls", "from keras.src import backend", "keras.src.backend"),
        (
            "ipu_keras.hooks.keras.layer_calls",
            "from ipu_keras.ops import nn_ops",
            "ipu_keras.ops.nn_ops",
        ),
        ("ipu_keras.hooks.tensorflow.eager", "import keras", "keras"),
        (
            "ipu_keras.hooks.tensorflow.eager",
            "from ipu_keras import device",
            "ipu_keras.device",
        ),
        (
            "ipu_keras.internals.tensorflow.xla",
            "from ipu_keras.internals.keras import models",
            "ipu_keras.internals.keras.models",
        ),
        ("ipu_keras.device.placement", "def f(): import keras.ops", "keras.ops"),
        ("ipu_keras.ipu_strategy", "from ipu_keras import keras", "ipu_keras.keras"),
        ("ipu_keras.host.plan", "if TYPE_CHECKING: import keras", "keras"),
        ("ipu_keras.host.plan", "importlib.import_module('keras.ops')", "keras.ops"),
        ("ipu_keras.host.plan", "__import__('keras')", "keras"),
        ("ipu_keras.keras.layers", "from ipu_keras import _device", "ipu_keras._device"),
        ("ipu_keras.keras.layers", "import ipu_keras._engine", "ipu_keras._engine"),
        (
            "ipu_keras.keras.layers",
            "from ipu_keras.cost.passes import model_graph",
            "ipu_keras.cost.passes.model_graph",
        ),
        ("ipu_keras.ops.nn_ops", "from tensorflow.python import eager", "tensorflow.python.eager"),
        ("ipu_keras.host.plan", "import tensorflow.core.framework", "tensorflow.core.framework"),
        ("ipu_keras.keras.layers", "import tensorflow.compiler.xla", "tensorflow.compiler.xla"),
        (
            "ipu_keras.host.plan",
            "from ipu_keras.internals.forms import PrivateName",
            "ipu_keras.internals.forms.PrivateName",
        ),
        (
            "ipu_keras.internals.forms",
            "from tensorflow.python import eager",
            "tensorflow.python.eager",
        ),
        (
            "ipu_keras.cost.cost",
            "from ipu_keras.internals.tensorflow import xla",
            "ipu_keras.internals.tensorflow.xla",
        ),
        (
            "ipu_addons.layers",
            "from ipu_keras.internals.tensorflow import xla",
            "ipu_keras.internals.tensorflow.xla",
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


@pytest.mark.parametrize(
    ("source", "module", "is_up"),
    [
        ("from ipu_keras.cost.pipeline.offloading import offload", "cost.flat.host_work", True),
        ("from ipu_keras.cost.passes import MODEL_PASSES", "cost.vertices.families", True),
        ("from ipu_keras.cost import overlap", "cost.flat.fusion", True),
        ("from ipu_keras.cost.flat.fusion import fuse", "cost.pipeline.offloading", False),
        ("from ipu_keras.cost.flat.fusion import fuse", "cost.flat.flattening", False),
        ("from ipu_keras.cost.passes import MODEL_PASSES", "cost.model_checks", False),
        ("from ipu_keras.cost.flat.fusion import fuse", "cost.passes", False),
        ("from ipu_keras.cost.passes import MODEL_PASSES", "report.report", False),
        ("import numpy", "cost.flat.fusion", False),
    ],
)
def test_arrows_up(source, module, is_up, project):
    found = list(arrows_up(imports_in(source, f"ipu_keras.{module}"), project))
    assert bool(found) == is_up


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
                "ipu_keras.config": "def f(): from ipu_keras.program.executable import Executable",
                "ipu_keras.program.executable": "import ipu_keras.utils",
            },
            {"ipu_keras.utils", "ipu_keras.config", "ipu_keras.program.executable"},
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


def test_chains():
    sources = {
        "ipu_keras.keras": "from ipu_keras.host import plan; from ipu_keras import settings",
        "ipu_keras.host.plan": "from ipu_keras.host import build; from ipu_keras import program",
        "ipu_keras.program": "from ipu_keras import IPUStrategy",
    }
    imports = [item for module, text in sources.items() for item in imports_in(text, module)]
    assert longest_chain(imports, MODULES) == [
        "keras",
        "host",
        "program",
    ]
    back = imports_in("import ipu_keras.keras", "ipu_keras.program")
    with pytest.raises(graphlib.CycleError):
        longest_chain([*imports, *back], MODULES)
