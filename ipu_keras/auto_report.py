"""What the engine options ask for when a program is compiled: its report, and a verdict."""

from importlib.util import find_spec
from pathlib import Path

import tensorflow as tf

from ipu_keras.engine_options import EngineOptions
from ipu_keras.profiling import report_of_program
from ipu_keras.program import Program
from ipu_keras.report import Report

# A page is written where it can be: compiling a program must not fail for want of an extra.
_LIBRARIES_OF_PAGES = ("jinja2", "matplotlib")


def report_compilation(program: Program, options: EngineOptions) -> None:
    """Models a program that was just compiled, writes its report, and judges whether it fits.

    Args:
        program: The program; it has not run yet.
        options: Of the engine; they need a report.

    Raises:
        tf.errors.ResourceExhaustedError: It does not fit on an IPU, and
            `debug.allowOutOfMemory` is `"false"`. A report is written before.
        LoweringError: XLA cannot compile an operation of the program.
    """
    report = report_of_program(program)
    if options.writes_reports:
        write_report(report, options.report_directory)
    if report.memory_error is not None and not options.allows_out_of_memory:
        raise tf.errors.ResourceExhaustedError(None, None, _out_of_memory(report))


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
    folder = directory / report.name
    number = 1
    while True:
        try:
            folder.mkdir(parents=True)
            break
        except FileExistsError:
            folder = directory / f"{report.name}_{number}"
            number += 1
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
    return (
        f"{report.memory_error}. Program {report.name!r} needs the most bytes for {parts}; on that "
        f"tile, values of {layers}. Use a smaller batch or float16, or set "
        '`debug.allowOutOfMemory` to "true" in POPLAR_ENGINE_OPTIONS to run it nevertheless.'
    )
