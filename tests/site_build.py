"""The site, built as `make docs` does."""

import os
import subprocess
import sys
from pathlib import Path

from project_imports import PROJECT


def build(folder: Path) -> str:
    """Builds it.

    Args:
        folder: Where its pages are put.

    Returns:
        What the build said.

    Raises:
        AssertionError: It failed, as it does where it warns.
    """
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    done = subprocess.run(
        [*command, "--config-file", PROJECT / "docs" / "site" / "mkdocs.yml"],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            "NO_MKDOCS_2_WARNING": "1",
        },
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def pages(site: Path) -> list[Path]:
    """Pages of a site that are found by a path of their own, unlike that of a server's error."""
    return sorted(path for path in site.rglob("*.html") if path.name != "404.html")
