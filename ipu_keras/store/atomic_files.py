"""Files that others see whole or not at all, and what is no such file."""

import os
import stat
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from errno import EISDIR, ENXIO
from pathlib import Path

# Of a pipe that is written into: whoever has been started to read it may not be there yet.
_MOST_SECONDS_FOR_A_READER = 5


def write_atomically(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Writes a file that a user has named; what was there before stays until all is written.

    As with `open`, a link leads to what it is of, a file that is there keeps its permissions, and
    devices and pipes take what is written.

    Args:
        path: Its place.
        content: All of it, or its parts one after the other.

    Raises:
        FileNotFoundError: There is no such folder.
        OSError: It cannot be written there; also of a pipe that nobody reads.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"A file is written into a folder that exists. Received: path={str(path)!r}, and "
            f"there is no folder {str(path.parent)!r}"
        )
    try:
        found = os.stat(path)
    except FileNotFoundError:
        # A link to what is not there yet is followed too.
        replace_atomically(Path(os.path.realpath(path)), content)
        return
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode) or _is_standard_output(found):
        _write_into(path, content)
        return
    # As `open` refuses it; another file would be put in its place.
    with open(path, "ab"):
        pass
    replace_atomically(Path(os.path.realpath(path)), content, found)


def replace_atomically(
    path: Path, content: bytes | Iterable[bytes], before: os.stat_result | None = None
) -> None:
    """Puts a file in the place of whatever has its name.

    Args:
        path: Its place.
        content: As of `write_atomically`.
        before: Of the file whose owner and permissions it has; by default it is a new one.

    Raises:
        OSError: It cannot be written there.
    """
    # As long as it has another name, nobody may read it who may not read it afterwards.
    mode = 0o666 if before is None else stat.S_IMODE(before.st_mode) & 0o600
    # Not the name of the file and more: that might be too long.
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
    """Whether it is the file that a shell has this process write into, such as /dev/stdout."""
    for number in (1, 2):
        with suppress(OSError):
            if os.path.samestat(os.fstat(number), found):
                return True
    return False


def _write_into(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Writes into a device or a pipe, which is in nobody's way until then."""
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


def read_whole(path: Path, most_bytes: int, *, takes_pipes: bool = False) -> bytes:
    """All that is in a file, of which nobody knows who has written it.

    Args:
        path: Its place.
        most_bytes: Of a file that is read.
        takes_pipes: Whether it may be a pipe, and one that nobody writes into is waited for.

    Raises:
        FileNotFoundError: There is none.
        OSError: It is larger, or no regular file, or cannot be read.
    """
    with open(path, "rb", opener=None if takes_pipes else _opened_at_once) as file:
        found = os.fstat(file.fileno())
        is_pipe = stat.S_ISFIFO(found.st_mode)
        if not stat.S_ISREG(found.st_mode) and not (takes_pipes and is_pipe):
            raise OSError(f"{str(path)!r} is no regular file")
        # As much memory as the file needs, not as the largest would. Of a pipe nobody knows.
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
    """Makes a folder and those above it, if they are not there.

    Args:
        path: Its place.

    Raises:
        OSError: It cannot be made; also if no system could have a folder of that name.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except ValueError as error:
        # Of a null character, say.
        raise OSError(f"{error}: {str(path)!r}") from error


@contextmanager
def warns_if_it_fails(what: str) -> Iterator[None]:
    """Around the use of files that no result depends on: if it fails there is a warning.

    Args:
        what: It begins with: what cannot be done, without a full stop.
    """
    try:
        yield
    except OSError as error:
        warnings.warn(f"{what}. Received: {error}", stacklevel=3)
