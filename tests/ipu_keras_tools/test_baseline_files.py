"""Baselines in files."""

import pytest

from ipu_keras_tools.baseline_files import read_baseline, write_baseline


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
