"""The table of the architecture: who may import whom, and what makes an import a violation.

A pattern names a module and everything below it; one that ends in `.*`, only what is below.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from project_imports import Import, owner

# What only the rooms that are there for it may import: private names of TensorFlow and Keras, and
# what says how they look.
PRIVATE = (
    "keras.src",
    "tensorflow.compiler",
    "tensorflow.core",
    "tensorflow.python",
    "ipu_keras.internals.forms",
)


@dataclass(frozen=True)
class Room:
    """Modules with one set of rules. The standard library is open to all of them.

    Args:
        name: What a violation calls it.
        modules: Patterns of the modules that are in this room.
        allowed: Patterns of what they may import.
        forbidden: Patterns of what they may not, though `allowed` has it.
        private: Whether they may import private names, of libraries that `allowed` has.
    """

    name: str
    modules: tuple[str, ...]
    allowed: tuple[str, ...]
    forbidden: tuple[str, ...] = ()
    private: bool = False


def of(*rooms: str) -> tuple[str, ...]:
    """The modules of rooms, which are folders of `ipu_keras`."""
    return tuple(f"ipu_keras.{room}" for room in rooms)


GROUND = of("settings", "machine", "ir", "store")
PROGRAM = (*GROUND, *of("program"))
INTERNALS = of("internals")
# TensorFlow, and what is private in it.
TENSORFLOW = ("tensorflow", *of("internals.fallbacks", "internals.tensorflow"))
MODEL = (*PROGRAM, *of("cost", "advice", "report"))
# What computes: it never asks what a program would cost.
COMPUTING = (
    *PROGRAM,
    *of("progress", "tracing", "host", "feeds", "runtime", "device", "functions"),
)

# Below the names of documented operations.
BELOW = (
    "collectives ctc_* multi_convolution nonlinearities normalized_groups recurrent sequence_rows"
)
BELOW_NAMES = of("config", "profiling", "popart", *(f"ops.{name}" for name in BELOW.split()))
CHECKS = ("google.protobuf", "numpy", "onnx", *of("_documented_names", "_requirements"))
ONNX = (*CHECKS, *TENSORFLOW, *MODEL, *COMPUTING, *BELOW_NAMES)

# What is behind the documented names, and may change without notice.
INTERNAL = ("*._*", *INTERNALS, *MODEL, *COMPUTING, *of("hooks", "profiling"))

# The table of docs/architecture.md. The first room that has a module is the module's room.
ROOMS = (
    Room("settings", of("settings"), allowed=("numpy", *of("settings"))),
    Room("machine", of("machine"), allowed=("numpy", *of("settings", "machine"))),
    Room("ir", of("ir"), allowed=("numpy", *of("ir"))),
    # `rich` draws a line on terminals.
    Room("progress", of("progress"), allowed=("rich", *of("settings", "progress"))),
    Room("store", of("store"), allowed=("numpy", *of("store"))),
    Room("program", of("program"), allowed=("numpy", *PROGRAM)),
    Room("cost", of("cost"), allowed=("numpy", *PROGRAM, *of("cost"))),
    Room("advice", of("advice"), allowed=("numpy", *PROGRAM, *of("cost", "advice"))),
    # `rich` draws tables for terminals; the others make further forms of a report.
    Room(
        "report",
        of("report"),
        allowed=("jinja2", "matplotlib", "numpy", "pandas", "perfetto", "rich", *MODEL),
    ),
    # What a form is knows no library; the folders below each know one.
    Room(
        "tensorflow's internals",
        of("internals.tensorflow"),
        allowed=("tensorflow", *of("internals.forms", "internals.tensorflow")),
        private=True,
    ),
    Room(
        "keras's internals",
        of("internals.keras"),
        allowed=("keras", *of("internals.forms", "internals.keras")),
        private=True,
    ),
    Room("internals", of("internals"), allowed=INTERNALS, private=True),
    # What hooks call is given to them: they know nothing of what is above.
    Room(
        "tensorflow's hooks",
        of("hooks.tensorflow"),
        allowed=(*TENSORFLOW, *of("hooks.installation", "hooks.tensorflow")),
    ),
    Room(
        "keras's hooks",
        of("hooks.keras"),
        allowed=("keras", *of("hooks.installation", "hooks.keras", "internals.keras")),
    ),
    Room("hooks", of("hooks"), allowed=()),
    Room("tracing", of("tracing"), allowed=("numpy", *TENSORFLOW, *PROGRAM, *of("tracing"))),
    Room(
        "runtime",
        of("runtime"),
        allowed=("numpy", *PROGRAM, *of("_engine", "_rounding", "runtime")),
    ),
    Room(
        "device",
        of("device"),
        allowed=(
            "numpy",
            *TENSORFLOW,
            *PROGRAM,
            *of("_device", "hooks.tensorflow", "runtime", "device"),
        ),
    ),
    Room(
        "feeds",
        of("feeds"),
        allowed=("numpy", *TENSORFLOW, *PROGRAM, *of("_shuffle", "runtime", "feeds")),
    ),
    Room(
        "host",
        of("host"),
        allowed=(
            "numpy",
            *TENSORFLOW,
            *PROGRAM,
            *of(
                "_device",
                "_rounding",
                "_xla_calls",
                "processes",
                "progress",
                "tracing",
                "runtime",
                "device",
                "host",
            ),
        ),
    ),
    Room(
        "processes",
        of("processes"),
        ("mpi4py", "numpy", *TENSORFLOW, *PROGRAM, *of("_device", "_mpi_calls", "processes")),
    ),
    Room(
        "functions",
        of("functions"),
        ("numpy", *TENSORFLOW, *COMPUTING, *of("hooks.tensorflow", "processes")),
    ),
    Room(
        "profiling",
        of("profiling"),
        allowed=("numpy", *TENSORFLOW, *MODEL, *COMPUTING, *of("profiling")),
    ),
    Room(
        "keras",
        of("keras"),
        ("ipu_keras", "keras", "numpy", "tensorflow"),
        forbidden=("ipu_keras._*", "ipu_keras.cost.*", *of("functions")),
    ),
    Room(
        "popart",
        of("popart"),
        (*ONNX, *of("processes")),
        of("cost", "advice", "feeds", "functions"),
    ),
    Room("tf1", of("tf1"), allowed=(*TENSORFLOW, *of("hooks.tensorflow", "tf1"))),
    # What starts without TensorFlow, and what that loads when it is asked for.
    Room(
        "tools",
        ("ipu_keras_tools",),
        ("ipu_keras", "ipu_keras_tools", "keras", "numpy", "pytest", "rich", "tensorflow"),
        forbidden=("ipu_keras.cost.*", *of("functions", "hooks")),
    ),
    Room("command", of("__main__"), allowed=("ipu_keras_tools",)),
    Room("requirements", of("_requirements"), allowed=("keras", "onnx", "tensorflow")),
    Room("aliases", of("_aliases"), allowed=("tensorflow.compat.v1", "tensorflow.keras")),
    Room("documented names", of("_documented_names"), allowed=of("_aliases")),
    Room(
        "estimators",
        of(
            "estimators",
            "ipu_estimator",
            "ipu_pipeline_estimator",
            "ipu_run_config",
            "ipu_session_run_hooks",
        ),
        allowed=("ipu_keras", "numpy", "tensorflow"),
        forbidden=("ipu_keras.cost.*", *of("advice", "report", "keras", "hooks.keras")),
    ),
    Room(
        "documented",
        ("ipu_keras.*",),
        allowed=("ipu_keras", "numpy", "tensorflow"),
        forbidden=(
            "ipu_keras.cost.*",
            *of("advice", "report", "keras", "hooks.keras", "internals.keras"),
        ),
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

# Floors within rooms, the lowest first: each may import those before it. Modules of a room that are
# not named here stand above all of its floors.
FLOORS = {
    "cost": ("memory_sizes", "rewrites", "flat", "tile", "products", "pipeline", "vertices"),
    "data": ("ops",),
    "hooks": ("installation", "tensorflow", "keras"),
    "host": ("operation_kinds", "splitting", "rewrites", "replicas"),
    "internals": ("forms", "tensorflow", "keras"),
    "keras": ("call_arguments", "layers", "losses", "extensions", "legacy"),
    "ops": ("argument_checks", "recurrent", "rnn"),
    "popart": (
        "exceptions",
        "model",
        "options",
        "operations",
        "files",
        "graphs",
        "tensorinfo",
        "optimizers",
        "devices",
        "sessions",
    ),
}

# A function-level import says that a room is wrong, except for these (module, target).
FUNCTION_LEVEL_IMPORTS = {
    (
        "ipu_keras.keras.extensions.model_steps",
        "ipu_keras.keras.extensions.profiled.profiled",
    ): "the cost model is for those who ask for it: its import takes as long as all the rest",
    (
        "ipu_keras.progress.phases",
        "ipu_keras.progress.display.display_on",
    ): "draws for who has waited for two seconds: its library is long to import",
    ("ipu_keras.processes.joining", "mpi4py.rc"): "is of the extra `mpi`, and joins when imported",
    ("ipu_keras.processes.joining", "mpi4py.MPI"): "is of the extra `mpi`, and joins when imported",
    ("ipu_keras._requirements", "tensorflow"): "is what the function finds out",
    ("ipu_keras._requirements", "onnx"): "is what the function finds out",
    ("ipu_keras._requirements", "keras"): "would fail without TensorFlow, which is checked first",
    (
        "ipu_keras.profiling.compilation",
        "ipu_keras.profiling.verdict.judge",
    ): "the cost model is for those who ask for it: its import takes as long as all the rest",
    (
        "ipu_keras.profiling.verdict",
        "ipu_keras.profiling.reports.report_of_program",
    ): "reports are for those who ask for them, and for programs that do not fit",
    (
        "ipu_keras.profiling.verdict",
        "ipu_keras.profiling.report_files.out_of_memory",
    ): "reports are for those who ask for them, and for programs that do not fit",
    (
        "ipu_keras.profiling.verdict",
        "ipu_keras.profiling.report_files.write_files",
    ): "reports are for those who ask for them, and for programs that do not fit",
    (
        "ipu_keras.ops.summary_ops",
        "ipu_keras.profiling.reports.last_report",
    ): "the cost model is for those who ask for it: its import takes as long as all the rest",
    (
        "ipu_keras.report.difference",
        "ipu_keras.report.html_pictures.broad_and_narrow",
    ): "needs libraries of an extra, whose import takes a second",
    (
        "ipu_keras.report.difference",
        "ipu_keras.report.html_pictures.compared_liveness",
    ): "needs libraries of an extra, whose import takes a second",
    (
        "ipu_keras.report.difference",
        "ipu_keras.report.html_pictures.compared_memory",
    ): "needs libraries of an extra, whose import takes a second",
    (
        "ipu_keras.report.difference",
        "ipu_keras.report.html_templates.template_named",
    ): "needs libraries of an extra, whose import takes a second",
    (
        "ipu_keras.report.report",
        "ipu_keras.report.html",
    ): "needs libraries of an extra, whose import takes a second",
    (
        "ipu_keras.report.notebook",
        "ipu_keras.report.html_templates.template_named",
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
        "ipu_keras_tools.arguments",
        "importlib.metadata.version",
    ): "takes as long as the parser with all commands, and is for `--version`",
    (
        "ipu_keras_tools.modelling",
        "ipu_keras_tools.onnx_files",
    ): "is for ONNX models, and needs what not every user installs",
    (
        "ipu_keras_tools.pytest_plugin",
        "ipu_keras_tools.configured_ipus.configured_ipus",
    ): "imports TensorFlow, which is for tests that ask for it",
    (
        "ipu_keras_tools.pytest_plugin",
        "ipu_keras_tools.held_reports.HeldReports",
    ): "imports TensorFlow, which is for tests that ask for it",
    (
        "ipu_keras_tools.results",
        "ipu_keras.report.text.printable",
    ): "imports Rich, and few texts have what it is needed for",
    (
        "ipu_keras_tools.refusals",
        "ipu_keras.store.atomic_files.check_place",
    ): "would import TensorFlow, and is imported without it where a file is to be written",
    (
        "ipu_keras._aliases",
        "tensorflow.compat.v1",
    ): "must not be loaded in a process without TensorFlow",
    (
        "ipu_keras._aliases",
        "tensorflow.keras",
    ): "must not be loaded in a process without TensorFlow",
}


def matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, one) for each in patterns for one in (each, f"{each}.*"))


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
        elif (
            matches(judged, room.forbidden)
            or not matches(judged, room.allowed)
            or (matches(judged, PRIVATE) and not room.private)
        ):
            yield f"{item}, which the room {room.name!r} may not"


def _floor_of(module: str) -> tuple[str, str, int] | None:
    """Returns a module's room, what of the room it is in, and how high that stands."""
    package, _, rest = module.partition(".")
    room, _, place = rest.partition(".")
    place = place.partition(".")[0]
    floors = FLOORS.get(room, ())
    if package != "ipu_keras" or not floors:
        return None
    return room, place, floors.index(place) if place in floors else len(floors)


def arrows_up(imports: Iterable[Import], modules: Iterable[str]) -> Iterator[str]:
    """Yields a line for each import that goes from a floor of a room to the same or a higher one.

    Modules above all floors may import each other, as may those of one folder.
    """
    for item in imports:
        above = _floor_of(item.module)
        below = _floor_of(owner(item.target, modules) or "")
        if above is None or below is None or above[0] != below[0] or above[1] == below[1]:
            continue
        if below[2] >= above[2] and above[2] < len(FLOORS[above[0]]):
            yield f"{item}, which stands above it"


def undeclared_function_imports(imports: Iterable[Import]) -> Iterator[str]:
    """Yields a line for each function-level import that has no reason in the table."""
    for item in imports:
        if item.in_function and (item.module, item.target) not in FUNCTION_LEVEL_IMPORTS:
            yield f"{item} in a function"
