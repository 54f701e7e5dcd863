"""Data of tensors in files beside a model, which a model may name but not choose freely."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

import onnx

from ipu_keras.popart.exceptions import popart_exception

# Files that this process wrote for a model in memory, which may be anywhere: what it wrote it may
# read, whatever a model says.
_WRITTEN: set[Path] = set()


class ExternalData:
    """The files of a folder, from which a model in that folder takes data.

    Args:
        folder: Of the model.
    """

    def __init__(self, folder: Path):
        self._folder = Path(os.path.realpath(folder))

    def bytes_of(self, tensor: onnx.TensorProto, num_bytes: int) -> bytes:
        """The data of a tensor.

        Args:
            tensor: It, with `external_data`.
            num_bytes: How many it needs.

        Raises:
            popart_exception: There is no such file, it is outside of the folder, or too small.
        """
        entries = {each.key: each.value for each in tensor.external_data}
        where = f"the external data of {tensor.name!r}"
        offset = _count(entries, "offset", where) or 0
        length = _count(entries, "length", where)
        path = self._path(entries.get("location", ""), where)
        try:
            return _read(path, offset, length, num_bytes, where)
        except OSError as error:
            raise popart_exception(
                f"The file {str(path)!r}, which has {where}, cannot be read: {error.strerror}. It "
                "has to be where the model's author had it, beside the model."
            ) from error

    def _path(self, location: str | bytes, where: str) -> Path:
        """Where a file really is, which has to be within the folder."""
        if not isinstance(location, str) or not location or "\0" in location:
            raise popart_exception(
                f"For {where} no file is named. Expected: `location`, a path from the folder of "
                f"the model. Received: {location!r}"
            )
        path = Path(os.path.realpath(self._folder / location))
        if path in _WRITTEN or path.is_relative_to(self._folder):
            return path
        raise popart_exception(
            f"The file with {where} is outside of the model's folder, where nothing is read, as "
            "models come from anywhere. Move it into the folder, and name it by a path from "
            f"there. Received: location={location!r}"
        )


def note_written(path: Path) -> None:
    """Allows models to take data from a file, wherever it is.

    Args:
        path: That of a file which this process has written.
    """
    _WRITTEN.add(Path(os.path.realpath(path)))


def _count(entries: Mapping[str, str], key: str, where: str) -> int | None:
    text = entries.get(key)
    if text is None:
        return None
    # No more digits than an int64 has.
    if not (isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 20):
        raise popart_exception(f"The `{key}` of {where} is no number of bytes. Received: {text!r}")
    return int(text)


def _opened(path: str, flags: int) -> int:
    # Opening a pipe would wait until somebody writes into it; and the path has no links any more.
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def _read(path: Path, offset: int, length: int | None, num_bytes: int, where: str) -> bytes:
    with open(path, "rb", buffering=0, opener=_opened) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise popart_exception(f"{str(path)!r}, which has {where}, is no file.")
        given = found.st_size - offset if length is None else length
        if given != num_bytes or offset + num_bytes > found.st_size:
            raise popart_exception(
                f"There are {max(given, 0)} bytes for {where} in {str(path)!r}, from byte "
                f"{offset} of {found.st_size}; its dimensions need {num_bytes}."
            )
        content = bytearray(num_bytes)
        view = memoryview(content)
        file.seek(offset)
        done = 0
        # One call reads no more than 2 GB.
        while done < num_bytes:
            read = file.readinto(view[done:])
            if not read:
                raise popart_exception(f"{str(path)!r} became smaller while it was read.")
            done += read
    return bytes(content)
