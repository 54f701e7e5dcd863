"""Reads ONNX models from files or bytes, which may come from anybody."""

import os
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.files.checks import check_model
from ipu_keras.popart.files.messages import all_tensors
from ipu_keras.popart.model.external_data import ExternalData, FileRange
from ipu_keras.popart.model.graph import OnnxModel
from ipu_keras.popart.model.parsing import parsed
from ipu_keras.popart.model.tensors import is_external, put_inside
from ipu_keras.store.atomic_files import read_whole

# Protobuf's limit of a message.
MOST_BYTES = 2**31 - 1

_PRINTABLE = frozenset(string.printable.encode())


@dataclass(frozen=True)
class LoadedModel:
    """A model as values and as a message, into which the data of other files was copied.

    `places` says, by name of initialiser, in which other file the data was.
    """

    model: OnnxModel
    proto: ModelProto
    places: Mapping[str, FileRange]


def load(source: bytes | str | os.PathLike) -> LoadedModel:
    """Reads and checks a model, which is given by its path or serialised.

    Data in other files is read from the model's folder only, or from the current folder if the
    model is given as bytes.
    """
    if not isinstance(source, bytes | str | os.PathLike):
        raise popart_exception(
            "A model is given as the path of a file, or as bytes, such as of "
            f"`Builder.getModelProto()`. Received: {source!r} (of type {type(source).__name__})"
        )
    if isinstance(source, bytes):
        what, folder = f"The serialised ONNX model of {len(source)} bytes", Path()
    else:
        path = Path(os.fsdecode(source))
        what, folder = f"The ONNX file {str(path)!r}", path.parent
    try:
        content = source if isinstance(source, bytes) else _read(path)
        proto = _decoded(content)
        check_model(proto)
        external = ExternalData(folder)
        places = {
            each.name: external.place_of(each)
            for each in proto.graph.initializer
            if is_external(each)
        }
        _put_data_inside(proto.graph, external)
        return LoadedModel(parsed(proto), proto, places)
    except popart_exception as error:
        raise popart_exception(f"{what} cannot be loaded: {_shortened(str(error))}") from error


def _shortened(text: str) -> str:
    """Shortens a message, as a hostile file may have names of any length."""
    return text if len(text) <= 2000 else f"{text[:1000]} ... {text[-900:]}"


def _read(path: Path) -> bytes:
    try:
        return read_whole(path, MOST_BYTES)
    except FileNotFoundError as error:
        raise popart_exception(f"There is no such file. {_where_paths_begin()}") from error
    except IsADirectoryError as error:
        raise popart_exception("It is a folder. Expected: a file.") from error
    except (OSError, ValueError) as error:
        # A null character in a path is a ValueError.
        raise popart_exception(f"{getattr(error, 'strerror', None) or error}.") from error


def _where_paths_begin() -> str:
    try:
        return f"Relative paths begin in {os.getcwd()!r}."
    except OSError:
        return "Relative paths begin nowhere, as the working directory was removed."


def _decoded(content: bytes) -> ModelProto:
    if not content:
        raise popart_exception("It is empty.")
    if len(content) > MOST_BYTES:
        raise popart_exception("It is larger than 2 GB. Save the weights in a file of their own.")
    # A model begins with a field number, and so is never all printable.
    first = content[:256]
    if _PRINTABLE.issuperset(first):
        is_pointer = first.startswith(b"version https://git-lfs")
        raise popart_exception(
            f"It is a text, and no ONNX model. It begins with {first[:40].decode()!r}."
            + (" Get the file itself with `git lfs pull`." if is_pointer else "")
        )
    try:
        return ModelProto.FromString(content)
    except DecodeError as error:
        if "MaxDepth" in str(error):
            cause = "Its graphs are nested too deep: protobuf reads 100 messages within another."
        elif _ends_early(content):
            cause = "It is truncated: its last part is longer than what is left of it."
        else:
            cause = "It is no ONNX model, or is damaged: its bytes are no message of protobuf."
        raise popart_exception(cause) from error


def _ends_early(content: bytes) -> bool:
    """Whether a message ends within one of its fields, as that of a partial download does.

    Only the outermost fields are walked, by their kinds in protobuf's encoding.
    """
    place = 0
    while place < len(content):
        tag, place = _varint(content, place)
        kind = tag & 7
        if kind == 0:
            _, place = _varint(content, place)
        elif kind == 2:
            length, place = _varint(content, place)
            place += length
        elif kind in (1, 5):
            place += 8 if kind == 1 else 4
        else:
            return False
    return place > len(content)


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """Decodes a number of a message; the place after it may be behind the end."""
    number = 0
    for shift in range(0, 70, 7):
        if place >= len(content):
            return 0, len(content) + 1
        number |= (content[place] & 127) << shift
        place += 1
        if content[place - 1] < 128:
            break
    return number, place


def _put_data_inside(graph: GraphProto, external: ExternalData) -> None:
    for tensor, what in all_tensors(graph):
        if is_external(tensor):
            put_inside(tensor, what, external)
