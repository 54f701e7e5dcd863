import contextlib
import os
import signal
import subprocess
import sys
import threading

import pytest

from ipu_keras.store import file_locks
from ipu_keras.store.file_locks import file_lock

# Adds one to a number in a file, as often as it is told, without any other protection.
COUNT = """
number = Path(argument)
for _ in range(200):
    with file_lock(number.with_suffix(".lock")):
        number.write_text(str(int(number.read_text()) + 1))
"""
HOLD = """
with file_lock(Path(argument)):
    print("held", flush=True)
    time.sleep(60)
"""
# The module alone, as the package takes seconds to import.
BEFORE = """
import runpy, sys, time
from pathlib import Path

file_lock, argument = runpy.run_path(sys.argv[1])["file_lock"], sys.argv[2]
"""


def started(script, argument, **options):
    command = [sys.executable, "-c", BEFORE + script, file_locks.__file__, str(argument)]
    return subprocess.Popen(command, **options)


def test_one_at_a_time_among_processes_and_threads(tmp_path):
    number = tmp_path / "number"
    number.write_text("0")
    processes = [started(COUNT, number) for _ in range(3)]

    def count():
        for _ in range(200):
            with file_lock(number.with_suffix(".lock")):
                number.write_text(str(int(number.read_text()) + 1))

    threads = [threading.Thread(target=count) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert number.read_text() == "1000"
    assert list(tmp_path.iterdir()) == [number]


def test_a_process_that_is_killed_leaves_no_lock(tmp_path):
    path = tmp_path / "a.lock"
    with started(HOLD, path, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        process.send_signal(signal.SIGKILL)
    assert path.exists()
    with file_lock(path):
        pass
    assert not path.exists()


def test_an_error_gives_the_lock_back(tmp_path):
    path = tmp_path / "a.lock"
    with contextlib.suppress(KeyError), file_lock(path):
        raise KeyError
    assert not path.exists()
    with file_lock(path):
        assert path.stat().st_size == 0


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (os.mkfifo, "is in the way of a lock, and is no regular file"),
        (os.mkdir, "Is a directory"),
        (lambda path: path.symlink_to("elsewhere"), "Too many levels of symbolic links"),
    ],
)
def test_something_else_in_the_place_of_a_lock_is_left_alone(tmp_path, make, error):
    path = tmp_path / "a.lock"
    make(path)
    with pytest.raises(OSError, match=error), file_lock(path):
        pass
    assert list(tmp_path.iterdir()) == [path]
