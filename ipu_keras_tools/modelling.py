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
from ipu_keras.report import Report
from ipu_keras.tracing.lowering import LoweringError
from ipu_keras_tools.results import UsageError
from ipu_keras_tools.subjects import spec_of, subject_of

# How Keras writes for terminals.
_BOLD = re.compile("\x1b\\[[0-9;]*m")

# How files of ONNX models end.
ONNX = ".onnx"

# Of those that commands have, the ones that say what to model and how to show it.
_NO_OPTIONS = frozenset(
    {"command", "module", "json", "subject", "specs", "html", "text", "perfetto", "chrome_trace"}
)


def subject_and_specs(given: argparse.Namespace) -> tuple[Any, tuple[Any, ...]]:
    """What is to be modelled.

    Args:
        given: The arguments.
    """
    if given.subject.endswith(ONNX):
        raise UsageError(f"{given.command} takes no ONNX model: `profile` and `report` do.")
    if not given.specs:
        raise UsageError("SPEC is missing: the shape and type of each argument, such as 32x784")
    specs = tuple(map(spec_of, given.specs))
    return subject_of(given.subject), specs


def options_of(given: argparse.Namespace) -> dict[str, Any]:
    """The options that were given, by the names of `ipu_keras.profile`.

    Args:
        given: The arguments.
    """
    return {
        name: value
        for name, value in vars(given).items()
        if name not in _NO_OPTIONS and value is not None
    }


def _report_of_onnx() -> Any:
    """What makes reports of ONNX models, for those who have what it needs."""
    try:
        return importlib.import_module("ipu_keras_tools.onnx_files").report_of_onnx
    except ImportError as error:
        raise UsageError(str(error)) from error


@contextlib.contextmanager
def refusals_as_usage_errors() -> Iterator[None]:
    """Around calls of `ipu_keras`: what it refuses is what the command was given.

    Warnings are on lines of their own, without the line of code that no user of a command wrote.
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
    """The report of what was given.

    Args:
        given: The arguments.

    Raises:
        UsageError: What `ipu_keras.profile` refuses.
    """
    if given.subject.endswith(ONNX):
        with refusals_as_usage_errors():
            return _report_of_onnx()(given)
    subject, specs = subject_and_specs(given)
    with refusals_as_usage_errors():
        return ipu_keras.profile(subject, *specs, **options_of(given))
