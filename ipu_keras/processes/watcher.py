"""Says which process of this machine was killed; MPICH's launcher kills the others at once.

It says so too where the launcher is gone, as when nobody reads what it prints.

It is also run by its path, as a small process into which nothing of a program is loaded.
"""

import contextlib
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

# By MPICH's and Open MPI's names.
_LAUNCHERS = ("mpirun", "mpiexec", "mpiexec.hydra", "prterun")


def watched(name: str, local: Any, rank: int, size: int) -> Callable[[], None]:
    """Has one small process watch all processes of this machine.

    Args:
        name: What no other program has, for the address at which they meet.
        local: mpi4py's communicator of the processes of this machine.
        rank: The number of this one among all.
        size: How many there are on all machines.

    Returns:
        Says that this process is about to end as it should.
    """
    address = f"\0ipu-keras-{name}"  # in the kernel, without a file
    own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        if local.rank == 0:
            listener.bind(address)
            listener.listen(local.size)
        local.Barrier()
        try:
            own.connect(address)
            own.sendall(rank.to_bytes(4, "big"))
            is_there = True
        except OSError:
            # Containers may share memory, and so seem to be one machine, without such addresses
            # in common. Nobody is watched then.
            is_there = False
        if all(local.allgather(is_there)) and local.rank == 0:
            _start(listener, local.size, size)
    # Whoever is killed from now on is known to be watched.
    local.Barrier()

    def farewell() -> None:
        with contextlib.suppress(OSError):  # it does not watch, or has spoken
            own.sendall(b".")

    return farewell


def _start(listener: socket.socket, count: int, size: int) -> None:
    """Starts the process that watches, and waits until it does."""
    number = listener.fileno()
    started = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(number), str(count), str(size)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        pass_fds=[number],
        start_new_session=True,  # else the launcher kills it before it has said anything
    )
    with started.stdout as output:  # type: ignore[union-attr]
        output.read()
    # It ends with the last of the processes, for which this one does not wait.
    started.returncode = 0


def main(listener: socket.socket, count: int, size: int) -> None:
    """Waits for the first process that ends, and says which it is if it sent no farewell."""
    launcher = found_launcher()
    # The first end is told first, also when the launcher has killed all others before this
    # process wakes up. `select` and `poll` do not know the order.
    ready = select.epoll()
    of = {}
    for _ in range(count):
        connection, _ = listener.accept()
        rank = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        of[connection.fileno()] = connection, rank
        ready.register(connection, select.EPOLLIN)
    os.close(sys.stdout.fileno())
    ((number, _),) = ready.poll(maxevents=1)
    connection, rank = of[number]
    if launcher is not None and launcher.is_gone():
        # With it went what leads from the processes' outputs to anybody.
        said = f"rank {rank} of {size} and all others end, as their launcher has ended: nobody "
        _tell(launcher.errors, f"{said}reads its output any longer, or it was killed\n")
    # Where one says farewell all end, or the launcher kills those that do not.
    elif not connection.recv(1):
        said = f"rank {rank} of {size} was killed, or has ended without a word; all end"
        # The launcher ends those of other machines, whose watchers cannot tell why.
        elsewhere = "" if count == size else ", unless a rank of another machine was named before"
        _tell(sys.stderr.fileno(), f"{said}{elsewhere}\n")


def _tell(file: int, said: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads that either
        os.write(file, said.encode())


class Launcher(NamedTuple):
    """The launcher of the processes of this machine.

    Args:
        process: A file of the kernel's that can be read when the process has ended.
        errors: What it writes errors to, where somebody may still read them.
    """

    process: int
    errors: int

    def is_gone(self) -> bool:
        """Whether it has ended."""
        return bool(select.select([self.process], [], [], 0)[0])


def found_launcher() -> Launcher | None:
    """Returns the launcher among the ancestors of this process; `None` on another machine."""
    number = os.getppid()
    with contextlib.suppress(OSError):  # it may be another user's, or have a socket there
        while number > 1:
            before, _, after = Path(f"/proc/{number}/stat").read_text().rpartition(")")
            if before.partition("(")[2] in _LAUNCHERS:
                # A file is written at its end, as others write it too, and a terminal must not
                # become that of this session.
                flags = os.O_WRONLY | os.O_APPEND | os.O_NOCTTY
                return Launcher(os.pidfd_open(number), os.open(f"/proc/{number}/fd/2", flags))
            number = int(after.split()[1])
    return None


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3]))
