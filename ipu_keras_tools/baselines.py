"""Figures of reports that are kept beside tests, to tell later what has grown."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

SCHEMA_VERSION = 1
FOLDER = "ipu_baselines"

# Most file systems take 255 bytes; what is cut off is told apart by a digest.
_MOST_CHARACTERS = 180
# Of a file that is read: a layer is a line.
_MOST_BYTES = 2**26
_LEGIBLE = "[]-_.,=+"


def baseline_path(test_file: Path, test: str, number: int) -> Path:
    """Where the figures of a report are kept. No two reports share a file, nor do two workers.

    Args:
        test_file: That has the test.
        test: Its name in the file, with those of its classes and parameters.
        number: Of the report in the test, from 0.

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
    """The one text of some figures: a number a line, names in order.

    Args:
        figures: Whole numbers and texts by name, in mappings.

    Example:

    >>> print(baseline_text({"cycles_per_step": 8, "batch_size": 4}), end="")
    {
      "batch_size": 4,
      "cycles_per_step": 8,
      "schema": 1
    }
    """
    return json.dumps({"schema": SCHEMA_VERSION, **figures}, indent=2, sort_keys=True) + "\n"


def read_baseline(path: Path) -> dict[str, Any] | None:
    """The figures in a file; `None` if there is no file.

    Args:
        path: Of the file.

    Raises:
        ValueError: The file holds something else, or is of another version.
    """
    from ipu_keras.store.atomic_files import read_whole  # which imports TensorFlow

    try:
        found = json.loads(read_whole(path, _MOST_BYTES).decode())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(_unreadable(path, str(error))) from error
    except (ValueError, RecursionError) as error:
        raise ValueError(_unreadable(path, f"it is no JSON: {error}")) from error
    if not isinstance(found, dict) or found.pop("schema", None) != SCHEMA_VERSION:
        raise ValueError(_unreadable(path, f'it has no "schema": {SCHEMA_VERSION}'))
    return found


def write_baseline(path: Path, figures: Mapping[str, Any]) -> bool:
    """Writes figures to a file in one piece.

    Args:
        path: Of the file; its folder is made.
        figures: As of `baseline_text`.

    Returns:
        Whether that changed the file.
    """
    from ipu_keras.store.atomic_files import read_whole, write_atomically

    text = baseline_text(figures).encode()
    with suppress(OSError):
        if read_whole(path, len(text)) == text:
            return False
    path.parent.mkdir(parents=True, exist_ok=True)
    # A test that is killed leaves the file as it was.
    write_atomically(path, text)
    return True


def _unreadable(path: Path, why: str) -> str:
    return (
        f"The baseline {path} cannot be read: {why}. Restore it, or write it anew with "
        "`pytest --ipu-update`"
    )
