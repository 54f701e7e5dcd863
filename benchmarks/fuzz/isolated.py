"""Runs cases in processes of their own, which may crash or hang without taking others along."""

import gc
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

# A case of a few small programs takes seconds; a machine that runs other work some times that.
CASE_SECONDS = 300


@dataclass
class Crash:
    """A process that ended, or had to be ended, in a case.

    Attributes:
        text: How.
    """

    text: str


def isolated(
    work: Callable[[Any], Any],
    cases: list,
    seconds: float,
    cases_a_process: int = 60,
    seconds_a_case: float = CASE_SECONDS,
) -> Iterator[tuple[Any, Any]]:
    """Yields each case with what `work` returned for it, or with the `Crash` it caused.

    Args:
        work: A function of a module, called with one case in another process.
        cases: What it is called with; picklable.
        seconds: After how many no other case is begun.
        cases_a_process: After how many a process is replaced: TensorFlow keeps something of every
            function ever traced.
        seconds_a_case: After how many a case hangs; the first of a process imports, too.
    """
    deadline = time.monotonic() + seconds
    waiting = list(reversed(cases))
    while waiting and time.monotonic() < deadline:
        yield from _process(work, waiting, deadline, cases_a_process, seconds_a_case)


def _process(
    work: Callable[[Any], Any],
    waiting: list,
    deadline: float,
    num_cases: int,
    seconds_a_case: float,
) -> Iterator:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(work, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        for _ in range(num_cases):
            if not waiting or time.monotonic() >= deadline:
                return
            case = waiting.pop()
            ours.send(case)
            if not ours.poll(seconds_a_case):
                yield case, Crash(f"hangs for {seconds_a_case} s")
                return
            try:
                result = ours.recv()
            except (EOFError, ConnectionResetError):
                process.join()
                yield case, Crash(f"ended with exit code {process.exitcode}")
                return
            yield case, result
    finally:
        process.kill()
        process.join()


def _serve(work: Callable[[Any], Any], connection: Connection) -> None:
    connection.send(work(connection.recv()))
    # What the first case imported would be gone through at each `clear_session`: 0.4 of 3 s.
    gc.collect()
    gc.freeze()
    while True:
        connection.send(work(connection.recv()))
