"""What commands print, and how they say that they cannot."""

import argparse
import json
import os
import sys
from contextlib import suppress
from typing import Any

from ipu_keras_tools.light_rooms import without_tensorflow


class UsageError(Exception):
    """What a user gave is not what a command takes; the text says what it takes."""


class Parser(argparse.ArgumentParser):
    """A parser whose help is an output: argparse's own says nothing if it cannot be written."""

    def print_help(self, file: Any = None) -> None:
        """Prints what `--help` says."""
        print_text(self.format_help().rstrip("\n"))


def print_result(given: argparse.Namespace, plain: Any, text: str) -> None:
    """Prints what was found: `plain` as JSON if `--json` was given, else `text`."""
    print_text(json.dumps(plain, indent=1) if given.json else printable_lines(text.rstrip("\n")))


def print_text(text: str) -> None:
    """Prints an output, or raises a usage error if it cannot be written.

    The reader of a pipe, such as `head`, may have had enough: then the rest is left out.
    """
    if sys.stdout is None:
        raise UsageError("the output cannot be written: there is no standard output")
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _forget_output()
    except OSError as error:
        _forget_output()
        raise UsageError(f"the output cannot be written: {error.strerror}") from error


def _forget_output() -> None:
    """Keeps Python from flushing once more when it ends, which would give another exit code."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def printable_lines(text: str) -> str:
    """Removes from a text what a terminal would obey, or standard output cannot take."""
    if all(line.isascii() and line.isprintable() for line in text.split("\n")):
        return text
    with without_tensorflow():
        from ipu_keras.report.text import printable
    return "\n".join(map(printable, text.split("\n")))
