"""The cache of what modelling gave: in memory, in directories, between processes."""

import doctest
import json
import os
import subprocess
import sys
import threading
import time

import pytest

from ipu_keras.ir import TensorSpec
from ipu_keras.store import executable_cache
from ipu_keras.store.atomic_files import read_whole
from ipu_keras.store.executable_cache import (
    ExecutableCache,
    content_key,
    digest_of_sources,
    export,
    path_of,
)

KEY = content_key("a key of these tests")
SPEC = TensorSpec((2, 3), "float32")


def never():
    raise AssertionError("it is there already")


def find(directory, build=never, *, key=KEY, cache=None):
    return (cache or ExecutableCache()).find_or_build(key, TensorSpec, build, directory)


def test_examples():
    assert doctest.testmod(executable_cache).failed == 0


def test_keys_are_of_the_content():
    assert content_key(SPEC, 1) == content_key(TensorSpec((2, 3), "float32"), 1)
    others = [(SPEC, 2), (TensorSpec((3, 2), "float32"), 1), (1, SPEC), (SPEC,), ((SPEC, 1),)]
    assert len({content_key(SPEC, 1), *(content_key(*content) for content in others)}) == 6


def test_memory_keeps_what_was_used_last():
    cache = ExecutableCache()
    for number in range(17):
        cache.find_or_build(str(number), int, lambda: number)  # noqa: B023 - runs at once
        cache.find_or_build("0", int, never)
    assert cache.find_or_build("2", int, never) == 2
    assert cache.find_or_build("1", int, lambda: -1) == -1  # it was used the longest ago


def test_what_fails_is_not_kept():
    cache = ExecutableCache()
    with pytest.raises(ZeroDivisionError):
        cache.find_or_build(KEY, int, lambda: 1 // 0)
    assert cache.find_or_build(KEY, int, lambda: 1) == 1


def test_a_directory_serves_later_caches(tmp_path):
    directory = tmp_path / "made" / "on demand"
    assert find(directory, lambda: SPEC) == SPEC
    assert find(directory) == SPEC
    content = json.loads(path_of(directory, KEY).read_text())
    assert content.pop("checksum") == executable_cache.digest('{"shape":[2,3],"dtype":"float32"}')
    assert content == {
        "format": "ipu_keras executable",
        "schema": 1,
        "key": KEY,
        "content": {"shape": [2, 3], "dtype": "float32"},
    }


def test_what_other_code_made_has_another_digest(tmp_path):
    folder = tmp_path / "ir"
    folder.mkdir()
    (folder / "graph.py").write_text("first")
    first = digest_of_sources([folder])
    assert digest_of_sources([folder]) == first
    (folder / "notes.txt").write_text("of no consequence")
    assert digest_of_sources([folder]) == first
    (folder / "graph.py").write_text("second")
    second = digest_of_sources([folder])
    (folder / "graph.py").rename(folder / "op.py")
    assert len({first, second, digest_of_sources([folder])}) == 3


def test_what_other_code_made_is_not_taken(tmp_path, monkeypatch):
    other = TensorSpec((4,), "float32")
    assert find(tmp_path, lambda: SPEC) == SPEC
    monkeypatch.setattr(executable_cache, "_code_digest", lambda: "of other sources")
    assert find(tmp_path, lambda: other) == other
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.undo()
    assert find(tmp_path) == SPEC


def test_what_is_in_memory_is_written_to_a_directory_that_lacks_it(tmp_path):
    cache = ExecutableCache()
    find(None, lambda: SPEC, cache=cache)
    find(tmp_path, cache=cache)
    assert find(tmp_path) == SPEC


def test_equal_values_have_equal_files(tmp_path):
    for name in ("a", "b"):
        export(tmp_path / name, KEY, SPEC)
    files = [path_of(tmp_path / name, KEY).read_bytes() for name in ("a", "b")]
    assert files[0] == files[1]


def damaged(text):
    return text.replace("[2,3]", "[2,4]")


def of_another_key(text):
    return text.replace(KEY, content_key("another"))


def of_another_schema(text):
    return text.replace('"schema":1', '"schema":0')


@pytest.mark.parametrize(
    "change",
    [
        damaged,
        of_another_key,
        of_another_schema,
        lambda text: text[: len(text) // 2],
        lambda text: text + text,
        lambda text: "",
        lambda text: "[" * 100_000 + "\n" * 4,
        lambda text: json.dumps(json.loads(text)),
    ],
)
def test_files_that_do_not_hold_it_are_replaced(tmp_path, change):
    path = path_of(tmp_path, KEY)
    export(tmp_path, KEY, SPEC)
    good = path.read_text()
    path.write_text(change(good))
    with pytest.warns(UserWarning, match=r"ignored and replaced: it holds no such") as warned:
        assert find(tmp_path, lambda: SPEC) == SPEC
    assert len(warned) == 1
    assert repr(str(path)) in str(warned[0].message)
    assert path.read_text() == good
    assert find(tmp_path) == SPEC


def test_a_file_that_is_no_text_is_replaced(tmp_path):
    path_of(tmp_path, KEY).write_bytes(b"\x80\x04\x95 a pickle, say")
    with pytest.warns(UserWarning, match="can't decode byte 0x80"):
        find(tmp_path, lambda: SPEC)
    assert find(tmp_path) == SPEC


def test_a_directory_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("in the way")
    directory = tmp_path / "file" / "directory"
    with pytest.warns(UserWarning, match=r"'.*file/directory' cannot be used .* Not a directory"):
        assert find(directory, lambda: SPEC) == SPEC
    named = "cannot be used for executables; --executable_cache_path in .*serialization_output_fold"
    with pytest.warns(UserWarning, match=named):
        export(directory, KEY, SPEC)


@pytest.mark.parametrize(
    ("name", "reason"), [("a\0b", "embedded null byte"), ("n" * 300, "File name too long")]
)
def test_a_directory_that_no_system_could_have(tmp_path, name, reason):
    with pytest.warns(UserWarning, match=f"cannot be used for executables.*{reason}"):
        assert find(tmp_path / name, lambda: SPEC) == SPEC
    with pytest.warns(UserWarning, match=f"cannot be used for executables.*{reason}"):
        export(tmp_path / name, KEY, SPEC)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written(tmp_path):
    path_of(tmp_path, KEY).mkdir()
    with pytest.warns(UserWarning, match=f"The file {str(path_of(tmp_path, KEY))!r} ") as warned:
        assert find(tmp_path, lambda: SPEC) == SPEC
    assert "Is a directory" in str(warned[0].message)
    assert "could not be written" in str(warned[1].message)
    path = path_of(tmp_path, KEY)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_replaced(tmp_path, make):
    path = path_of(tmp_path, KEY)
    make(path)
    with pytest.warns(UserWarning, match="is no regular file"):
        assert find(tmp_path, lambda: SPEC) == SPEC
    assert find(tmp_path) == SPEC
    path.unlink()
    make(path)
    export(tmp_path, KEY, SPEC)
    assert find(tmp_path) == SPEC


def test_a_lock_that_is_no_file_is_left_alone(tmp_path):
    lock = tmp_path / f"{path_of(tmp_path, KEY).name}.lock"
    os.mkfifo(lock)
    with pytest.warns(UserWarning, match="is in the way of a lock"):
        assert find(tmp_path, lambda: SPEC) == SPEC
    assert list(tmp_path.iterdir()) == [lock]


def test_a_file_that_is_too_large(tmp_path):
    path = path_of(tmp_path, KEY)
    with path.open("wb") as file:
        file.truncate(100)
    with pytest.raises(OSError, match="is larger than 99 bytes"):
        read_whole(path, 99)
    assert read_whole(path, 100) == bytes(100)


def test_locks_leave_no_files(tmp_path):
    for number in range(3):
        cache = ExecutableCache()
        cache.find_or_build(content_key(number), int, lambda: 1, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    assert not list(tmp_path.glob("*.lock"))


@pytest.mark.parametrize(
    "content",
    [
        *("null", "[]", "{}", "3", '{"shape":[2,3]}', '{"shape":[2,3],"dtype":"float32","more":1}'),
        *('{"shape":"23","dtype":"float32"}', '{"shape":[2,true],"dtype":"float32"}'),
        *('{"shape":[2,1e9],"dtype":"float32"}', '{"shape":[2,3],"dtype":null}'),
        '{"shape":[2,100000000000000000000],"dtype":"float32"}',
    ],
)
def test_content_of_another_type_with_its_checksum_is_replaced(tmp_path, content):
    path = path_of(tmp_path, KEY)
    export(tmp_path, KEY, SPEC)
    good = path.read_text()
    checksum = json.loads(good)["checksum"]
    old = good.split("\n")[2]
    path.write_text(good.replace(old, content).replace(checksum, executable_cache.digest(content)))
    with pytest.warns(UserWarning, match="ignored and replaced"):
        assert find(tmp_path, lambda: SPEC) == SPEC
    assert path.read_text() == good


def test_content_that_a_check_refuses_is_replaced(tmp_path):
    def check(value):
        if value != 2:
            raise ValueError("it is not 2")

    export(tmp_path, KEY, 1)
    with pytest.warns(UserWarning, match="Received: it is not 2"):
        assert ExecutableCache().find_or_build(KEY, int, lambda: 2, tmp_path, check) == 2
    assert ExecutableCache().find_or_build(KEY, int, never, tmp_path, check) == 2


def test_threads_build_once():
    cache, built = ExecutableCache(), []

    def build():
        time.sleep(0.02)
        built.append(1)
        return 1

    threads = [
        threading.Thread(target=cache.find_or_build, args=(KEY, int, build)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert built == [1]


def test_processes_build_once(tmp_path):
    script = f"""
import sys, time
from pathlib import Path
from ipu_keras.store.executable_cache import ExecutableCache
def build():
    time.sleep(0.5)
    return int(sys.argv[1])
print(ExecutableCache().find_or_build({KEY!r}, int, build, Path({str(tmp_path)!r})))
"""
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(k)], stdout=subprocess.PIPE, text=True)
        for k in range(2)
    ]
    printed = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert printed[0] == printed[1]
