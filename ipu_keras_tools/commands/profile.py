"""The command `ipu-keras profile`, which models one step."""

import argparse

from ipu_keras_tools.modelling import report_of
from ipu_keras_tools.results import print_result


def run(given: argparse.Namespace) -> int:
    """Prints the report; returns 1 if the step does not fit."""
    report = report_of(given)
    print_result(given, report.to_dict(), str(report))
    return 0 if report.fits else 1
