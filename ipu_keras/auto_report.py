"""What the engine options ask for when a program is compiled: its report, and a verdict."""

from pathlib import Path

import tensorflow as tf

from ipu_keras.engine_options import EngineOptions
from ipu_keras.profiling import report_of_program
from ipu_keras.program import Program
from ipu_keras.report import Report


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
        f'tile, values of {layers}. Set `debug.allowOutOfMemory` to "true" in '
        f"POPLAR_ENGINE_OPTIONS to run it nevertheless. {remedies}"
    )
