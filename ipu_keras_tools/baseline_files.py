"""Reads and writes baselines in files; `baselines` says what is in them and where they are."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ipu_keras.store.atomic_files import read_whole, write_atomically
from ipu_keras_tools.baselines import SCHEMA_VERSION, baseline_text

# The most that is read of a file. Each layer is a line, so no model comes near it.
_MOST_BYTES = 2**26


def read_baseline(path: Path) -> dict[str, Any] | None:
    """Reads the figures in a file; `None` if there is no file."""
    try:
        found = json.loads(read_whole(path, _MOST_BYTES).decode())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(_unreadable(path, str(error))) from error
    # A file of brackets only exceeds Python's recursion, which the json module does not catch.
    except (ValueError, RecursionError) as error:
        raise ValueError(_unreadable(path, f"it is no JSON: {error}")) from error
    if not isinstance(found, dict) or found.pop("schema", None) != SCHEMA_VERSION:
        raise ValueError(_unreadable(path, f'it has no "schema": {SCHEMA_VERSION}'))
    return found


def write_baseline(path: Path, figures: Mapping[str, Any]) -> bool:
    """Writes figures to a file in one piece, and makes its folder.

    Returns:
        Whether that changed the file.
    """
    text = baseline_text(figures).encode()
    with suppress(OSError):
        if read_whole(path, len(text)) == text:
            return False
    path.parent.mkdir(parents=True, exist_ok=True)
    # A test that is killed while it writes leaves the file as it was.
    write_atomically(path, text)
    return True


def _unreadable(path: Path, why: str) -> str:
    return (
        f"The baseline {path} cannot be read: {why}. Restore it, or write it anew with "
        "`pytest --ipu-update`"
    )
