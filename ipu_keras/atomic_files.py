"""Files that others see whole or not at all."""

import uuid
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
