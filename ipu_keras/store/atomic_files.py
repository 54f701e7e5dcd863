"""Writes files that others see whole or not at all, and reads files that nobody vouches for."""

import ctypes
import os
import shutil
import stat
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from errno import EISDIR, ENXIO
from pathlib import Path

# Of `renameat2`, in <linux/fcntl.h> and <linux/fs.h>.
_HERE, _EXCHANGE = -100, 2

# Whoever was started to read a pipe may not have opened it yet.
_MOST_SECONDS_FOR_A_READER = 5


def write_atomically(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Writes a file that a user has named; the old one stays until all is written.

    As with `open`, links are followed, an existing file keeps its permissions, and devices and
    pipes are written into. Raises an `OSError` if there is no such folder, nothing can be
    written there, or nobody reads a pipe.
    """
    _check_folder(path)
    try:
        found = os.stat(path)
    except FileNotFoundError:
        # A link whose target does not exist yet is followed too, as `open` does.
        replace_atomically(Path(os.path.realpath(path)), content)
        return
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode) or _is_standard_output(found):
        _write_into(path, content)
        return
    # Raises what `open` would for a read-only file; a rename would replace it without asking.
    with open(path, "ab"):
        pass
    replace_atomically(Path(os.path.realpath(path)), content, found)


def _check_folder(path: Path) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"A file is written into a folder that exists. Received: path={str(path)!r}, and "
            f"there is no folder {str(path.parent)!r}"
        )


def replace_atomically(
    path: Path, content: bytes | Iterable[bytes], before: os.stat_result | None = None
) -> None:
    """Puts a file in the place of whatever has its name.

    Args:
        before: The file whose owner and permissions it gets; `None` for a new one's.
    """
    # Under its temporary name, nobody may read the file who may not read it afterwards.
    mode = 0o666 if before is None else stat.S_IMODE(before.st_mode) & 0o600
    # Not the file's name with a suffix, which might be longer than the system allows.
    partial = path.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        with open(partial, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            if before is not None:
                _set_owner_and_mode(file.fileno(), before)
        partial.replace(path)
    except OSError as error:
        if error.filename == str(partial):
            # Users know nothing of the other name.
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        partial.unlink(missing_ok=True)


def _set_owner_and_mode(file: int, before: os.stat_result) -> None:
    for owner in ((-1, before.st_gid), (before.st_uid, -1)):
        # Only the superuser gives files away.
        with suppress(PermissionError):
            os.fchown(file, *owner)
    os.fchmod(file, stat.S_IMODE(before.st_mode) & 0o777)


def _is_standard_output(found: os.stat_result) -> bool:
    """Whether a shell redirects this process's output to the file, such as /dev/stdout."""
    # To replace it would cut the shell's file off; it has to be written into.
    for number in (1, 2):
        with suppress(OSError):
            if os.path.samestat(os.fstat(number), found):
                return True
    return False


def _write_into(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Writes into a device or a pipe, which cannot be replaced."""
    with open(path, "wb", buffering=0, opener=_opened_for_a_reader) as file:
        for part in [content] if isinstance(content, bytes) else content:
            rest = memoryview(part)
            # One call may take less than all.
            while rest:
                rest = rest[file.write(rest) :]


def _opened_for_a_reader(path: str, flags: int) -> int:
    until = time.monotonic() + _MOST_SECONDS_FOR_A_READER
    while True:
        try:
            # Without it, `open` of a pipe waits forever for a reader; with it, it fails with
            # ENXIO.
            file = os.open(path, flags | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != ENXIO or not stat.S_ISFIFO(os.stat(path).st_mode):
                raise
            if time.monotonic() > until:
                raise OSError(ENXIO, "Nobody reads the pipe", path) from error
            time.sleep(0.01)
        else:
            os.set_blocking(file, True)
            return file


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """Gives another path, at which a file or folder is written that then takes the place of `path`.

    Others find what was there before until all is written, and ever after if that fails. Further
    files that are written beside it are put in place first. Of a folder that is replaced, those
    files stay that the new one does not have. Raises an `OSError` where `open` would.
    """
    _check_folder(path)
    # What a link leads to may have a name that says nothing of the format.
    place = Path(os.path.realpath(path))
    folder = place.with_name(f".{uuid.uuid4().hex}.partial")
    folder.mkdir()
    try:
        yield folder / path.name
        for one in sorted(folder.iterdir(), key=lambda one: one.name == path.name):
            _put_in_place(one, place if one.name == path.name else path.with_name(one.name))
    finally:
        shutil.rmtree(folder)


def remove_whole(path: Path) -> None:
    """Removes a folder, which others find with all that it has or not at all."""
    gone = path.with_name(f".{uuid.uuid4().hex}.partial")
    path.rename(gone)
    shutil.rmtree(gone)


def _put_in_place(new: Path, path: Path) -> None:
    if not new.is_dir():
        _put_file_in_place(new, path)
    elif not path.is_dir():
        new.replace(path)
    elif path.samefile("."):
        # The folder that a process works in would be gone for it.
        for one in new.iterdir():
            _put_in_place(one, path / one.name)
    else:
        shutil.copymode(path, new)
        old = new
        if not _exchanged(new, path):
            # For a moment nothing is there: file systems that cannot exchange folders can do no
            # more.
            old = new.with_name(f"{new.name}.old")
            path.rename(old)
            new.rename(path)
        for one in old.iterdir():
            if not os.path.lexists(path / one.name):
                one.rename(path / one.name)


def _put_file_in_place(new: Path, path: Path) -> None:
    if path.exists():
        if not path.is_file() and not path.is_dir():
            raise OSError(
                f"A file takes the place of a file. Received: path={str(path)!r}, which is a "
                "device or a pipe"
            )
        # Raises what `open` would for a folder or a read-only file, as a rename does not.
        with open(path, "ab"):
            pass
        shutil.copymode(path, new)
    new.replace(path)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchanges two folders, of which none is ever missing; false if the system cannot."""
    exchange = getattr(ctypes.CDLL(None), "renameat2", None)
    names = os.fsencode(one), os.fsencode(other)
    return exchange is not None and not exchange(_HERE, names[0], _HERE, names[1], _EXCHANGE)


def read_whole(path: Path, most_bytes: int, *, takes_pipes: bool = False) -> bytes:
    """Reads a file that may come from anybody.

    Raises an `OSError` if it is larger than `most_bytes`, no regular file, or cannot be read.

    Args:
        takes_pipes: Whether it may be a pipe; one that nobody writes into is waited for.
    """
    with open(path, "rb", opener=None if takes_pipes else _opened_at_once) as file:
        found = os.fstat(file.fileno())
        is_pipe = stat.S_ISFIFO(found.st_mode)
        if not stat.S_ISREG(found.st_mode) and not (takes_pipes and is_pipe):
            raise OSError(f"{str(path)!r} is no regular file")
        # `read` allocates what it is asked for: the file's size, which a pipe does not have.
        size = most_bytes if is_pipe else min(found.st_size, most_bytes)
        content = file.read(size + 1)
        if len(content) > size:
            content += file.read(most_bytes + 1 - len(content))
    if len(content) > most_bytes:
        raise OSError(f"{str(path)!r} is larger than {most_bytes} bytes")
    return content


def _opened_at_once(path: str, flags: int) -> int:
    # A pipe would have this wait until somebody writes into it.
    return os.open(path, flags | os.O_NONBLOCK)


def make_folder(path: Path) -> None:
    """Makes a folder and those above it where there are none, or raises an `OSError`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except ValueError as error:
        # Python raises a ValueError for a name with a null character.
        raise OSError(f"{error}: {str(path)!r}") from error


@contextmanager
def warns_if_it_fails(what: str) -> Iterator[None]:
    """Turns an `OSError` within into a warning, for files that no result depends on.

    Args:
        what: What cannot be done, as the warning's first sentence without a full stop.
    """
    try:
        yield
    except OSError as error:
        warnings.warn(f"{what}. Received: {error}", stacklevel=3)
