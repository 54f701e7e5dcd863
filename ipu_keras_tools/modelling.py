"""What the commands that model have in common: they call `ipu_keras` with what they were given."""

import argparse
import contextlib
import importlib
import os
import re
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

import ipu_keras
from ipu_keras.report.report import Report
from ipu_keras.tracing.lowering import LoweringError
from ipu_keras_tools.refusals import ONNX
from ipu_keras_tools.results import UsageError
from ipu_keras_tools.subjects import spec_of, subject_of

# Keras writes bold letters into its errors, whether or not they go to a terminal.
_BOLD = re.compile("\x1b\\[[0-9;]*m")

# Where there is no code of users, though what they call may raise there.
_LIBRARIES = tuple(
    f"{os.path.realpath(path)}/"
    for path in (
        *(sysconfig.get_path("stdlib"), os.path.dirname(__file__)),
        *(path for module in (ipu_keras, keras, tf) for path in module.__path__),
    )
)

# Arguments that say what to model and how to show it; all others are options of `profile`.
_NO_OPTIONS = frozenset(
    {"command", "module", "json", "subject", "specs", "html", "text", "perfetto", "chrome_trace"}
)


def subject_and_specs(given: argparse.Namespace) -> tuple[Any, tuple[Any, ...]]:
    """Returns the model or function that is to be modelled, and the specs of its arguments."""
    specs = tuple(map(spec_of, given.specs))
    with _users_code():
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
            with _users_code():
                yield
        except (LoweringError, TypeError, ValueError) as error:
            said = " ".join([str(error), *getattr(error, "__notes__", ())])
            raise UsageError(_BOLD.sub("", said)) from error
        finally:
            for warning in raised:
                print(f"warning: {warning.message}", file=sys.stderr)


@contextlib.contextmanager
def _users_code() -> Iterator[None]:
    """Runs what users wrote, which prints to standard error: a command's output is its answer.

    If it raises, or ends the process, that is a usage error, which shows their lines only.
    """
    with contextlib.redirect_stdout(sys.stderr):
        try:
            yield
        except UsageError:
            raise
        except (Exception, SystemExit) as error:
            lines = traceback.format_list(
                [
                    frame
                    for frame in traceback.extract_tb(error.__traceback__)
                    if not frame.filename.startswith("<")
                    and not os.path.realpath(frame.filename).startswith(_LIBRARIES)
                ]
            )
            if not lines and not isinstance(error, (SyntaxError, SystemExit)):
                raise
            said = " ".join([str(error), *getattr(error, "__notes__", ())])
            raised = _BOLD.sub("", f"SUBJECT has raised {type(error).__name__}: {said}")
            raise UsageError("\n".join([raised, *lines]).rstrip()) from error


def report_of(given: argparse.Namespace) -> Report:
    """Makes the report of what was given; what `ipu_keras.profile` refuses is a usage error."""
    if given.subject.endswith(ONNX):
        with refusals_as_usage_errors():
            return onnx_files().report_of_onnx(given)
    subject, specs = subject_and_specs(given)
    with refusals_as_usage_errors():
        return ipu_keras.profile(subject, *specs, **options_of(given))
