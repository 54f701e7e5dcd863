"""The command `ipu-keras report`, which writes a report to files."""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ipu_keras.report.report import Report
from ipu_keras.store.atomic_files import write_atomically
from ipu_keras_tools.modelling import report_of
from ipu_keras_tools.results import UsageError, print_result


def _write(text_of: Callable[[Report], str], report: Report, path: str) -> None:
    write_atomically(Path(path), text_of(report).encode())


# Writers of files, by the argument that names the file.
_WRITERS: dict[str, Callable[[Report, str], None]] = {
    "html": Report.to_html,
    "text": partial(_write, str),
    "perfetto": Report.to_perfetto,
    "chrome_trace": partial(_write, Report.to_chrome_trace),
}


def run(given: argparse.Namespace) -> int:
    """Writes the files that were asked for; returns 1 if the step does not fit."""
    asked = {name: path for name in _WRITERS if (path := getattr(given, name)) is not None}
    report = report_of(given)
    for name, path in asked.items():
        try:
            _WRITERS[name](report, path)
        except (ImportError, OSError) as error:
            raise UsageError(f"{path} cannot be written: {error}") from error
    lines = [repr(report).strip("<>"), *(f"wrote {path}" for path in asked.values())]
    print_result(given, {"fits": report.fits, "files": asked}, "\n".join(lines))
    return 0 if report.fits else 1
