"""Scripts in processes of their own that do not import TensorFlow again, which takes 4 seconds.

One process imports TensorFlow and `ipu_keras`, and does nothing else. What it forks is as a new
interpreter whose script begins with these two imports, and ends like any. Scripts that are about
importing, about hashes of texts, or that are sent signals, want a new interpreter.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import types
from typing import Any

# A message has one script; longer ones are not received.
_MOST_BYTES = 1 << 16


class ForkedPython:
    """Runs scripts one after the other, until it is left as a context."""

    def __init__(self):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": paths},
                start_new_session=True,
            )

    def __enter__(self) -> "ForkedPython":
        return self

    def __exit__(self, *exception: Any) -> None:
        self._socket.close()
        self._process.wait()

    @property
    def pid(self) -> int:
        """Number of the process that has imported what is asked for."""
        return self._process.pid

    def run(
        self, script: str, *arguments: Any, check: bool = True, timeout: float = 120
    ) -> subprocess.CompletedProcess:
        """Runs a script as `python -c` does, but for the two imports.

        Args:
            script: May be indented.
            *arguments: Become texts in its `sys.argv`.
            check: Whether it has to end well.
            timeout: Seconds that it may take.

        Returns:
            The finished process, with the texts that it wrote.

        Raises:
            TimeoutError: It took longer; no other script can follow.
        """
        request = {
            "script": textwrap.dedent(script),
            "arguments": ["-c", *map(str, arguments)],
            "environment": dict(os.environ),
        }
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            files = [output.fileno(), errors.fileno()]
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            self._socket.settimeout(timeout)
            try:
                code = int(self._socket.recv(_MOST_BYTES))
            except TimeoutError:
                os.killpg(self._process.pid, signal.SIGKILL)
                raise
            texts = [os.pread(file, os.fstat(file).st_size, 0).decode() for file in files]
        assert code == 0 or not check, texts[1]
        return subprocess.CompletedProcess(request["arguments"], code, *texts)


def _next_script(connection: socket.socket) -> dict[str, Any]:
    """Returns in a process that is to run a script; never in the one that forks."""
    while True:
        message, files, _, _ = socket.recv_fds(connection, _MOST_BYTES, 2)
        if not message:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            connection.close()
            for file, standard in zip(files, (1, 2), strict=True):
                os.dup2(file, standard)
                os.close(file)
            return json.loads(message)
        for file in files:
            os.close(file)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        connection.send(str(code).encode())


if __name__ == "__main__":
    import tensorflow  # noqa: F401

    import ipu_keras  # noqa: F401

    request = _next_script(socket.socket(fileno=int(sys.argv[1])))
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[:] = request["arguments"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(request["script"], "<string>", "exec"), vars(sys.modules["__main__"]))
