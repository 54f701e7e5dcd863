"""What a model may read besides itself."""

import os
import re

import pytest
from onnx import TensorProto

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.external_data import ExternalData, note_written

CONTENT = bytes(range(100))


@pytest.fixture
def folder(tmp_path):
    """With a file, links, a pipe, and a file beside it that is nobody's business."""
    folder = tmp_path / "model"
    (folder / "inner").mkdir(parents=True)
    (folder / "weights").write_bytes(CONTENT)
    (folder / "inner" / "weights").write_bytes(CONTENT)
    (tmp_path / "secret").write_bytes(CONTENT)
    (tmp_path / "model-secret").write_bytes(CONTENT)
    (folder / "link").symlink_to("../secret")
    (folder / "up").symlink_to("..")
    (folder / "round").symlink_to("round")
    (folder / "same").symlink_to("inner/weights")
    os.mkfifo(folder / "pipe")
    return folder


def tensor(**entries):
    made = TensorProto(name="w")
    for key, value in entries.items():
        made.external_data.add(key=key, value=str(value))
    return made


@pytest.mark.parametrize(
    ("entries", "begin", "end"),
    [
        ({}, 0, 100),
        ({"offset": 10}, 10, 100),
        ({"offset": 10, "length": 20}, 10, 30),
        ({"length": 0}, 0, 0),
        ({"offset": 100}, 100, 100),
        # An old form of the sum of a file, which nobody reads.
        ({"checksum": "da39a3ee"}, 0, 100),
    ],
)
@pytest.mark.parametrize("location", ["weights", "inner/weights", "./inner/../weights", "same"])
def test_what_is_read(folder, location, entries, begin, end):
    found = ExternalData(folder).bytes_of(tensor(location=location, **entries), end - begin)
    assert found == CONTENT[begin:end]


@pytest.mark.parametrize(
    "location",
    [
        "../secret",
        "inner/../../secret",
        "../model-secret",
        "link",
        "up/secret",
        "..",
        "/etc/passwd",
        "/dev/zero",
        "/proc/self/environ",
    ],
)
def test_what_is_outside(folder, location):
    expected = (
        "The file with the external data of 'w' is outside of the model's folder, where nothing "
        "is read, as models come from anywhere. Move it into the folder, and name it by a path "
        f"from there. Received: location={location!r}"
    )
    with pytest.raises(popart_exception, match=f"^{re.escape(expected)}$"):
        ExternalData(folder).bytes_of(tensor(location=location), 100)


@pytest.mark.parametrize(
    ("location", "text"),
    [
        ("missing", "cannot be read: No such file or directory. It has to be where the model's"),
        (".", "cannot be read: Is a directory."),
        ("weights/x", "cannot be read: Not a directory."),
        ("round", "cannot be read: Too many levels of symbolic links."),
        ("n" * 300, "cannot be read: File name too long."),
        ("pipe", "pipe', which has the external data of 'w', is no file."),
        ("", "For the external data of 'w' no file is named. Expected: `location`, a path from"),
        ("weights\0", "no file is named."),
    ],
)
def test_what_cannot_be_read(folder, location, text):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(popart_exception, match=re.escape(text)):
        ExternalData(folder).bytes_of(tensor(location=location), 100)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"offset": 1}, "There are 99 bytes for the external data of 'w' in "),
        ({"length": 99}, "There are 99 bytes for"),
        ({"length": 101}, "There are 101 bytes for"),
        ({"offset": 1, "length": 100}, "from byte 1 of 100; its dimensions need 100."),
        ({"offset": 2**62, "length": 100}, f"from byte {2**62} of 100"),
        ({"offset": 200}, "There are 0 bytes for"),
        ({"offset": "-1"}, "The `offset` of the external data of 'w' is no number of bytes. Rec"),
        ({"length": "1e2"}, "The `length` of the external data of 'w' is no number of bytes."),
        (
            {"length": "\u0661\u0660\u0660"},
            "The `length` of the external data of 'w' is no number of bytes.",
        ),
        ({"length": "9" * 5000}, "The `length` of the external data of 'w' is no number of"),
        ({"offset": ""}, "The `offset` of the external data of 'w' is no number of bytes."),
    ],
)
def test_what_is_not_in_the_file(folder, entries, text):
    with pytest.raises(popart_exception, match=re.escape(text)):
        ExternalData(folder).bytes_of(tensor(location="weights", **entries), 100)


def test_what_this_process_wrote(folder, tmp_path):
    location = str(tmp_path / "secret")
    with pytest.raises(popart_exception, match="is outside of the model's folder"):
        ExternalData(folder).bytes_of(tensor(location=location), 100)
    note_written(tmp_path / "secret")
    assert ExternalData(folder).bytes_of(tensor(location=location), 100) == CONTENT
    # By any name.
    assert ExternalData(folder).bytes_of(tensor(location="link"), 100) == CONTENT
