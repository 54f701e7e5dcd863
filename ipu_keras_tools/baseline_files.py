"""Baselines in files, which are written when a test asks for it."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ipu_keras.store.atomic_files import read_whole, write_atomically
from ipu_keras_tools.baselines import SCHEMA_VERSION, baseline_text

# Of a file that is read: a layer is a line.
_MOST_BYTES = 2**26


def read_baseline(path: Path) -> dict[str, Any] | None:
    """The figures in a file; `None` if there is no file.

    Args:
        path: Of the file.

    Raises:
        ValueError: The file holds something else, or is of another version.
    """
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
