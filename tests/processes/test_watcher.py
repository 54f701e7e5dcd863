"""A process that watches others says which of them has ended first."""

import socket
import subprocess
import sys

import pytest

from ipu_keras.processes import watcher


@pytest.mark.parametrize(
    ("farewell", "size", "said"),
    [
        (b"", 2, "rank 1 of 2 was killed, or has ended without a word; all end\n"),
        (
            b"",
            5,
            "rank 1 of 5 was killed, or has ended without a word; all end, unless a rank of "
            "another machine was named before\n",
        ),
        (b".", 5, ""),
    ],
)
def test_the_first_end_is_told(farewell, size, said):
    """Process 1 ends first, and process 0 before anything is said."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")  # the kernel finds an address
        listener.listen(2)
        both = {rank: socket.socket(socket.AF_UNIX) for rank in (0, 1)}
        for rank, one in both.items():
            one.connect(listener.getsockname())
            one.sendall(rank.to_bytes(4, "big"))
        number = listener.fileno()
        watching = subprocess.Popen(
            [sys.executable, "-I", "-S", watcher.__file__, str(number), "2", str(size)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[number],
        )
    with watching:
        assert watching.stdout.read() == b""  # it is closed as soon as it watches
        both[1].sendall(farewell)
        both[1].close()
        both[0].close()
        assert watching.stderr.read().decode() == said
    assert watching.returncode == 0
