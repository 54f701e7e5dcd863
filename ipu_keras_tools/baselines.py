"""Figures of reports that are kept beside tests, to tell later what has grown."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

SCHEMA_VERSION = 1
FOLDER = "ipu_baselines"

# Most file systems take 255 bytes in a name. Longer ones are cut, and told apart by a digest.
_MOST_CHARACTERS = 180
_LEGIBLE = "[]-_.,=+"


def baseline_path(test_file: Path, test: str, number: int) -> Path:
    """Returns the file for the figures of a report; no two reports, nor two workers, share a file.

    Args:
        test: The test's name in the file, with those of its classes and parameters.
        number: The number of the report in the test, from 0.

    Example:

    >>> baseline_path(Path("tests/test_model.py"), "test_fits[gc200]", 1).as_posix()
    'tests/ipu_baselines/test_model/test_fits[gc200].2.json'
    """
    name = quote(test, safe=_LEGIBLE)
    if len(name) > _MOST_CHARACTERS:
        name = f"{name[:_MOST_CHARACTERS]}-{hashlib.sha256(test.encode()).hexdigest()[:12]}"
    suffix = f".{number + 1}" if number else ""
    return test_file.parent / FOLDER / test_file.stem / f"{name}{suffix}.json"


def baseline_text(figures: Mapping[str, Any]) -> str:
    """Returns the one text of some figures: a number a line, names in order.

    Example:

    >>> print(baseline_text({"cycles_per_step": 8, "batch_size": 4}), end="")
    {
      "batch_size": 4,
      "cycles_per_step": 8,
      "schema": 1
    }
    """
    return json.dumps({"schema": SCHEMA_VERSION, **figures}, indent=2, sort_keys=True) + "\n"
