import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import model_of

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.files.loading import load
from ipu_keras.popart.files.saving import move_data_outside, put_in_place, save, serialised
from ipu_keras.popart.model.external_data import FileRange


def model(scale=1.0, size=1000):
    """A model with a large, a small and a text initialiser."""
    made = model_of(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        {"x": [1]},
        ["y"],
        {"w": np.full(size, scale, np.float32), "small": np.ones(2, np.float32)},
    )
    made.graph.initializer.append(helper.make_tensor("text", onnx.TensorProto.STRING, [1], ["a"]))
    made.producer_name = "test"
    made.metadata_props.add(key="k", value="v")
    return made


def test_a_model_comes_back(tmp_path):
    path = tmp_path / "model.onnx"
    for target in (path, str(path)):
        save(model(), target)
        assert load(path).proto == model()
    assert os.listdir(tmp_path) == ["model.onnx"]


def test_data_in_a_file_beside_it(tmp_path):
    path = tmp_path / "model.onnx"
    made = model()
    save(made, path, external_data=True)
    assert made == model()
    (data_file,) = tmp_path.glob("model.onnx.*.data")
    assert data_file.read_bytes() == made.graph.initializer[0].raw_data
    raw = onnx.ModelProto.FromString(path.read_bytes())
    assert [
        onnx.external_data_helper.uses_external_data(each) for each in raw.graph.initializer
    ] == [
        True,
        False,
        False,
    ]
    assert load(path).proto == made
    # Others read it as well.
    assert onnx.load(path).graph.initializer[0].raw_data == made.graph.initializer[0].raw_data


def test_data_of_models_before_is_removed(tmp_path):
    path = tmp_path / "model.onnx"
    (tmp_path / "model.onnx.mine.data").write_bytes(b"")
    (tmp_path / "other.onnx.0123456789abcdef.data").write_bytes(b"")
    for scale in (1.0, 2.0, 2.0):
        save(model(scale), path, external_data=True)
        assert load(path).model.graph.initialisers["w"][0] == scale
        assert len(os.listdir(tmp_path)) == 4
    save(model(), path)
    assert sorted(os.listdir(tmp_path)) == [
        "model.onnx",
        "model.onnx.mine.data",
        "other.onnx.0123456789abcdef.data",
    ]


@pytest.mark.parametrize("external_data", [False, True])
def test_where_nothing_can_be_written(tmp_path, external_data):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"")
    for path, text in (
        ("missing/model.onnx", "there is no folder"),
        ("folder", "Is a directory"),
        ("null\0", "embedded null byte"),
        ("n" * 300, "File name too long"),
    ):
        with pytest.raises(popart_exception, match=rf"^The file '.*' cannot be written: .*{text}"):
            save(model(), tmp_path / path, external_data=external_data)
    assert not [each for each in os.listdir(tmp_path) if each.startswith(".")]


WRITER = """
import sys
from test_saving import model
from ipu_keras.popart.files.saving import save
models = [model(float(scale), size=2_000_000) for scale in (1, 2)]
while True:
    for each in models:
        save(each, "inside.onnx")
        save(each, "outside.onnx", external_data=True)
"""


def test_who_is_killed_while_writing_leaves_one_of_the_models(tmp_path):
    here = os.path.dirname(__file__)
    folders = [here, *(each for each in sys.path if each)]
    paths = [tmp_path / "inside.onnx", tmp_path / "outside.onnx"]
    with subprocess.Popen(
        [sys.executable, "-c", WRITER],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
    ) as process:
        try:
            while not all(each.exists() for each in paths):
                assert process.poll() is None
                time.sleep(0.01)
            found = [set(), set()]
            for moment in np.linspace(0.001, 0.02, 30):
                # What is there at any moment is what is there after kill -9 at that moment.
                process.send_signal(signal.SIGSTOP)
                for path, scales in zip(paths, found, strict=True):
                    scales.add(scale_of(path))
                process.send_signal(signal.SIGCONT)
                time.sleep(moment)
        finally:
            process.kill()
    assert found == [{1.0, 2.0}, {1.0, 2.0}]
    for path in paths:
        assert scale_of(path) in (1.0, 2.0)
        # What the killed process left does not stand in the way.
        save(model(5.0, size=2_000_000), path, external_data=path.name == "outside.onnx")
        assert scale_of(path) == 5.0


def scale_of(path):
    """Of a model, which has all of its data."""
    weights = load(path).model.graph.initialisers["w"]
    assert weights.shape == (2_000_000,)
    assert weights.min() == weights.max()
    return float(weights[0])


def test_data_that_is_moved_outside_is_found_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "elsewhere").mkdir()
    for filename in ("models/weights", str(tmp_path / "elsewhere" / "weights")):
        made = model(3.0)
        move_data_outside(made, ["w", "small"], filename)
        assert os.path.getsize(filename) == 4008
        # In memory, from the current folder; and from the folder in which it is saved.
        in_memory = load(serialised(made))
        save(made, "models/model.onnx")
        for loaded in (in_memory, load("models/model.onnx")):
            assert loaded.proto == model(3.0)
    move_data_outside(made := model(4.0), ["w"], "models/weights")
    save(made, "models/model.onnx")
    # Where it is beside the model, everybody finds it.
    (entry, *_) = (
        onnx.load("models/model.onnx", load_external_data=False).graph.initializer[0].external_data
    )
    assert (entry.key, entry.value) == ("location", "weights")


def test_what_cannot_be_moved(tmp_path):
    made = model()
    for names, text in (
        (
            ["v"],
            "There is no initialiser 'v', whose data could be saved. The initialisers are: "
            "small, text, w.",
        ),
        (["text"], "'text' has texts, whose data is always in the model."),
    ):
        with pytest.raises(popart_exception, match=f"^{re.escape(text)}$"):
            move_data_outside(made, names, tmp_path / "weights")
    with pytest.raises(popart_exception, match=r"cannot be written: .* there is no folder"):
        move_data_outside(made, ["w"], tmp_path / "missing" / "weights")
    assert made == model()
    move_data_outside(made, ["w"], tmp_path / "weights")
    with pytest.raises(popart_exception, match=r"^The data of 'w' is in another file already\.$"):
        move_data_outside(made, ["w"], tmp_path / "others")
    with pytest.raises(popart_exception, match=r"has the data of 'w', which would be lost\. Save "):
        move_data_outside(made, ["small"], tmp_path / "weights")
    for path in ("weights", "./weights", "../" + tmp_path.name + "/weights"):
        with pytest.raises(popart_exception, match=r"has the data of 'w', which would be lost"):
            move_data_outside(made, ["small"], tmp_path / path)
        with pytest.raises(popart_exception, match=r"has the data of 'w', which would be lost"):
            save(made, tmp_path / path)


def test_data_that_lies_over_other_data(tmp_path):
    made, before = model(), model()
    for offset in (4, 3996):
        places = {
            "w": FileRange("f", tmp_path / "f", 0),
            "small": FileRange("f", tmp_path / "f", offset),
        }
        with pytest.raises(popart_exception, match=f"from byte {offset} of .*lies over that of an"):
            put_in_place(made, places)
    assert made == before
    assert not os.listdir(tmp_path)
    # Behind a gap there are zeros.
    put_in_place(made, {"small": FileRange("f", tmp_path / "f", 3)})
    assert (tmp_path / "f").read_bytes() == bytes(3) + before.graph.initializer[1].raw_data
