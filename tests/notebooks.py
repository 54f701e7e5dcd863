"""The notebooks of the documentation: running them, and what they show.

`python tests/notebooks.py` runs all and writes what they show into them.
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

PROJECT = Path(__file__).resolve().parents[1]
PATHS = sorted((PROJECT / "docs" / "notebooks").glob("*.ipynb"))


def executed(path: Path) -> nbformat.NotebookNode:
    """A notebook after a run in a kernel of its own, with this Python and package.

    Args:
        path: Of its file, which stays as it is.
    """
    notebook = nbformat.read(path, as_version=4)
    # Through files: it needs no port, and nobody else can listen.
    config = Config({"KernelManager": {"transport": "ipc"}})
    client = NotebookClient(notebook, timeout=600, kernel_name="python3", config=config)
    # The package where it is tested, and no messages of TensorFlow's start.
    client.execute(
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(part or os.getcwd() for part in sys.path),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
    )
    for cell in notebook.cells:
        # When it ran, and what appeared there besides.
        cell.metadata.clear()
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    return notebook


def shown(notebook: Any) -> list[list[str]]:
    """The words that each cell shows, without those in pictures.

    Args:
        notebook: Of nbformat, or from JSON.
    """
    return [
        [" ".join(_text(output).split()) for output in cell.get("outputs", ())]
        for cell in notebook["cells"]
    ]


def html(notebook: Any) -> Iterator[str]:
    """The HTML of all outputs that have it.

    Args:
        notebook: As of `shown`.
    """
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            if "text/html" in output.get("data", {}):
                yield "".join(output["data"]["text/html"])


def _text(output: Any) -> str:
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "text/html" not in data:
        return "".join(data["text/plain"])
    page = re.sub(r"<(svg|style)\b.*?</\1>", " ", "".join(data["text/html"]), flags=re.S)
    return unescape(re.sub(r"<[^>]*>", " ", page))


if __name__ == "__main__":
    for path in PATHS:
        path.write_text(json.dumps(executed(path), indent=1, ensure_ascii=False) + "\n", "utf-8")
