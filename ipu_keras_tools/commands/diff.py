"""The command `ipu-keras diff`, which compares two reports."""

import argparse
import json

from ipu_keras.report.compared import Compared, compared_of_plain
from ipu_keras.report.difference import difference
from ipu_keras.report.text import printable
from ipu_keras_tools.files import read_named
from ipu_keras_tools.results import UsageError, print_result

# The most that is read of a file: a report of ResNet-50 has a hundredth of it.
_MOST_BYTES = 2**29

# The totals that `--max-growth` limits.
_WATCHED = ("cycles_per_step", "max_tile_bytes")


def run(given: argparse.Namespace) -> int:
    """Prints the difference; returns 1 if it grows by more than allowed."""
    found = difference(_read(given.before), _read(given.after))
    before, after = map(printable, found.names)
    text = f"From {before} to {after}\n{found}"
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
        return compared_of_plain(json.loads(read_named(path, _MOST_BYTES)))
    except (RecursionError, ValueError) as error:
        raise UsageError(f"{path} is no report of `ipu-keras profile --json`: {error}") from error
