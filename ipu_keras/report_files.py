"""Files about a program that was compiled, and what is said of one that does not fit."""

import itertools
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from ipu_keras.cached_models import export_model
from ipu_keras.compilation_outputs import CompilationOutputs
from ipu_keras.report import Report, schedule_dot, tensor_map

# A page is written where it can be: compiling a program must not fail for want of an extra.
_LIBRARIES_OF_PAGES = ("jinja2", "matplotlib")


def write_files(report: Report, outputs: CompilationOutputs) -> None:
    """Writes what is asked for whenever a program is compiled.

    Args:
        report: Of the program.
        outputs: What is asked for.
    """
    engine, flags, model = outputs.engine, outputs.flags, report.model
    if engine.writes_reports:
        write_report(report, engine.report_directory)
    if flags.tensor_map_file_path:
        text = json.dumps(tensor_map(model), separators=(",", ":"))
        _write_new(Path(flags.tensor_map_file_path), report.name, ".tensor_map.json", text)
    if flags.dump_schedule_as_dot:
        _write_new(engine.report_directory, report.name, ".schedule.dot", schedule_dot(model))
    if outputs.executable_folder is not None:
        export_model(model, outputs.executable_folder)


def _write_new(directory: Path, name: str, suffix: str, text: str) -> None:
    """Writes a file with a name that none has yet."""
    directory.mkdir(parents=True, exist_ok=True)
    for numbered in _numbered(name):
        try:
            with open(directory / f"{numbered}{suffix}", "x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            continue
        return


def _numbered(name: str) -> Iterator[str]:
    """The name, then the name with 1, 2 and so on."""
    yield name
    yield from (f"{name}_{number}" for number in itertools.count(1))


def write_report(report: Report, directory: Path) -> Path:
    """Writes a report as text, JSON and timeline.

    It is written as an HTML page as well if the extra `ipu-keras[report]` is installed.

    Args:
        report: Of a program.
        directory: Gets a folder with the program's name, with a number if there is
            one already: nothing is overwritten.

    Returns:
        The folder.
    """
    for name in _numbered(report.name):
        folder = directory / name
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        break
    (folder / "report.txt").write_text(str(report), encoding="utf-8")
    (folder / "report.json").write_text(report.to_json(), encoding="utf-8")
    (folder / "trace.json").write_text(report.to_chrome_trace(), encoding="utf-8")
    if all(map(find_spec, _LIBRARIES_OF_PAGES)):
        report.to_html(folder / "report.html")
    return folder


def out_of_memory(report: Report) -> str:
    """What takes the memory of a program that does not fit, and what would help.

    Args:
        report: Of the program.
    """
    memory = report.model.memory
    largest = sorted(memory.bytes_by_category.items(), key=lambda item: -item[1])[:3]
    parts = ", ".join(f"{name.replace('_', ' ')} {size:,}" for name, size in largest)
    layers = ", ".join(f"{name} {size:,}" for name, size in report.layers_of_worst_tile()[:3])
    fixes = "\n- ".join(["Changes that need less memory, by the model:", *map(str, report.fixes)])
    remedies = fixes if report.fixes else "No change that was tried needs less memory."
    return (
        f"{report.memory_error}. Program {report.name!r} needs the most bytes for {parts}; on that "
        f"tile, values of {layers}. It runs nevertheless with "
        f'POPLAR_ENGINE_OPTIONS=\'{{"debug.allowOutOfMemory": "true"}}\'. {remedies}'
    )
