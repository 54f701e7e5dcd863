"""Joins the processes that a launcher such as `mpirun` has started."""

import atexit
import contextlib
import ctypes
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from ipu_keras._device import address_of
from ipu_keras._mpi_calls import announce, conclude, leave, register, use
from ipu_keras.machine.system import SYSTEM
from ipu_keras.machine.world import World
from ipu_keras.processes.watcher import watched

# What `poprun` sets.
NUM_TOTAL_REPLICAS = "POPDIST_NUM_TOTAL_REPLICAS"

# What calls of programs call.
FUNCTION = "ipu_mpi_sum"

_FUNCTIONS = ("MPI_Iallreduce", "MPI_Isend", "MPI_Irecv", "MPI_Test", "MPI_Error_string")
# MPI's types by the numbers that XLA has for types (`xla/ffi/api/c_api.h`).
_TYPES = {4: "INT32_T", 5: "INT64_T", 8: "UINT32_T", 9: "UINT64_T", 11: "FLOAT", 12: "DOUBLE"}
_FLOAT16 = 10

# How many seconds a reduction waits for the other processes, and how many if nothing is said: one
# that has ended, or has fewer batches, would be waited for without end. 0 waits without end.
_WAIT, _PATIENCE = "IPU_KERAS_PROCESS_SECONDS", "600"


def joined() -> Any:
    """Returns mpi4py's communicator of all processes, which join with the first call.

    Raises:
        ImportError: There is no mpi4py, or no library of MPI for it.
    """
    if SYSTEM.communicator is None:
        mpi = module_of_mpi()
        communicator = mpi.COMM_WORLD.Dup()
        communicator.Set_errhandler(mpi.ERRORS_RETURN)
        local = communicator.Split_type(mpi.COMM_TYPE_SHARED)
        _tell_programs(mpi, communicator)
        number = communicator.bcast(secrets.randbits(64))
        world = World(communicator.size, communicator.rank, local.size, local.rank, number)
        SYSTEM.join(world, communicator, _executing)
        if world.size > 1:
            farewell = _no_word
            # `poprun` says who was killed, and the watcher needs Linux's addresses and `epoll`.
            if NUM_TOTAL_REPLICAS not in os.environ and sys.platform == "linux":
                farewell = watched(f"{number:x}", local, world.rank, world.size)
            _end_all_with_an_error(communicator, farewell)
            # Before mpi4py ends MPI, which waits for all processes.
            atexit.register(_leave, communicator, farewell)
    return SYSTEM.communicator


def patience() -> float:
    """Returns the seconds that a process waits for the others; 0 if without end.

    Raises:
        ValueError: The environment has no such number.
    """
    text = os.environ.get(_WAIT, _PATIENCE)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{_WAIT} must be a number of seconds, 0 or more. Received: {text!r}")
    return seconds


def module_of_mpi() -> Any:
    """Returns mpi4py's module of MPI, which joins the processes when it is imported first.

    Raises:
        ImportError: There is no mpi4py, or no library of MPI for it.
    """
    try:
        from mpi4py import rc

        rc.thread_level = "multiple"  # programs call from threads of XLA's
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ImportError(
            "Processes join by MPI, for which mpi4py and a library of MPI are needed. Install "
            'both with `pip install "ipu-keras[mpi]"`.'
            f" Received: {error}",
            name="mpi4py",
        ) from error
    return MPI


def _tell_programs(mpi: Any, communicator: Any) -> None:
    """Gives the function that programs call what it needs of MPI."""
    # Its own file stands for the library of MPI that it is linked with, whose name systems vary.
    library = ctypes.CDLL(mpi.__file__)
    types = {number: getattr(mpi, name) for number, name in _TYPES.items()}
    half = getattr(mpi, "FLOAT16_T", mpi.DATATYPE_NULL)
    if half != mpi.DATATYPE_NULL:
        types[_FLOAT16] = half
    is_open_mpi = "Open MPI" in mpi.Get_library_version()
    use(
        functions={
            name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _FUNCTIONS
        },
        comm=_handle(mpi, communicator),
        size=communicator.size,
        rank=communicator.rank,
        byte=_handle(mpi, mpi.BYTE),
        operation=_handle(mpi, mpi.SUM),
        # As the two families of libraries define MPI_IN_PLACE and MPI_STATUS_IGNORE.
        placed=1 if is_open_mpi else 2**64 - 1,
        ignored=0 if is_open_mpi else 1,
        seconds=patience(),
        handles={number: (_handle(mpi, kind), kind.Get_size()) for number, kind in types.items()},
    )
    register(address_of("_ZN3xla3ffi12GetXlaFfiApiEv"), FUNCTION)


def _handle(mpi: Any, one: Any) -> int:
    """Returns what C passes for a handle: an int (MPICH), or a pointer (Open MPI)."""
    kind = ctypes.c_int if mpi._sizeof(one) == 4 else ctypes.c_void_p
    return (kind.from_address(mpi._addressof(one)).value or 0) & (2**64 - 1)


def _no_word() -> None:
    """Is the farewell of a process that nobody watches."""


def _end_all_with_an_error(communicator: Any, farewell: Callable[[], None]) -> None:
    """Has an error that nobody handles end all processes, which would wait for this one."""
    before = sys.excepthook
    if getattr(before, "ends_all_processes", False):
        return

    def end(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        before(kind, error, traceback)
        said = f"rank {communicator.rank} of {communicator.size} failed: {kind.__name__}: {error}"
        print(f"{said}; all processes end", file=sys.stderr, flush=True)
        farewell()
        communicator.Abort(1)

    end.ends_all_processes = True  # type: ignore[attr-defined]
    sys.excepthook = end


@contextlib.contextmanager
def _executing(what: Callable[[], str]) -> Iterator[None]:
    """While this is open, an execution runs, on which its first call of MPI has all agree."""
    announce(what())
    try:
        yield
    finally:
        conclude()


def _leave(communicator: Any, farewell: Callable[[], None]) -> None:
    """Tells the other processes that this one ends, instead of having them wait for it."""
    heard = leave()
    farewell()
    if not heard:
        # One that was given up would be waited for without end.
        communicator.Abort(1)
