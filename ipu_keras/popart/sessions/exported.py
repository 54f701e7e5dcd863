"""Compiled programs in files: what `compileAndExport` writes, and `loadExecutable` reads.

A file is a ZIP archive. It has what was modelled of the program, as the cache of executables keeps
it, and what it was compiled for. The code that XLA made for the host cannot be taken out of
TensorFlow; that is made again.
"""

import json
import zipfile
import zlib
from io import BytesIO
from pathlib import Path

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.store.atomic_files import read_whole, write_atomically
from ipu_keras.store.executable_cache import SUFFIX

_SESSION = "session.json"
_FORMAT = "ipu_keras exported session"

# Files may come from anybody, and an archive may unpack to far more than its own size. The graph
# and the model of ResNet-50 take 12 MB each.
_MOST_BYTES = 2**29
_MOST_HEADER_BYTES = 2**16

# What `zipfile` raises for archives that are damaged, encrypted or compressed in another way.
_NO_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError)


def write_exported(path: Path, session: str, folder: Path) -> None:
    """Writes what the cache has kept in `folder` to one file, whose directory is made.

    Raises a `popart_exception` if it cannot be written.

    Args:
        session: Digest of everything that the program was compiled for.
    """
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_SESSION, json.dumps({"format": _FORMAT, "session": session}))
        for entry in sorted(folder.glob(f"*{SUFFIX}")):
            archive.write(entry, entry.name)
    try:
        # In one piece: another process may load the file while this one replaces it.
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content.getvalue())
    except (OSError, ValueError) as error:
        raise popart_exception(f"The file {str(path)!r} cannot be written: {error}") from error


def read_exported(path: Path, session: str, folder: Path) -> None:
    """Unpacks a file of `write_exported` into `folder`, where the cache then finds the model.

    Raises a `popart_exception` if the file cannot be read, is none, or is of another session.

    Args:
        session: Digest of everything that the program has to be compiled for.
    """
    try:
        with zipfile.ZipFile(BytesIO(read_whole(path, _MOST_BYTES))) as archive:
            if archive.getinfo(_SESSION).file_size > _MOST_HEADER_BYTES:
                raise ValueError(f"its header has more than {_MOST_HEADER_BYTES} bytes")
            header = json.loads(archive.read(_SESSION))
            if header["format"] != _FORMAT:
                raise ValueError(f"its format is {header['format']!r}")
            if header["session"] != session:
                raise popart_exception(
                    f"The executable in {str(path)!r} was compiled for another session: the model, "
                    "the DataFlow, the options and the device have to be those of the session "
                    "that wrote it. Call compileAndExport of this one."
                )
            entries = [info for info in archive.infolist() if info.filename.endswith(SUFFIX)]
            if sum(info.file_size for info in entries) > _MOST_BYTES:
                raise ValueError(f"its entries have more than {_MOST_BYTES} bytes")
            for info in entries:
                # Whatever folders a name has, its file goes into this one.
                (folder / Path(info.filename).name).write_bytes(archive.read(info))
    except (OSError, ValueError, LookupError, TypeError, *_NO_ARCHIVE) as error:
        raise popart_exception(
            f"{str(path)!r} cannot be loaded as an executable: {error}. Give the file that "
            "compileAndExport has written."
        ) from error
