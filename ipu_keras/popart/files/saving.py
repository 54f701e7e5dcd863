"""Writes ONNX models, with their weights inside or in files of their own."""

import contextlib
import hashlib
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from google.protobuf.message import EncodeError, Message
from onnx import ModelProto, TensorProto

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.files.loading import MOST_BYTES
from ipu_keras.popart.model.data_types import dtype_of
from ipu_keras.popart.model.external_data import (
    FileRange,
    check_unused,
    has_pieces,
    note_written,
    replaced_parts,
)
from ipu_keras.popart.model.tensors import is_external, raw_data_of
from ipu_keras.store.atomic_files import write_atomically

# Smaller data stays in the model, as reading it from another file takes longer.
_LEAST_BYTES = 1024

# All fields of a tensor's message that have data, or say where it is.
DATA_FIELDS = (
    *("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"),
    *("string_data", "external_data", "data_location"),
)


def serialised(proto: ModelProto) -> bytes:
    """Serialises a model, which must not be larger than 2 GB, protobuf's limit of a message."""
    try:
        content = proto.SerializeToString()
    except EncodeError as error:
        raise popart_exception(_too_large()) from error
    if len(content) > MOST_BYTES:
        raise popart_exception(_too_large())
    return content


def save(proto: ModelProto, path: str | os.PathLike, *, external_data: bool = False) -> None:
    """Writes a model atomically: a reader of `path` finds the previous model or all of this one.

    With `external_data`, the data of large initialisers goes into a file beside the model, as it
    must for more than 2 GB. The name of that file has a digest of its contents, and such files of
    models that were at `path` before are removed.
    """
    path = Path(os.fsdecode(path))
    if os.path.isdir(path):
        raise popart_exception(f"The file {str(path)!r} cannot be written: Is a directory.")
    check_unused(path, _holders(proto.graph.initializer))
    large = [each for each in proto.graph.initializer if _num_bytes(each) >= _LEAST_BYTES]
    kept = None
    if external_data and large:
        # Whoever reads the model meanwhile must never find it without its data, or with that of
        # another model: the data has a name of its own, and is written before the model.
        kept = path.with_name(f"{path.name}.{_digest(large)}.data")
        _write(kept, map(raw_data_of, large))
        proto = _without_data(proto, {each.name for each in large}, kept.name)
    if any(is_external(each) for each in proto.graph.initializer):
        proto = _as_seen_from(path.parent, proto)
    _write(path, [serialised(proto)])
    _remove_data_files(path, kept)


def move_data_outside(proto: ModelProto, names: Sequence[str], filename: str | os.PathLike) -> None:
    """Writes the data of initialisers into a file, and changes the model to refer to it.

    A relative `filename` counts from the folder in which the model is saved, and from the current
    folder as long as the model is only in memory.
    """
    path = Path(os.fsdecode(filename))
    tensors = {each.name: each for each in proto.graph.initializer}
    _check_movable(tensors, names, path)
    chosen = [tensors[name] for name in dict.fromkeys(names)]
    _write(path, map(raw_data_of, chosen))
    note_written(path)
    _refer(chosen, str(path))


def put_in_place(proto: ModelProto, places: Mapping[str, FileRange]) -> None:
    """Writes the data of initialisers to their places in files, and makes the model refer to these.

    Other bytes of the files stay as they are; missing files are made.
    """
    tensors = [each for each in proto.graph.initializer if each.name in places]
    files: dict[Path, dict[int, bytes]] = {}
    for tensor in tensors:
        place, data = places[tensor.name], raw_data_of(tensor)
        if files.setdefault(place.path, {}).setdefault(place.offset, data) != data:
            raise popart_exception(_overlapping(tensor.name, place))
    for path, pieces in files.items():
        _check_apart(path, pieces)
        if not has_pieces(path, pieces):
            _write(path, replaced_parts(path, pieces))
            note_written(path)
    for tensor in tensors:
        place = places[tensor.name]
        _refer([tensor], str(place.path), place.offset)


def _check_apart(path: Path, pieces: Mapping[int, bytes]) -> None:
    end = 0
    for offset, piece in sorted(pieces.items()):
        if offset < end:
            raise popart_exception(_overlapping("an initialiser", FileRange("", path, offset)))
        end = offset + len(piece)


def _overlapping(name: str, place: FileRange) -> str:
    return (
        f"The data of {name!r}, from byte {place.offset} of {str(place.path)!r}, lies over that of "
        "another initialiser with other values. Name a file for them of their own: "
        "`updateExternallySavedTensorLocations`."
    )


def _check_movable(tensors: dict[str, TensorProto], names: Sequence[str], path: Path) -> None:
    for name in names:
        tensor = tensors.get(name)
        if tensor is None:
            raise popart_exception(
                f"There is no initialiser {name!r}, whose data could be saved. The initialisers "
                f"are: {', '.join(sorted(tensors)) or 'none'}."
            )
        if is_external(tensor):
            raise popart_exception(f"The data of {name!r} is in another file already.")
        if tensor.data_type == TensorProto.STRING:
            raise popart_exception(f"{name!r} has texts, whose data is always in the model.")
    check_unused(path, _holders(tensors.values()))


def _holders(tensors: Iterable[TensorProto]) -> Iterator[tuple[str, str]]:
    """Yields the names of tensors whose data is in files, with these files."""
    for tensor in tensors:
        for entry in tensor.external_data if is_external(tensor) else ():
            if entry.key == "location":
                yield tensor.name, entry.value


def _num_bytes(tensor: TensorProto) -> int:
    """Returns the bytes of data that may be moved outside; ONNX allows that for numbers only."""
    if is_external(tensor) or tensor.data_type == TensorProto.STRING:
        return 0
    return math.prod(tensor.dims) * dtype_of(tensor.data_type).itemsize


def _digest(tensors: Iterable[TensorProto]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for each in tensors:
        digest.update(raw_data_of(each))
    return digest.hexdigest()


def _without_data(proto: ModelProto, names: Set[str], location: str) -> ModelProto:
    """Copies a model whose data of some initialisers is in a file, without copying that data."""
    copy = _copied(proto, "graph")
    copy.graph.MergeFrom(_copied(proto.graph, "initializer"))
    for each in proto.graph.initializer:
        added = copy.graph.initializer.add()
        # Initialiser by initialiser: all data together may exceed what one message can have.
        added.MergeFrom(_copied(each, *DATA_FIELDS) if each.name in names else each)
    _refer([each for each in copy.graph.initializer if each.name in names], location)
    return copy


def _as_seen_from(folder: Path, proto: ModelProto) -> ModelProto:
    """Copies a model, with locations of data relative to `folder` rather than the current one."""
    copy = _without_data(proto, frozenset(), "")
    for tensor in copy.graph.initializer:
        for entry in tensor.external_data if is_external(tensor) else ():
            file = os.path.realpath(entry.value)
            within = os.path.relpath(file, os.path.realpath(folder))
            # Files outside of the folder get their full path: readers refuse them, but for the
            # process that wrote them.
            is_outside = within.split(os.sep)[0] == os.pardir
            if entry.key == "location" and os.path.isfile(file):
                entry.value = file if is_outside else within
    return copy


def _copied(message: Any, *without: str) -> Any:
    """Copies a message without some of its fields, which may be too large to copy."""
    copy = type(message)()
    for field, value in message.ListFields():
        if field.name in without:
            continue
        if isinstance(value, Message):
            getattr(copy, field.name).MergeFrom(value)
        elif hasattr(value, "extend"):
            getattr(copy, field.name).extend(value)
        else:
            setattr(copy, field.name, value)
    return copy


def _refer(tensors: Iterable[TensorProto], location: str, offset: int = 0) -> None:
    """Makes tensors refer to a file, in which their data lies one after the other."""
    for tensor in tensors:
        length = math.prod(tensor.dims) * dtype_of(tensor.data_type).itemsize
        for field in DATA_FIELDS:
            tensor.ClearField(field)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        offset += length


def _write(path: Path, parts: Iterable[bytes]) -> None:
    try:
        write_atomically(path, parts)
    except (OSError, ValueError) as error:
        # A null character in a path is a ValueError.
        raise popart_exception(f"The file {str(path)!r} cannot be written: {error}") from error


def _remove_data_files(path: Path, kept: Path | None) -> None:
    """Removes the data files of models that were at a path before."""
    pattern = re.compile(re.escape(path.name) + r"\.[0-9a-f]{16}\.data")
    # A file that cannot be removed does no harm but to take space.
    with contextlib.suppress(OSError):
        for each in list(path.parent.iterdir()):
            if pattern.fullmatch(each.name) and each != kept:
                each.unlink(missing_ok=True)


def _too_large() -> str:
    return (
        "The model is larger than 2 GB, which is the most that a message of protobuf can have. "
        "Save the data of its weights in files of their own: `saveInitializersExternally`."
    )
