"""Runs scripts and modules in this process, as `python` and `python -m` do."""

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from ipu_keras.tf1 import imports

_RUNPY = "<frozen runpy>"


def run_script(path: str) -> None:
    """Runs a file; what it imports is looked for in its folder first."""
    sys.excepthook = _show
    sys.path[0] = str(Path(path).resolve().parent)
    runpy.run_path(path, run_name="__main__")


def run_module(name: str) -> None:
    """Runs a module, for which the current folder stays the first entry of `sys.path`."""
    sys.excepthook = _show
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Shows what was raised as Python does, without the lines that run or import what raises."""
    shown = None
    for one in reversed(_of_users(list(_each(trace)))):
        one.tb_next = shown
        shown = one
    sys.__excepthook__(kind, error.with_traceback(shown), shown)


def _each(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _of_users(trace: list[TracebackType]) -> list[TracebackType]:
    """Returns what comes after the lines of this module; all, if it has run nothing of it."""
    names = [one.tb_frame.f_code.co_filename for one in trace]
    if __file__ not in names:
        return trace
    begin = names.index(__file__)
    while names[begin : begin + 1] in ([__file__], [_RUNPY]):
        begin += 1
    return [one for one in trace[begin:] if one.tb_frame.f_code.co_filename != imports.__file__]
