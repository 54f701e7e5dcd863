"""What several processes save is written by the first of them, whole or not at all."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("checkpointing.py")
MPIRUN = Path(sys.executable).with_name("mpirun")


def run(folder, *arguments, fails=False):
    """What each of two processes finds, by rank."""
    folder.mkdir(exist_ok=True)
    process = subprocess.run(
        [MPIRUN, "-n", "2", sys.executable, SCRIPT, folder, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (process.returncode != 0) is fails, process.stderr
    return [json.loads(path.read_text()) for path in sorted(folder.glob("?.json"))]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """What both processes find of Keras, TensorFlow, PopART and undisturbed training, and where."""
    folder = tmp_path_factory.mktemp("files")
    return folder, list(zip(*run(folder, "files"), strict=True))


def test_files_of_keras(files):
    """A weight is the rank plus 1, and then plus 5, which tells who wrote a file, and when."""
    folder, ((first, second), *_) = files
    written = {
        "all.weights.h5": 1.0,
        "all.keras": 5.0,
        "as_folder": 1.0,
        "first.weights.h5": 1.0,
        "made/2.weights.h5": 5.0,
        "of.tflite": 0.0,
    }
    why = "A file is written into a folder that exists. Received: path='/missing/of.keras', and "
    why += "there is no folder '/missing'"
    is_folder = "[Errno 21] Is a directory: '/made.keras'"
    refused = "Rank 0 could not write '{}' for all processes. Received: {}"
    assert first == {**written, "own_0.weights.h5": 1.0, "errors": [why, is_folder]}
    assert second == {
        **written,
        "own_1.weights.h5": 2.0,
        "errors": [
            refused.format("/missing/of.keras", f"FileNotFoundError: {why}"),
            refused.format("/made.keras", f"IsADirectoryError: {is_folder}"),
        ],
    }
    assert list(folder.rglob(".*.partial")) == []


def test_checkpoints_of_tensorflow(files):
    folder, (_, found, *_) = files
    expected = {
        "objects": 1.0,
        "paths": ["ckpt-1", "ckpt-2"],
        "written": "written",
        "threads": 1.0,
        "exported": 1.0,
        "simple": 1.0,
        "session": 1.0,
        "last": ["session-1", "session-2"],
        "latest": "session-2",
    }
    assert found == (expected, expected)
    assert len([*(folder / "events").iterdir()]) == 2


def test_models_of_popart(files):
    _, (_, _, found, _) = files
    assert found == ({"weights": [1.0, 1.0]},) * 2


def test_training_goes_on_from_a_backup_that_was_whole(files, tmp_path):
    """It is killed in the middle of the third backup, and ends as if it had not been."""
    _, (*_, undisturbed) = files
    folder = tmp_path / "killed"
    assert run(folder, "training", 2, fails=True) == []
    for name, epoch in (("training_metadata.json", 2), ("training_metadata.json.bkp", 1)):
        assert json.loads((folder / "backup" / name).read_text())["epoch"] == epoch
    assert len(list(folder.glob(".*.partial"))) == 1  # what it was writing
    restarted = run(folder, "training", -1)
    assert [each["epochs"] for each in restarted] == [2, 2]
    for one, other in zip(restarted, undisturbed, strict=True):
        np.testing.assert_array_equal(one["weights"], other["weights"])
    assert not (folder / "backup").exists()
