"""What the commands that model have in common: they call `ipu_keras` with what they were given."""

import argparse
import contextlib
import importlib
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import ipu_keras
from ipu_keras.report.report import Report
from ipu_keras.tracing.lowering import LoweringError
from ipu_keras_tools.refusals import ONNX
from ipu_keras_tools.results import UsageError
from ipu_keras_tools.subjects import spec_of, subject_of

# Keras writes bold letters into its errors, whether or not they go to a terminal.
_BOLD = re.compile("\x1b\\[[0-9;]*m")

# Arguments that say what to model and how to show it; all others are options of `profile`.
_NO_OPTIONS = frozenset(
    {"command", "module", "json", "subject", "specs", "html", "text", "perfetto", "chrome_trace"}
)


def subject_and_specs(given: argparse.Namespace) -> tuple[Any, tuple[Any, ...]]:
    """Returns the model or function that is to be modelled, and the specs of its arguments."""
    specs = tuple(map(spec_of, given.specs))
    return subject_of(given.subject), specs


def options_of(given: argparse.Namespace) -> dict[str, Any]:
    """Returns the options that were given, by the names of `ipu_keras.profile`."""
    return {
        name: value
        for name, value in vars(given).items()
        if name not in _NO_OPTIONS and value is not None
    }


def onnx_files() -> Any:
    """Imports what makes reports of ONNX models, or says what it needs."""
    try:
        return importlib.import_module("ipu_keras_tools.onnx_files")
    except ImportError as error:
        raise UsageError(str(error)) from error


@contextlib.contextmanager
def refusals_as_usage_errors() -> Iterator[None]:
    """Turns what `ipu_keras` refuses into usage errors, as it is what the command was given.

    Warnings are printed on lines of their own, without the line of code, which no user of a
    command wrote.
    """
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("default")
        try:
            yield
        except (LoweringError, TypeError, ValueError) as error:
            said = " ".join([str(error), *getattr(error, "__notes__", ())])
            raise UsageError(_BOLD.sub("", said)) from error
        finally:
            for warning in raised:
                print(f"warning: {warning.message}", file=sys.stderr)


def report_of(given: argparse.Namespace) -> Report:
    """Makes the report of what was given; what `ipu_keras.profile` refuses is a usage error."""
    if given.subject.endswith(ONNX):
        with refusals_as_usage_errors():
            return onnx_files().report_of_onnx(given)
    subject, specs = subject_and_specs(given)
    with refusals_as_usage_errors():
        return ipu_keras.profile(subject, *specs, **options_of(given))
