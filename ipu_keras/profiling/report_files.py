"""Files about a program that was compiled, and the message for one that does not fit."""

import itertools
import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path

from ipu_keras.advice.changed_programs import ON_MORE_IPUS
from ipu_keras.profiling.models import export_model
from ipu_keras.profiling.requested_outputs import RequestedOutputs
from ipu_keras.program import DeviceChoices
from ipu_keras.report.report import Report
from ipu_keras.report.schedule_dot import schedule_dot
from ipu_keras.report.tensor_map import tensor_map
from ipu_keras.settings import engine_options, flags
from ipu_keras.store.atomic_files import make_folder, warns_if_it_fails, write_atomically

# A page is written only if these are installed: compiling must not fail for want of an extra.
_LIBRARIES_OF_PAGES = ("jinja2", "matplotlib")

_REPORT_DIRECTORY = f"'autoReport.directory' in {engine_options.ENVIRONMENT_VARIABLE}"
_TENSOR_MAP_DIRECTORY = f"--tensor_map_file_path in {flags.ENVIRONMENT_VARIABLE}"

# Most file systems take 255 bytes, and to a name are added a number, a suffix and the mark of a
# file that is not yet whole.
_MOST_BYTES_OF_NAME = 128


def write_files(report: Report, outputs: RequestedOutputs) -> None:
    """Writes the files that are asked for whenever a program is compiled.

    A directory that cannot be used is left alone, with a warning.
    """
    model, directory = report.model, outputs.engine.report_directory
    if outputs.engine.writes_reports:
        with _warns("the report", report, directory, _REPORT_DIRECTORY):
            write_report(report, directory)
    if outputs.flags.tensor_map_file_path:
        maps = Path(outputs.flags.tensor_map_file_path)
        text = json.dumps(tensor_map(model), separators=(",", ":"))
        with _warns("the tensor map", report, maps, _TENSOR_MAP_DIRECTORY):
            _write_new(maps, report.name, ".tensor_map.json", text)
    if outputs.flags.dump_schedule_as_dot:
        with _warns("the schedule", report, directory, _REPORT_DIRECTORY):
            _write_new(directory, report.name, ".schedule.dot", schedule_dot(model))
    if outputs.executable_folder is not None:
        export_model(model, outputs.executable_folder)


def _warns(what: str, report: Report, directory: Path, option: str) -> AbstractContextManager[None]:
    """Turns errors in writing into a warning: a run does not end for want of a place for files."""
    return warns_if_it_fails(
        f"The directory {str(directory)!r} cannot be used for {what} of program {report.name!r}; "
        f"{option} can name another one"
    )


def _write_new(directory: Path, program: str, suffix: str, text: str) -> None:
    """Writes a file under a name that none has yet."""
    make_folder(directory)
    for name in _numbered(file_name(program)):
        path = directory / f"{name}{suffix}"
        try:
            # Nobody else takes the name while the file is being written.
            path.touch(exist_ok=False)
        except FileExistsError:
            continue
        break
    try:
        write_atomically(path, text.encode())
    except BaseException:
        path.unlink()
        raise


def _numbered(name: str) -> Iterator[str]:
    """Yields the name, then the name with 1, 2 and so on."""
    yield name
    yield from (f"{name}_{number}" for number in itertools.count(1))


def file_name(program: str) -> str:
    """Returns a name for files of a program: its own, as far as any file can have it.

    It has letters, digits and `._-` only, is not hidden, and leaves room for a suffix. Programs
    can be called anything, as functions can.

    Example:

    >>> file_name("train"), file_name("a/b"), file_name("../<lambda>")
    ('train', 'a_b', '__lambda_')
    """
    safe = re.sub(r"^\.+|[^\w.-]+", "_", program) or "_"
    # Cut by bytes, as file systems count; half a character at the end is left out.
    return safe.encode()[:_MOST_BYTES_OF_NAME].decode(errors="ignore")


def write_report(report: Report, directory: Path) -> Path:
    """Writes a report as text, JSON, timeline and, with the extra `report`, as a page.

    Returns the folder, which is named after the program, with a number if there is one already:
    nothing is overwritten.
    """
    make_folder(directory)
    for name in _numbered(file_name(report.name)):
        folder = directory / name
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        break
    write_atomically(folder / "report.txt", str(report).encode())
    write_atomically(folder / "report.json", report.to_json().encode())
    write_atomically(folder / "trace.json", report.to_chrome_trace().encode())
    if all(map(find_spec, _LIBRARIES_OF_PAGES)):
        report.to_html(folder / "report.html")
    return folder


# How layers of Keras models and functions are put on several IPUs.
_ON_SEVERAL_IPUS = (
    "Layers are put on several IPUs by pipeline stages: `ipu_keras.suggest_pipeline` suggests "
    "them, a model's `set_pipeline_stage_assignment` sets them."
)


def out_of_memory(report: Report, choices: DeviceChoices | None = None) -> str:
    """Says what takes the memory of a program that does not fit, and what would help.

    Args:
        choices: What it was compiled for, if that is not what is configured.
    """
    memory = report.model.memory
    largest = sorted(memory.bytes_by_category.items(), key=lambda item: -item[1])[:3]
    parts = ", ".join(f"{name.replace('_', ' ')} {size:,}" for name, size in largest)
    layers = ", ".join(f"{name} {size:,}" for name, size in report.layers_of_worst_tile()[:3])
    guess = "" if memory.code_fits else " Bytes of code are a guess of the model."
    fixes = "\n- ".join(["Changes that need less memory, by the model:", *map(str, report.fixes)])
    remedies = fixes if report.fixes else "No change that was tried needs less memory."
    # Keras models get more IPUs by stages, other programs in ways that only their makers can
    # name.
    if any(ON_MORE_IPUS & fix.changes.keys() for fix in report.fixes):
        on_several = _ON_SEVERAL_IPUS if choices is None else choices.on_several_ipus
        remedies += f"\n{on_several}"
    return (
        f"{report.memory_error}. Program {report.name!r} needs the most bytes for {parts}; on that "
        f"tile, values of {layers}.{guess} It runs nevertheless with "
        f'POPLAR_ENGINE_OPTIONS=\'{{"debug.allowOutOfMemory": "true"}}\'. {remedies}'
    )
