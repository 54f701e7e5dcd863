"""`ipu-keras diff`."""

import argparse
import json
from pathlib import Path

from ipu_keras.report.compared import Compared, compared_of_plain
from ipu_keras.report.difference import difference
from ipu_keras_tools.results import UsageError, print_result

# What `--max-growth` is asked of.
_WATCHED = ("cycles_per_step", "max_tile_bytes")


def run(given: argparse.Namespace) -> int:
    """Prints the difference; 1 if it is more growth than allowed.

    Args:
        given: The arguments.
    """
    found = difference(_read(given.before), _read(given.after))
    text = f"From {found.names[0]} to {found.names[1]}\n{found}"
    if given.html is not None:
        try:
            found.to_html(given.html)
        except (ImportError, OSError) as error:
            raise UsageError(f"{given.html} cannot be written: {error}") from error
        text = f"{text}wrote {given.html}"
    print_result(given, found.to_dict(), text)
    if given.max_growth is None:
        return 0
    ratios = (found.totals[name].ratio for name in _WATCHED)
    return int(any(ratio is not None and ratio > given.max_growth / 100 for ratio in ratios))


def _read(path: str) -> Compared:
    try:
        return compared_of_plain(json.loads(Path(path).read_text("utf-8")))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is no report of `ipu-keras profile --json`: {error}") from error
