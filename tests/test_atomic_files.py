"""Files that others see whole or not at all."""

import re
from pathlib import Path

import pytest

from ipu_keras.atomic_files import write_atomically


def test_a_new_file_and_one_that_is_replaced(tmp_path):
    path = tmp_path / "file"
    for content in (b"first", b"second\n\0"):
        write_atomically(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def fails(self, content):
        with open(self, "wb") as file:
            file.write(content[:2])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", fails)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(path, b"after")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_missing(tmp_path):
    path = tmp_path / "missing" / "file"
    expected = (
        f"A file is written into a folder that exists. Received: path={str(path)!r}, and there is "
        f"no folder {str(path.parent)!r}"
    )
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(expected)}$"):
        write_atomically(path, b"")
