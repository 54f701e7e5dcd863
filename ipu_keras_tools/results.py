"""What commands print, and how they say that they cannot."""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class UsageError(Exception):
    """What a user gave is not what a command takes; its text says what it takes."""


def print_result(given: argparse.Namespace, plain: Any, text: str) -> None:
    """Prints what was found.

    Args:
        given: The arguments, which say in what form.
        plain: For `--json`.
        text: Otherwise.

    Raises:
        UsageError: It cannot be written.
    """
    if sys.stdout is None:
        raise UsageError("the output cannot be written: there is no standard output")
    with written_out():
        print(json.dumps(plain, indent=1) if given.json else printable_lines(text.rstrip("\n")))


@contextmanager
def written_out() -> Iterator[None]:
    """Around what is printed, which is on its way afterwards.

    Whoever reads it, such as `head`, may have enough of it: then the rest is left out.

    Raises:
        UsageError: It cannot be written.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
    except OSError as error:
        _forget_output()
        raise UsageError(f"the output cannot be written: {error.strerror}") from error


def _forget_output() -> None:
    """Has Python not try it once more when it ends, which would be another exit code."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def printable_lines(text: str) -> str:
    """A text without what a terminal would obey, or that standard output cannot take.

    Args:
        text: Of lines.
    """
    if all(line.isascii() and line.isprintable() for line in text.split("\n")):
        return text
    # By then TensorFlow is there, or something is unusual enough to wait for it.
    from ipu_keras.report.text import printable

    return "\n".join(map(printable, text.split("\n")))
