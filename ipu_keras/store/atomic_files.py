"""Files that others see whole or not at all."""

import os
import stat
import uuid
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomically(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Writes a file in one piece; what was there before stays until all is written.

    Args:
        path: Its place; a file that is there is replaced.
        content: All of it, or its parts one after the other.

    Raises:
        FileNotFoundError: There is no such folder.
        OSError: It cannot be written there.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"A file is written into a folder that exists. Received: path={str(path)!r}, and "
            f"there is no folder {str(path.parent)!r}"
        )
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with partial.open("wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_whole(path: Path, most_bytes: int) -> bytes:
    """All that is in a file, of which nobody knows who has written it.

    Args:
        path: Its place.
        most_bytes: Of a file that is read.

    Raises:
        FileNotFoundError: There is none.
        OSError: It is larger, or no regular file, or cannot be read.
    """
    with open(path, "rb", opener=_opened_at_once) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{str(path)!r} is no regular file")
        # As much memory as the file needs, not as the largest would.
        content = file.read(min(found.st_size, most_bytes) + 1)
        if len(content) > found.st_size:
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
