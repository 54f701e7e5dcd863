"""Builds what would be published, and checks it: `python tests/distribution.py`.

It builds a source distribution, and of that a wheel; looks into both; installs the wheel into an
empty environment; imports, trains and reports there; and uninstalls it, of which nothing may stay.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

from project_imports import PROJECT

# Besides Python files: what programs open, what messages name, and what type checkers read.
WANTED = (
    "ipu_addons/py.typed",
    "ipu_keras/docs/how-to/data.md",
    "ipu_keras/docs/ipu_config.md",
    "ipu_keras/docs/popart.md",
    "ipu_keras/documented_names.txt",
    "ipu_keras/popart/builder_operations.pyi",
    "ipu_keras/py.typed",
    "ipu_keras/report/error_bands.json",
    "ipu_keras/report/templates/report.html.j2",
    "ipu_keras/settings/config_options.pyi",
    "ipu_keras_import_hook.pth",
    "keras-stubs/ipu/__init__.pyi",
    "popart-stubs/__init__.pyi",
    "tensorflow-stubs/python/ipu/config.pyi",
)
# What a build needs, and what a reader of the sources looks for.
WANTED_OF_SOURCES = ("_cext/_engine.pyx", "docs/popart.md", "stubs/popart-stubs/builder.pyi")
# Files of the distribution types-tensorflow, which would be overwritten.
FOREIGN = ("tensorflow-stubs/py.typed", "tensorflow-stubs/__init__.pyi")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources, wheel = built(folder)
        check_files("source distribution", source_files(sources), WANTED_OF_SOURCES)
        files = wheel_files(wheel)
        check_files("wheel", files, WANTED)
        assert not {*FOREIGN} & files
        python = environment(folder / "environment")
        # Bytecode of all that TensorFlow has takes longer than to compile what one run imports.
        run(python, "-m", "pip", "install", "--quiet", "--no-compile", f"{wheel}[tensorflow-cpu]")
        run(python, "-P", PROJECT / "tests" / "installed_package.py", cwd=folder)
        run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "ipu-keras")
        check_nothing_is_left(python, files)
        print("Built, installed, ran and uninstalled:", sources.name, wheel.name)


def built(folder: Path) -> tuple[Path, Path]:
    """The source distribution and the wheel, which is built from it."""
    python = environment(folder / "build")
    run(python, "-m", "pip", "install", "--quiet", "build")
    run(python, "-m", "build", "--outdir", folder, PROJECT, stdout=subprocess.DEVNULL)
    (sources,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sources, wheel


def environment(folder: Path) -> Path:
    """The Python of a new environment."""
    venv.create(folder, with_pip=True, symlinks=True)
    return folder / "bin" / "python"


def run(python: Path, *arguments: str | Path, cwd: Path | None = None, stdout: int | None = None):
    command = [python, *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, check=True, cwd=cwd, stdout=stdout, env=environment)


def source_files(path: Path) -> set[str]:
    with tarfile.open(path) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def wheel_files(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def check_files(what: str, files: set[str], wanted: Iterable[str]) -> None:
    if missing := {*wanted} - files:
        sys.exit(f"The {what} lacks {', '.join(sorted(missing))}.")


def check_nothing_is_left(python: Path, files: Iterable[str]) -> None:
    (site,) = python.parent.parent.glob("lib/python*/site-packages")
    # Folders as well, in which nothing else that is installed has files.
    tops = {name.partition("/")[0] for name in files}
    places = [*(site / name for name in sorted({*files, *tops})), python.parent / "ipu-keras"]
    if left := [str(place) for place in places if place.exists()]:
        sys.exit(f"Uninstalling left {', '.join(left)}.")


if __name__ == "__main__":
    main()
