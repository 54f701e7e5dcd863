"""Reads and replaces data of tensors in files beside a model.

A model names these files, and may come from anybody, so only its own folder is read.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx

from ipu_keras.popart.exceptions import popart_exception

# Files that this process wrote for a model in memory. They may be anywhere, and may be read again
# whatever a model says.
_WRITTEN: set[Path] = set()


_PART_BYTES = 2**24


@dataclass(frozen=True)
class FileRange:
    """Where the data of a tensor is.

    Args:
        location: The name of the file in the model.
        path: The file without links, within a folder that may be read.
        offset: The position in the file, in bytes.
    """

    location: str
    path: Path
    offset: int


class ExternalData:
    """The files of the folder that a model is in, which are all that the model may read."""

    def __init__(self, folder: Path):
        self._given = folder

    def bytes_of(self, tensor: onnx.TensorProto, num_bytes: int) -> bytes:
        """Reads the data of an external tensor, which has to have `num_bytes`."""
        where, place = _what(tensor), self.place_of(tensor)
        length = _count(_entries(tensor), "length", where)
        try:
            return _read(place.path, place.offset, length, num_bytes, where)
        except OSError as error:
            raise popart_exception(
                f"The file {str(place.path)!r}, which has {where}, cannot be read: "
                f"{error.strerror}. It has to be where the model's author had it, beside the model."
            ) from error

    def place_of(self, tensor: onnx.TensorProto) -> FileRange:
        """Returns where the data of an external tensor lies, which must be within the folder."""
        entries, where = _entries(tensor), _what(tensor)
        location = entries.get("location", "")
        path = self._path(location, where)
        return FileRange(location, path, _count(entries, "offset", where) or 0)

    @cached_property
    def _folder(self) -> Path:
        try:
            return Path(os.path.realpath(self._given))
        except OSError as error:
            raise popart_exception(
                f"The model's folder {str(self._given)!r} cannot be found: {error.strerror}."
            ) from error

    def _path(self, location: str | bytes, where: str) -> Path:
        """Resolves links and `..` of a location; the result has to be within the folder."""
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
    """Allows models to read a file that this process has written, wherever it is."""
    _WRITTEN.add(Path(os.path.realpath(path)))


def is_same_file(one: str | os.PathLike, other: str | os.PathLike) -> bool:
    """Whether two paths lead to one file, which need not exist."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False


def check_unused(path: str | os.PathLike, holders: Iterable[tuple[str, str | os.PathLike]]) -> None:
    """Raises a `popart_exception` if writing `path` would destroy the data of a tensor.

    `holders` has names of tensors, each with the file that has the tensor's data.
    """
    for name, file in holders:
        if is_same_file(file, path):
            raise popart_exception(
                f"The file {os.fsdecode(path)!r} has the data of {name!r}, which would be lost. "
                "Save all initialisers of a file in one call, or choose another file."
            )


def replaced_parts(path: Path, pieces: Mapping[int, bytes]) -> Iterator[bytes]:
    """Yields the contents of a file with the bytes of `pieces` at their offsets.

    If there is no such file, or it is shorter, zeros are between the pieces.
    """
    is_there = os.path.exists(path)
    with open(path if is_there else os.devnull, "rb", opener=_opened) as file:
        at = 0
        for offset, piece in sorted(pieces.items()):
            yield from _parts(file, at, offset - at)
            yield piece
            at = offset + len(piece)
        file.seek(at)
        while part := file.read(_PART_BYTES):
            yield part


def has_pieces(path: Path, pieces: Mapping[int, bytes]) -> bool:
    """Whether a file has the bytes of `pieces` at their offsets already."""
    try:
        with open(path, "rb", opener=_opened) as file:
            for offset, piece in pieces.items():
                file.seek(offset)
                if file.read(len(piece)) != piece:
                    return False
    except OSError:
        return False
    return True


def _parts(file: Any, at: int, num_bytes: int) -> Iterator[bytes]:
    """Yields `num_bytes` of a file, with zeros behind its end."""
    file.seek(at)
    while num_bytes > 0:
        part = file.read(min(num_bytes, _PART_BYTES)) or bytes(min(num_bytes, _PART_BYTES))
        yield part
        num_bytes -= len(part)


def _entries(tensor: onnx.TensorProto) -> dict[str, str]:
    return {each.key: each.value for each in tensor.external_data}


def _what(tensor: onnx.TensorProto) -> str:
    return f"the external data of {tensor.name!r}"


def _count(entries: Mapping[str, str], key: str, where: str) -> int | None:
    text = entries.get(key)
    if text is None:
        return None
    # An int64 has at most 19 digits; Python would read any number of them, slowly.
    if not (isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 20):
        raise popart_exception(f"The `{key}` of {where} is no number of bytes. Received: {text!r}")
    return int(text)


def _opened(path: str, flags: int) -> int:
    # Opening a pipe would block until somebody writes into it. Links are resolved already: if the
    # path is one now, it was replaced after the check.
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
        # Linux reads no more than 2 GB in one call.
        while done < num_bytes:
            read = file.readinto(view[done:])
            if not read:
                raise popart_exception(f"{str(path)!r} became smaller while it was read.")
            done += read
    return bytes(content)
