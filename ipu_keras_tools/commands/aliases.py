"""The command `ipu-keras aliases`, which writes Graphcore's names of commands, on request only.

A wheel would put them on every user's path, in the way of the real ones where there is an SDK;
and an extra cannot add commands. So they are written where a user says, and nowhere else.
"""

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ipu_keras.store.atomic_files import read_whole, write_atomically
from ipu_keras_tools.results import UsageError, print_result

# The arguments of `ipu-keras` that answer each of Graphcore's commands; what it is given follows.
ALIASES = {
    "gc-info": ("info",),
    "gc-inventory": ("info", "--device-info"),
    "gc-monitor": ("info",),
}
_OURS = "# Written by `ipu-keras aliases`, and removed by its --remove."
# The most that is read of a file that may be one of them.
_MOST_BYTES = 2**16
_RUN = "import sys; from ipu_keras_tools.main import main; sys.exit(main())"


def run(given: argparse.Namespace) -> int:
    """Writes or removes the commands."""
    name = given.install if given.remove is None else given.remove
    folder = Path(name)
    # No name, as of a variable of the shell that is not set, would be the current folder.
    if not os.path.isdir(name):
        raise UsageError(
            f"{name or repr(name)} is no folder. Make it, or name one that is on the path."
        )
    try:
        paths = _install(folder) if given.remove is None else _remove(folder)
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be changed: {error.strerror}") from error
    done = "installed" if given.remove is None else "removed"
    print_result(given, {done: list(map(str, paths))}, _text(done, paths, folder))
    return 0


def _install(folder: Path) -> list[Path]:
    """Writes all of them, or none if one would be in the way of another command."""
    paths = [folder / name for name in ALIASES]
    taken = [path for path in paths if os.path.lexists(path) and not _is_ours(path)]
    found = (shutil.which(name) for name in ALIASES)
    # Also elsewhere on the path: which of two commands of a name runs would depend on its
    # order.
    taken += [Path(one) for one in found if one is not None and not _is_ours(Path(one))]
    if taken:
        names = ", ".join(dict.fromkeys(map(str, taken)))
        raise UsageError(f"nothing was written, as there is already {names}")
    for path, arguments in zip(paths, ALIASES.values(), strict=True):
        write_atomically(path, script(arguments).encode())
        path.chmod(0o755)
    return paths


def _remove(folder: Path) -> list[Path]:
    """Removes the programs that `_install` has written, and nothing else."""
    paths = [folder / name for name in ALIASES if _is_ours(folder / name)]
    for path in paths:
        path.unlink()
    return paths


def _is_ours(path: Path) -> bool:
    try:
        return _OURS in read_whole(path, _MOST_BYTES).decode().splitlines()[:2]
    except (OSError, UnicodeDecodeError):
        return False


def script(arguments: Sequence[str]) -> str:
    """Writes a shell program that calls `ipu-keras`, with the Python of this environment.

    Args:
        arguments: Words for `ipu-keras`, before those that the program is given.

    Example:
        >>> print(script(["info"]).splitlines()[0])
        #!/bin/sh
    """
    # With -P, modules in the folder where the command is called cannot stand in for the
    # package's.
    called = shlex.join([sys.executable, "-P", "-c", _RUN, *arguments])
    return f'#!/bin/sh\n{_OURS}\nexec {called} "$@"\n'


def _text(done: str, paths: Sequence[Path], folder: Path) -> str:
    if not paths:
        return f"nothing to remove in {folder}"
    return "\n".join(f"{done} {path}" for path in paths)
