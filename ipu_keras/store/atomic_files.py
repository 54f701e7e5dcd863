"""Files that others see whole or not at all."""

import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file in one piece; what was there before stays until all is written.

    Args:
        path: Its place; a file that is there is replaced.
        content: All of it.

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
        partial.write_bytes(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


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
