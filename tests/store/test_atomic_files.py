"""Files that others see whole or not at all."""

import os
import re
import tracemalloc

import pytest

from ipu_keras.store.atomic_files import (
    make_folder,
    read_whole,
    warns_if_it_fails,
    write_atomically,
)


def test_a_new_file_and_one_that_is_replaced(tmp_path):
    path = tmp_path / "file"
    for content in (b"first", b"second\n\0", b""):
        write_atomically(path, content)
        assert path.read_bytes() == content
    write_atomically(path, iter([b"in ", b"", b"parts"]))
    assert path.read_bytes() == b"in parts"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def parts():
        yield b"af"
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        write_atomically(path, parts())
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_read_whole(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    assert read_whole(path, 7) == b"content"
    tracemalloc.start()
    assert read_whole(path, 2**31) == b"content"
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**20
    with pytest.raises(OSError, match="is larger than 6 bytes"):
        read_whole(path, 6)


def test_what_is_no_file_that_could_be_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is no regular file"):
        read_whole(tmp_path / "pipe", 10)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="Is a directory"):
        read_whole(tmp_path, 10)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_that_is_missing(tmp_path):
    path = tmp_path / "missing" / "file"
    expected = (
        f"A file is written into a folder that exists. Received: path={str(path)!r}, and there is "
        f"no folder {str(path.parent)!r}"
    )
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(expected)}$"):
        write_atomically(path, b"")


def test_a_folder_and_those_above_it(tmp_path):
    for _ in range(2):
        make_folder(tmp_path / "above" / "folder")
    assert (tmp_path / "above" / "folder").is_dir()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("null\0character", r"embedded null byte: '.*null\\x00character'"),
        ("file/folder", "Not a directory: "),
        ("file", "File exists: "),
        ("n" * 300, "File name too long: "),
    ],
)
def test_a_folder_that_cannot_be_made(tmp_path, name, message):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match=message):
        make_folder(tmp_path / name)


def test_what_fails_is_a_warning():
    with (
        pytest.warns(UserWarning, match="is left out") as warned,
        warns_if_it_fails("The file 'x' is left out"),
    ):
        raise OSError("no space left")
    (warning,) = warned
    assert str(warning.message) == "The file 'x' is left out. Received: no space left"
    assert warning.filename == __file__
    with pytest.raises(KeyError, match="other"), warns_if_it_fails("It is of files only"):
        raise KeyError("other")
