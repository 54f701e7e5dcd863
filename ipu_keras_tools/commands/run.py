"""The command `ipu-keras run`, which runs a script as Python does."""

import argparse
import json
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from ipu_keras.report.text import PlainTable, rendered
from ipu_keras.settings.engine_options import ENVIRONMENT_VARIABLE
from ipu_keras.tf1.__main__ import main as run_as_tensorflow_1
from ipu_keras.tf1.scripts import run_script
from ipu_keras_tools.results import UsageError, print_text


def run(given: argparse.Namespace) -> int:
    """Runs a script; what it raises or exits with ends the process."""
    if not given.modelled:
        _run(given)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        _ask_for_reports(folder)
        try:
            _run(given)
        except BaseException:
            # A program that does not fit ends the script, and its report has been written.
            with suppress(UsageError):
                _print(given, Path(folder))
            raise
        _print(given, Path(folder))
    return 0


def _print(given: argparse.Namespace, folder: Path) -> None:
    """Prints the figures at the end of the output, after what the script printed."""
    found = _reports(folder)
    print_text(json.dumps(found) if given.json else _table(found))


def _run(given: argparse.Namespace) -> None:
    sys.argv = [given.script, *given.arguments]
    if given.tf1:
        sys.argv = ["ipu-keras run --tf1", *sys.argv]
        run_as_tensorflow_1()
        return
    run_script(given.script)


def _ask_for_reports(folder: str) -> None:
    """Has every program that is compiled from now on write its report to the folder."""
    text = os.environ.get(ENVIRONMENT_VARIABLE) or "{}"
    try:
        options = dict(json.loads(text))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{ENVIRONMENT_VARIABLE} must be a JSON object. Received: {text}"
        ) from error
    asked = {"autoReport.all": "true", "autoReport.directory": folder}
    os.environ[ENVIRONMENT_VARIABLE] = json.dumps({**options, **asked})


def _reports(folder: Path) -> list[dict[str, Any]]:
    """Returns figures of the programs in the order in which they were compiled."""
    written = sorted(folder.glob("*/report.json"), key=lambda path: path.stat().st_mtime_ns)
    whole = [json.loads(path.read_text("utf-8")) for path in written]
    return [
        {
            "name": one["name"],
            "target": one["target"]["name"],
            "num_ipus": one["num_ipus"],
            "cycles_per_step": one["cycles"]["per_step"],
            "seconds_per_step": one["seconds_per_step"],
            "samples_per_second": one["samples_per_second"],
            "max_tile_bytes": one["memory"]["max_tile_bytes"],
            "tile_bytes": one["memory"]["tile_bytes"],
            "fits": one["memory"]["fits"],
            "bound": one["bound"],
        }
        for one in whole
    ]


def _table(found: list[dict[str, Any]]) -> str:
    if not found:
        return "No program was compiled for an IPU"
    rows = tuple(
        (
            one["name"],
            one["target"],
            str(one["num_ipus"]),
            f"{one['cycles_per_step']:,}",
            "" if one["samples_per_second"] is None else f"{one['samples_per_second']:,.0f}",
            f"{one['max_tile_bytes'] / one['tile_bytes']:.1%}",
            "yes" if one["fits"] else "no",
        )
        for one in found
    )
    columns = ("program", "target", "IPUs", "cycles per step", "samples/s", "fullest tile", "fits")
    table = PlainTable(title="What was compiled would cost", columns=columns, rows=rows)
    return rendered(table).rstrip()
