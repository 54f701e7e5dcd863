"""A process that watches others says which of them has ended first."""

import socket
import subprocess
import sys

import pytest

from ipu_keras.processes import watcher


@pytest.mark.parametrize(
    ("farewell", "said"),
    [(b"", "rank 3 of 5 was killed, or has ended without a word; all end\n"), (b".", "")],
)
def test_the_first_end_is_told(farewell, said):
    """Process 3 ends first, and process 2 before anything is said."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")  # the kernel finds an address
        listener.listen(2)
        both = {rank: socket.socket(socket.AF_UNIX) for rank in (2, 3)}
        for rank, one in both.items():
            one.connect(listener.getsockname())
            one.sendall(rank.to_bytes(4, "big"))
        number = listener.fileno()
        watching = subprocess.Popen(
            [sys.executable, "-I", "-S", watcher.__file__, str(number), "2", "5"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[number],
        )
    with watching:
        assert watching.stdout.read() == b""  # it is closed as soon as it watches
        both[3].sendall(farewell)
        both[3].close()
        both[2].close()
        assert watching.stderr.read().decode() == said
    assert watching.returncode == 0
