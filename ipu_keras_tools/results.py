"""What commands print, and how they say that they cannot."""

import argparse
import json
from typing import Any


class UsageError(Exception):
    """What a user gave is not what a command takes; its text says what it takes."""


def print_result(given: argparse.Namespace, plain: Any, text: str) -> None:
    """Prints what was found.

    Args:
        given: The arguments, which say in what form.
        plain: For `--json`.
        text: Otherwise.
    """
    print(json.dumps(plain, indent=1) if given.json else text.rstrip("\n"))
