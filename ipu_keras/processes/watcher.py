"""Says which process of this machine was killed; MPICH's launcher kills the others at once.

It is also run by its path, as a small process into which nothing of a program is loaded.
"""

import contextlib
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any


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
    # Where one says farewell all end, or the launcher kills those that do not.
    if not connection.recv(1):
        said = f"rank {rank} of {size} was killed, or has ended without a word; all end\n"
        os.write(sys.stderr.fileno(), said.encode())


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3]))
