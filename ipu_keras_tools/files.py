"""Files that users name to commands."""

from pathlib import Path

from ipu_keras.store.atomic_files import read_whole
from ipu_keras_tools.results import UsageError


def read_named(path: str | Path, most_bytes: int) -> bytes:
    """What is in a file, or comes out of a pipe such as those that shells make for `<(command)`.

    Args:
        path: As users call it.
        most_bytes: Of what is read.

    Raises:
        UsageError: It cannot be read, or there is more of it.
    """
    try:
        return read_whole(Path(path), most_bytes, takes_pipes=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        # Of a null character, say.
        raise UsageError(f"{path} cannot be read: {error}") from error
