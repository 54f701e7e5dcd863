"""Locks that processes hold for each other, by files that exist only while they are held.

Why not `filelock`: as of 4.2.12 its `FileLock` leaves its files on Unix, one for each executable
that was ever looked for; a file that another user left, with the usual umask, cannot be locked
at all. It also takes a pipe in the file's place for a lock. Its `SoftFileLock` removes its
files, but those of a process that was killed stay, and in a folder that several machines or
containers share nobody can tell that their owner is gone.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Holds a lock, for which other threads and processes wait, within a `with` statement.

    The file is removed when the lock is released. Raises an `OSError` if it cannot be made, or
    if something else is in its place.
    """
    file = _locked(path)
    try:
        yield
    finally:
        # In this order: whoever waits for this file finds that it is gone, and makes another.
        path.unlink(missing_ok=True)
        # Processes that were forked meanwhile have the file too, and would keep it locked.
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


def _locked(path: Path) -> int:
    while True:
        # NONBLOCK does not wait for the other end of a pipe, NOFOLLOW follows no link elsewhere.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.open(path, flags, 0o666)
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(f"{str(path)!r} is in the way of a lock, and is no regular file")
            fcntl.flock(file, fcntl.LOCK_EX)
            # Whoever held the lock before has removed the file: a lock of that one locks nobody
            # out.
            if _is_at(path, found):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _is_at(path: Path, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), found)
    except FileNotFoundError:
        return False
