import doctest
from pathlib import Path

import pytest

from ipu_keras_tools import baselines
from ipu_keras_tools.baselines import baseline_path, read_baseline, write_baseline


def test_examples():
    assert doctest.testmod(baselines).failed == 0


def test_no_two_tests_share_a_file():
    names = ["test_a[x/y]", "test_a[x_y]", "test_a[x y]", "A.test_a", "test_a" * 50, "test_a" * 51]
    paths = {baseline_path(Path("t.py"), name, number) for name in names for number in range(2)}
    assert len(paths) == 12
    assert all(len(path.name) < 255 and path.parent == Path("ipu_baselines/t") for path in paths)


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "folder" / "test_a.json"
    assert read_baseline(path) is None
    assert write_baseline(path, {"cycles_per_step": 3, "layers": {"a": 1}})
    assert read_baseline(path) == {"cycles_per_step": 3, "layers": {"a": 1}}
    assert not write_baseline(path, {"layers": {"a": 1}, "cycles_per_step": 3})
    assert [one.name for one in path.parent.iterdir()] == ["test_a.json"]


def test_a_write_that_fails_leaves_nothing(tmp_path):
    path = tmp_path / "test_a.json"
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        write_baseline(path, {"cycles_per_step": 3})
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ValueError, match=r"cannot be read: .*Is a directory"):
        read_baseline(path)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"schema": 2}', "[" * 10**5])
def test_what_is_no_baseline(tmp_path, text):
    path = tmp_path / "test_a.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"test_a.json cannot be read: .*`pytest --ipu-update`"):
        read_baseline(path)
