"""Programs that Markdown shows, and what they print, held against a reader's session.

The programs of a page go on with each other, in one folder. One with a title is the content of a
file of that name there. Commands run there too.

`python tests/shown_programs.py PAGE...` prints what the programs of pages print today.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]

# A block with a language, and what comes directly below it, if that is what it prints.
_BLOCK = re.compile(
    r'^```(\w+)(?: title="(.*?)")?\n(.*?)^```\n(?:\n```(?:text)?\n(.*?)^```\n)?', re.M | re.S
)

# Run by a Python of its own, which reads the programs of several pages and writes what they print.
_SESSION = r"""
import contextlib, io, json, linecache, pathlib, subprocess, sys, tempfile, time, traceback
import keras
from ipu_keras.config import reset_ipu_configuration

def run_commands(code, out):
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    out.write(done.stdout)
    if done.returncode:
        raise RuntimeError(f"ends with {done.returncode}")

def run_python(code, file, names):
    # Where AutoGraph looks for the source of functions.
    linecache.cache[file] = len(code), None, code.splitlines(keepends=True), file
    exec(compile(code, file, "exec"), names)

def run_page(programs):
    names = {"__name__": "__main__"}
    for number, one in enumerate(programs):
        out, start = io.StringIO(), time.process_time()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                if one["title"]:
                    pathlib.Path(one["title"]).write_text(one["code"], encoding="utf-8")
                elif one["language"] == "python":
                    run_python(one["code"], f"<program {number}>", names)
                else:
                    run_commands(one["code"], out)
            error = None
        except Exception:
            error = traceback.format_exc()
        yield {"text": out.getvalue(), "error": error, "seconds": time.process_time() - start}

printed = []
for programs in json.load(sys.stdin):
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        reset_ipu_configuration()
        keras.backend.clear_session()
        printed.append(list(run_page(programs)))
sys.__stdout__.write(json.dumps(printed))
"""


@dataclass(frozen=True)
class Program:
    """A block of code on a page.

    Args:
        language: `"python"` or `"sh"`.
        code: Its text.
        title: Name of the file that it is, or `""`.
        shown: What the page says that it prints, or `""`.
    """

    language: str
    code: str
    title: str = ""
    shown: str = ""

    @property
    def expected(self) -> list[str]:
        """What it is said to print, below it and in comments behind calls of `print`."""
        comments = re.findall(r"^print\(.*\)  # (.*)$", self.code, re.M)
        return [one for one in (self.shown, "\n".join(comments)) if one]


@dataclass(frozen=True)
class Printed:
    """What a program printed.

    Args:
        text: On both of its outputs.
        error: Text of an exception that it ended with, or `None`.
        seconds: Of this process's time that it took.
    """

    text: str
    error: str | None
    seconds: float


def programs(page: str) -> list[Program]:
    """All blocks that have a language.

    Args:
        page: Markdown.
    """
    return [
        Program(language, code, title, shown)
        for language, title, code, shown in _BLOCK.findall(page)
    ]


def run(pages: Iterable[Sequence[Program]]) -> list[list[Printed]]:
    """What the programs of each page print, in one process for all of them.

    Args:
        pages: The programs of each.
    """
    # Commands find this Python, and the package where it is being tested.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        "PYTHONIOENCODING": "utf-8",
        "COLUMNS": "80",  # whatever the terminal has that runs the tests
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    done = subprocess.run(
        [sys.executable, "-c", _SESSION],
        input=json.dumps([[asdict(one) for one in page] for page in pages]),
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return [[Printed(**one) for one in page] for page in json.loads(done.stdout)]


def missing(shown: Iterable[str], text: str) -> list[str]:
    """Lines that a page shows and that were not printed in this order, with others between.

    Args:
        shown: On the page, each in an order of its own.
        text: That was printed.
    """
    found = []
    for one in shown:
        lines = iter([line.strip() for line in text.splitlines()])
        # What is looked for in an iterator is looked for behind what was found before.
        found += [line for line in one.splitlines() if line.strip() and line.strip() not in lines]
    return found


if __name__ == "__main__":
    for path in sys.argv[1:]:
        found = programs(Path(path).read_text("utf-8"))
        for number, printed in enumerate(run([found])[0]):
            print(f"== {path}, program {number}, {printed.seconds:.1f} s")
            print(printed.text, printed.error or "", sep="")
