"""Files that somebody says have a compiled program."""

import io
import json
import os
import stat
import zipfile

import pytest

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.sessions.exported import read_exported, write_exported


def archive_of(header, compression=zipfile.ZIP_DEFLATED, **entries):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        archive.writestr("session.json", header)
        for name, each in entries.items():
            archive.writestr(name, each)
    return bytearray(content.getvalue())


HEADER = json.dumps({"format": "ipu_keras exported session", "session": "session"})


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "program.popef"
    write_exported(path, "session", tmp_path)
    read_exported(path, "session", tmp_path)


def encrypted():
    content = archive_of(HEADER)
    # The flag in both headers of the only entry.
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + place] |= 1
    return content


def damaged():
    content = archive_of(HEADER * 3)
    start = content.index(b"session.json") + len("session.json")
    content[start : start + 8] = b"\xff" * 8
    return content


def compressed_otherwise():
    content = archive_of(HEADER)
    for mark, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        content[content.index(mark) + place] = 97
    return content


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (encrypted(), "is encrypted, password required"),
        (damaged(), "Error -3 while decompressing data|invalid"),
        (compressed_otherwise(), "compression method is not supported"),
        (archive_of("[" * 40_000), "maximum recursion depth exceeded"),
        (archive_of(" " * 2**20 + HEADER), "its header has more than 65536 bytes"),
        (archive_of("[]"), "list indices must be integers"),
        (archive_of(HEADER)[:40], "File is not a zip file"),
        (bytearray(b""), "File is not a zip file"),
    ],
)
def test_what_is_none(tmp_path, content, text):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(popart_exception, match=f"cannot be loaded as an executable: .*({text})"):
        read_exported(path, "session", tmp_path / "folder")


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path, tmp_path / "none"):
        with pytest.raises(popart_exception, match="cannot be loaded as an executable"):
            read_exported(type(tmp_path)(path), "session", tmp_path / "folder")
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    with pytest.raises(popart_exception, match="cannot be written: "):
        write_exported(tmp_path / "pipe" / "file", "session", tmp_path)
