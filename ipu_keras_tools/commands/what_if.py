"""The command `ipu-keras what-if`, which compares choices."""

import argparse
from typing import Any

import ipu_keras
from ipu_keras.report.what_if import Choice
from ipu_keras_tools.modelling import (
    onnx_files,
    options_of,
    refusals_as_usage_errors,
    subject_and_specs,
)
from ipu_keras_tools.refusals import ONNX
from ipu_keras_tools.results import print_result


def run(given: argparse.Namespace) -> int:
    """Prints the table of choices; returns 1 if none fits."""
    if given.subject.endswith(ONNX):
        with refusals_as_usage_errors():
            table = onnx_files().what_if_of_onnx(given, options_of(given))
    else:
        subject, specs = subject_and_specs(given)
        with refusals_as_usage_errors():
            table = ipu_keras.what_if(subject, *specs, **options_of(given))
    best = table.best
    print_result(given, [_plain(row, row is best) for row in table.rows], str(table))
    return 1 if best is None else 0


def _plain(row: Choice, is_best: bool) -> dict[str, Any]:
    report, memory = row.report, row.report.model.memory
    return {
        "choices": dict(row.choices),
        "cycles_per_step": report.cycles_per_step,
        "seconds_per_step": report.seconds_per_step,
        "samples_per_second": row.samples_per_second,
        "max_tile_bytes": memory.max_tile_bytes,
        "tile_bytes": memory.tile_bytes,
        "fits": row.fits,
        "bound": report.bound,
        "is_best": is_best,
    }
