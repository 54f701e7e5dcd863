import doctest
from pathlib import Path

from ipu_keras_tools import baselines
from ipu_keras_tools.baselines import baseline_path


def test_examples():
    assert doctest.testmod(baselines).failed == 0


def test_no_two_tests_share_a_file():
    names = ["test_a[x/y]", "test_a[x_y]", "test_a[x y]", "A.test_a", "test_a" * 50, "test_a" * 51]
    paths = {baseline_path(Path("t.py"), name, number) for name in names for number in range(2)}
    assert len(paths) == 12
    assert all(len(path.name) < 255 and path.parent == Path("ipu_baselines/t") for path in paths)
