"""What is asked for when a program is compiled: files about it, and a verdict."""

import itertools
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import tensorflow as tf

from ipu_keras.cached_models import export_model
from ipu_keras.compilation_outputs import CompilationOutputs
from ipu_keras.executable import CycleCount, Executable
from ipu_keras.flags import ENVIRONMENT_VARIABLE
from ipu_keras.profiling import report_of_executable
from ipu_keras.program import Program
from ipu_keras.recompilation import Recompilation
from ipu_keras.report import Report, schedule_dot, tensor_map
from ipu_keras.tracing.lowering import LoweringError

_LOGGER = logging.getLogger("ipu_keras")


# A page is written where it can be: compiling a program must not fail for want of an extra.
_LIBRARIES_OF_PAGES = ("jinja2", "matplotlib")


def report_compilation(
    executable: Executable,
    outputs: CompilationOutputs,
    recompilations: tuple[Recompilation, ...] = (),
) -> CycleCount | None:
    """Models a program that was just compiled, writes its files, and judges whether it fits.

    Args:
        executable: The compiled program; it has not run yet.
        outputs: What is asked for. A program of which there is no model may run, with a note,
            unless `debug.allowOutOfMemory` is `"false"`.
        recompilations: Why programs of its name were compiled again, this one included.

    Returns:
        What to log after each execution, if anything.

    Raises:
        ValueError: The tile of `--log_cycle_count` does not exist.
        tf.errors.ResourceExhaustedError: It does not fit on an IPU, and
            `debug.allowOutOfMemory` is not `"true"`. Files are written before.
        LoweringError: XLA cannot compile an operation of the program, which may therefore not run.
    """
    try:
        report = report_of_executable(executable)
    except LoweringError as error:
        if outputs.engine.allows_out_of_memory is False:
            raise
        name, reason = executable.program.name, str(error).splitlines()[0]
        if outputs.needs_model:
            _LOGGER.warning("There is no model of program %r, nor its files. %s", name, reason)
        else:
            _LOGGER.info("Whether program %r fits is not known. %s", name, reason)
        return None
    report = replace(report, recompilations=recompilations)
    cycle_count = _cycle_count(report, executable.program, outputs.flags.log_cycle_count)
    _write_files(report, outputs)
    if report.memory_error is not None:
        if not outputs.engine.allows_out_of_memory:
            raise tf.errors.ResourceExhaustedError(None, None, _out_of_memory(report))
        _LOGGER.warning("%s", _out_of_memory(report))
    return cycle_count


def _cycle_count(report: Report, program: Program, tile: int) -> CycleCount | None:
    target = report.model.target
    if tile >= target.num_tiles:
        raise ValueError(
            f"The flag --log_cycle_count in {ENVIRONMENT_VARIABLE} must name a tile of "
            f"{target.name}, 0 to {target.num_tiles - 1}. Received: {tile}"
        )
    if tile < 0:
        return None
    return CycleCount(tile=tile, cycles=report.cycles_per_step * program.repeat_count)


def _write_files(report: Report, outputs: CompilationOutputs) -> None:
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


def _out_of_memory(report: Report) -> str:
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
