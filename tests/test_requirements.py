"""What an environment without TensorFlow, or with another Keras, is told."""

import subprocess
import sys
from pathlib import Path

import pytest

from ipu_keras._requirements import check, check_keras, check_tensorflow

PROJECT = Path(__file__).resolve().parent.parent


def import_with(tensorflow: str) -> str:
    """Returns the last lines of importing ipu_keras where TensorFlow is what the source says."""
    script = f"import sys; sys.path.insert(0, {str(PROJECT)!r}); {tensorflow}; import ipu_keras"
    finished = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert finished.returncode == 1
    return finished.stderr


def test_missing_tensorflow():
    message = import_with('sys.modules["tensorflow"] = None')
    assert "ImportError: ipu_keras needs TensorFlow, which is not installed." in message
    assert 'pip install "ipu-keras[tensorflow-cpu]"\n' in message
    assert 'pip install "ipu-keras[tensorflow]"\n' in message
    assert "two distributions that overwrite each other's files" in message


def test_damaged_tensorflow():
    message = import_with('sys.modules["tensorflow"] = type(sys)("tensorflow")')
    assert "ImportError: The installation of TensorFlow is damaged" in message
    assert 'pip install "ipu-keras[tensorflow-cpu]"\n' in message


@pytest.mark.parametrize("collects", [True, False])
def test_no_garbage_is_looked_for_while_tensorflow_is_imported(tmp_path, collects):
    (tmp_path / "tensorflow.py").write_text("import gc; print(gc.isenabled())", "utf-8")
    before = "pass" if collects else "gc.disable()"
    script = f"""
import gc, sys
sys.path[:0] = [{str(tmp_path)!r}, {str(PROJECT)!r}]
{before}
try:
    import ipu_keras
except ImportError:
    print(gc.isenabled())
"""
    printed = subprocess.check_output([sys.executable, "-c", script], text=True, timeout=60)
    assert printed.split() == ["False", str(collects)]


def test_legacy_keras(monkeypatch):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    with pytest.raises(ImportError, match=r"Received: TF_USE_LEGACY_KERAS=1\. Unset it"):
        check()


@pytest.mark.parametrize("version", ["3.12.0", "3.15.1"])
def test_keras_that_serves(version):
    check_keras(version, "tensorflow")


@pytest.mark.parametrize("version", ["2.19.0", "2.20.0", "2.21.1-rc0"])
def test_tensorflow_that_serves(version):
    check_tensorflow(version)


def test_old_tensorflow():
    with pytest.raises(ImportError, match=r"TensorFlow 2.19 or newer. Received: tensorflow 2.18.1"):
        check_tensorflow("2.18.1")


def test_newer_versions_than_were_tested():
    with pytest.warns(
        UserWarning, match=r"tested with TensorFlow up to 2.21, and is used with 2.22"
    ):
        check_tensorflow("2.22.0")
    with pytest.warns(
        UserWarning, match=r"tested with Keras up to 3.15, and is used with 4.0.0.de"
    ):
        check_keras("4.0.0.dev0", "tensorflow")


@pytest.mark.parametrize("version", ["2.15.0", "3.9.2", "3.11.3"])
def test_old_keras(version):
    with pytest.raises(ImportError, match=f"needs Keras 3.12 or newer. Received: keras {version}"):
        check_keras(version, "tensorflow")


def test_other_backend():
    with pytest.raises(ImportError, match=r"Received: backend 'jax'\. Set KERAS_BACKEND=tensorf"):
        check_keras("3.15.1", "jax")
