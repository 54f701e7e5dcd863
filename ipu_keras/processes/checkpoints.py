"""Has one of several processes write what all of them would write to the same place."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from ipu_keras._mpi_calls import num_agreements
from ipu_keras.machine.system import SYSTEM
from ipu_keras.processes.joining import module_of_mpi, patience

# Tags of messages: what `_cext/_mpi_calls.pyx` tells before executions, and what is told here.
_ANY_EXECUTION, _WRITTEN = 1, 2
_PAUSE = 0.002
# Errors are told in few bytes, so that MPI takes a message along before it is asked for.
_MOST_CHARACTERS = 500

# Whether something is being written, of which all that is written within is a part.
_writes: ContextVar[bool] = ContextVar("writes_checkpoint", default=False)
# Whether something is done that one process may do without the others.
_is_of_one: ContextVar[bool] = ContextVar("is_of_one_process", default=False)


def written_once(place: str | os.PathLike[str], write: Callable[[], Any]) -> Any:
    """Has the first process write what all processes write, while the others wait for it.

    All have the same weights, so that one of them is enough, and several would write into each
    other's files. A process writes by itself if the first one does not: if its place is its own,
    or processes have exchanged nothing, as they then train apart.

    Args:
        place: A path, or another text that says what is written where.
        write: Writes it. What it returns is the same in all processes, in a few bytes.

    Returns:
        What `write` has returned in the process that called it.

    Raises:
        OSError: The first process could not write it.
        TimeoutError: The first process neither writes it nor goes on.
    """
    place, now = os.path.abspath(place), num_agreements()
    if SYSTEM.world.size == 1 or _writes.get() or now <= 0:
        return write()
    if SYSTEM.world.rank == 0:
        return _written_for_all(place, now, write)
    found = _heard(place, now)
    if found is None:
        return write()
    error, result = found
    if error:
        raise OSError(f"Rank 0 could not write {place!r} for all processes. Received: {error}")
    return result


@contextlib.contextmanager
def of_one_process() -> Iterator[None]:
    """While this is open, variables are made that one process may make without the others."""
    token = _is_of_one.set(True)
    try:
        yield
    finally:
        _is_of_one.reset(token)


def is_of_one_process() -> bool:
    """Returns whether variables that are made do not begin with what the first process has."""
    return _is_of_one.get()


def are_several() -> bool:
    """Returns whether other processes may write to the same places as this one."""
    return SYSTEM.world.size > 1


def _written_for_all(place: str, now: int, write: Callable[[], Any]) -> Any:
    within = _writes.set(True)
    try:
        result = write()
    except BaseException as error:
        _tell((place, now, f"{type(error).__name__}: {error}"[:_MOST_CHARACTERS], None))
        raise
    finally:
        _writes.reset(within)
    _tell((place, now, "", result))
    return result


def _tell(what: tuple[str, int, str, Any]) -> None:
    # Not all of the others need to ask for it: often a script has the first process write alone.
    for rank in range(1, SYSTEM.world.size):
        SYSTEM.communicator.isend(what, rank, _WRITTEN).wait()


def _heard(place: str, now: int) -> tuple[str, Any] | None:
    """Waits for the first process to write; `None` if it has gone on to something else."""
    communicator, status, start = SYSTEM.communicator, module_of_mpi().Status(), time.monotonic()
    while True:
        # The first of its messages: those of executions come behind what was written before.
        if communicator.Iprobe(0, status=status):
            if communicator.Iprobe(0, _WRITTEN):
                its, when, error, result = communicator.recv(source=0, tag=_WRITTEN)
                if (its, when) == (place, now):
                    return error, result
                continue
            if status.Get_tag() == _ANY_EXECUTION:
                return None
        waited = time.monotonic() - start
        if 0 < patience() < waited:
            raise TimeoutError(
                f"Rank {SYSTEM.world.rank} waits for rank 0 to write {place!r}: that is for all "
                f"processes to do, or for rank 0. Received: no word of it for {waited:.0f} s, "
                "in which rank 0 has not gone on to anything else. IPU_KERAS_PROCESS_SECONDS says "
                "how long is waited."
            )
        time.sleep(_PAUSE)
