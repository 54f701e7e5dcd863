"""Files that users name to commands."""

from pathlib import Path

from ipu_keras.store.atomic_files import read_whole
from ipu_keras_tools.results import UsageError


def read_named(path: str | Path, most_bytes: int) -> bytes:
    """Reads a file, or a pipe such as shells make for `<(command)`, of at most `most_bytes`."""
    try:
        return read_whole(Path(path), most_bytes, takes_pipes=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        # A name with a null character, for example.
        raise UsageError(f"{path} cannot be read: {error}") from error
