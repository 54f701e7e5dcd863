"""Files that others see whole or not at all."""

import os
import re
import stat
import threading
import tracemalloc

import pytest

from ipu_keras.store import atomic_files
from ipu_keras.store.atomic_files import (
    make_folder,
    read_whole,
    remove_whole,
    warns_if_it_fails,
    write_atomically,
    written_beside,
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


def test_a_link_leads_to_what_it_is_of(tmp_path):
    (tmp_path / "other").mkdir()
    target, link = tmp_path / "other" / "target", tmp_path / "link"
    link.symlink_to("other/target")
    # At first there is no such file.
    for content in (b"first", b"second"):
        write_atomically(link, content)
        assert (link.is_symlink(), target.read_bytes()) == (True, content)
    assert [one.name for one in target.parent.iterdir()] == ["target"]
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        write_atomically(tmp_path / "round", b"")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o666])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path, mode):
    path = tmp_path / "file"
    path.touch()
    path.chmod(mode)
    write_atomically(path, b"content")
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_has_the_permissions_of_any_other(tmp_path):
    write_atomically(tmp_path / "file", b"content")
    (tmp_path / "other").touch()
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.skipif(os.getuid() != 0, reason="only the superuser gives files away")
def test_a_file_that_is_replaced_keeps_its_owner(tmp_path):
    path = tmp_path / "file"
    path.touch()
    os.chown(path, 1234, 5678)
    write_atomically(path, b"content")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 5678)


def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"before")
    opened = open

    def refusing(name, mode):
        # The superuser, whom tests may run as, is refused nothing.
        if mode == "ab":
            raise PermissionError(13, "Permission denied", str(name))
        return opened(name, mode)

    monkeypatch.setattr(atomic_files, "open", refusing, raising=False)
    with pytest.raises(PermissionError, match=r"Permission denied: '.*/file'"):
        write_atomically(path, b"after")
    with pytest.raises(PermissionError), written_beside(path) as new:
        new.write_bytes(b"after")
    assert path.read_bytes() == b"before"


@pytest.mark.skipif(os.getuid() != 0, reason="only the superuser makes devices")
@pytest.mark.parametrize(("minor", "error"), [(3, None), (7, "No space left on device")])
def test_a_device_stays_one(tmp_path, minor, error):
    path = tmp_path / "device"
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
    if error is None:
        write_atomically(path, b"content")
    else:
        with pytest.raises(OSError, match=error):
            write_atomically(path, b"content")
    assert stat.S_ISCHR(path.stat().st_mode)
    assert list(tmp_path.iterdir()) == [path]


def test_a_pipe_takes_more_than_it_holds(tmp_path):
    path, content = tmp_path / "pipe", os.urandom(2**18)
    os.mkfifo(path)
    read = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()))
    reader.start()
    write_atomically(path, iter([content[:3], b"", content[3:]]))
    reader.join()
    assert read == [content]
    assert path.is_fifo()


def test_what_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic_files, "_MOST_SECONDS_FOR_A_READER", 0)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, said in (
        ("pipe", "Nobody reads the pipe"),
        ("folder", "Is a directory"),
        ("n" * 256, "File name too long"),
    ):
        with pytest.raises(OSError, match=f"{said}: '{tmp_path / name}'"):
            write_atomically(tmp_path / name, b"")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["folder", "pipe"]


def test_the_longest_name(tmp_path):
    path = tmp_path / ("n" * 255)
    write_atomically(path, b"content")
    assert path.read_bytes() == b"content"


def test_a_folder_that_takes_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "open", _refuse)
    with pytest.raises(PermissionError, match=f"Permission denied: '{tmp_path / 'file'}'"):
        write_atomically(tmp_path / "file", b"")


def _refuse(path, flags, mode=0o777):
    raise PermissionError(13, "Permission denied", str(path))


def test_the_file_that_standard_output_goes_to(tmp_path, capfd):
    """A shell goes on writing into the file that it has opened, not into one in its place."""
    path = tmp_path / "out"
    with path.open("wb") as file:
        before, kept = path.stat().st_ino, os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            write_atomically(path, b"content")
        finally:
            os.dup2(kept, 1)
            os.close(kept)
    assert (path.read_bytes(), path.stat().st_ino) == (b"content", before)


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


def names_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_what_is_written_beside_takes_the_place_of_what_was_there(tmp_path):
    """A file that it needs, such as a part of it, comes with it, and a file keeps its mode."""
    path = tmp_path / "file"
    path.write_text("before")
    path.chmod(0o640)
    with written_beside(path) as new:
        new.with_name("part").write_text("of it")
        new.write_text("after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert names_in(tmp_path) == ["file", "part"]


@pytest.mark.parametrize("is_worked_in", [False, True])
def test_a_folder_that_is_replaced_keeps_what_is_of_others(tmp_path, monkeypatch, is_worked_in):
    """Such as logs beside a backup; and it stays the folder that a process works in."""
    path = tmp_path / "folder"
    (path / "logs").mkdir(parents=True)
    (path / "logs" / "first").write_text("of others")
    (path / "weights").write_text("before")
    if is_worked_in:
        monkeypatch.chdir(path)
    number = path.stat().st_ino
    with written_beside(path) as new:
        new.mkdir()
        (new / "weights").write_text("after")
    names = ["folder", "folder/logs", "folder/logs/first", "folder/weights"]
    assert names_in(tmp_path) == names
    assert (path / "weights").read_text() == "after"
    assert (path.stat().st_ino == number) is is_worked_in
    remove_whole(path)
    assert names_in(tmp_path) == []


def test_a_folder_a_file_and_a_pipe_do_not_take_the_place_of_each_other(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("before")
    (tmp_path / "file").write_text("before")
    os.mkfifo(tmp_path / "pipe")
    names = names_in(tmp_path)
    with pytest.raises(IsADirectoryError), written_beside(tmp_path / "folder") as new:
        new.write_text("after")
    with pytest.raises(NotADirectoryError), written_beside(tmp_path / "file") as new:
        new.mkdir()
    refused = "A file takes the place of a file. Received: path='.*/pipe'"
    with pytest.raises(OSError, match=refused), written_beside(tmp_path / "pipe") as new:
        new.write_text("after")
    assert names_in(tmp_path) == names
    assert (tmp_path / "folder" / "file").read_text() == "before"


def test_what_cannot_be_written_beside_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")

    def write():
        with written_beside(path) as new:
            new.write_text("aft")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert path.read_text() == "before"
    assert names_in(tmp_path) == ["file"]
    with (
        pytest.raises(FileNotFoundError, match="there is no folder"),
        written_beside(tmp_path / "missing" / "file"),
    ):
        pass


def test_a_link_is_followed_to_what_is_replaced(tmp_path):
    (tmp_path / "file").write_text("before")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with written_beside(tmp_path / "link") as new:
        assert new.name == "link"  # of which Keras takes the ending
        new.write_text("after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "after"
