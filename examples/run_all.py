"""Runs all scripts of this folder, each in a process of its own, and says how long each took.

What a script prints is shown if it fails; and then so does this command. `ci/` is a project with
tests, for pytest.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent
# It is given the model that the other one has trained.
RUN_BY = {"predict_with_stock_keras.py": "digits.py"}


def scripts() -> list[Path]:
    """The scripts of this folder, but this one; modules that they share are none."""
    return [
        path
        for path in sorted(FOLDER.glob("*.py"))
        if path != Path(__file__) and 'if __name__ == "__main__":' in path.read_text("utf-8")
    ]


def command(script: Path, scratch: Path) -> list[str]:
    """How to run a script.

    Args:
        script: One of `scripts()`.
        scratch: A folder for what must not take the place of a file of this one.
    """
    arguments = ["--file", scratch / "made.onnx"] if script.name == "popart_make_model.py" else []
    return [sys.executable, *map(str, [script, *arguments])]


def run(script: Path) -> bool:
    """Runs a script, and prints its line; whether it has ended well.

    Args:
        script: One of `scripts()`.
    """
    if script.name in RUN_BY:
        print(f"{script.name:40}     by {RUN_BY[script.name]}", flush=True)
        return True
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            command(script, Path(scratch)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    seconds = time.perf_counter() - begun
    failed = f"  failed with exit code {done.returncode}" if done.returncode else ""
    print(f"{script.name:40}{seconds:7.1f} s{failed}", flush=True)
    if failed:
        print(done.stdout)
    return not failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the scripts that were asked for; 1 if one fails.

    Args:
        arguments: Of the command line; by default those of the process.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="SCRIPT.py", help="only these")
    parser.add_argument("--list", action="store_true", help="name the scripts and run none")
    given = parser.parse_args(arguments)
    found = {path.name: path for path in scripts()}
    if unknown := [name for name in given.names if name not in found]:
        parser.error(f"no such script: {', '.join(unknown)}; --list names them")
    # Whoever asks for what another one runs, means that one.
    chosen = [found[RUN_BY.get(name, name)] for name in given.names] or list(found.values())
    if given.list:
        print("\n".join(script.name for script in chosen))
        return 0
    failed = [script.name for script in chosen if not run(script)]
    print(f"{len(chosen) - len(failed)} of {len(chosen)} scripts ran to their end")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
