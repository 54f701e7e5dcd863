"""`ipu-keras profile` and `report` of ONNX models."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ipu_keras_tools.main import main


@pytest.fixture
def path(tmp_path):
    """A model of two inputs, the first of a batch of any size."""
    weight = numpy_helper.from_array(np.ones((8, 4), np.float32), "w")
    nodes = [
        helper.make_node("Gather", ["x", "places"], ["chosen"], axis=1),
        helper.make_node("MatMul", ["chosen", "w"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16]),
        helper.make_tensor_value_info("places", TensorProto.INT64, [8]),
    ]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])]
    graph = helper.make_graph(nodes, "net", inputs, results, [weight])
    file = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), file)
    return str(file)


def test_a_report_has_the_shapes_that_are_given(path, capsys):
    assert main(["profile", path, "32x16", "8", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["name"] == "net.run"
    assert report["batch_size"] == 32


def test_options_are_those_of_a_session(path, capsys):
    options = ["--target", "bow", "--dtype", "float16", "--num-replicas", "2"]
    assert main(["profile", path, "32x16", "8", *options, "--steps-per-execution", "4"]) == 0
    out = capsys.readouterr().out
    assert "net.run on bow" in out
    assert "on each of 2 replicas" in out


def test_a_page_of_it_is_written(path, tmp_path, capsys):
    assert main(["report", path, "32x16", "8", "--text", str(tmp_path / "report.txt")]) == 0
    assert "net.run on gc200" in (tmp_path / "report.txt").read_text()
    capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "the model leaves shapes open, so that SPECs are needed, one for each input: x ?x16:"),
        (["32x16"], "a SPEC for each of the 2 inputs is needed, or none: x ?x16:float32, places 8"),
        (["32x15", "8", "--mode", "train"], "--mode of an ONNX model can only be predict. Rec"),
        (["32x16", "8+8"], "an input of an ONNX model is one tensor. Received: 8+8"),
        (["32x16", "8", "--dtype", "float32"], "--dtype of an ONNX model can only be float16"),
        (["32x16", "8", "--target", "c600"], "--target must be one of gc2, gc200, bow. Received"),
        (["32x16", "8", "--num-ipus", "2"], "--num-ipus means nothing for an ONNX model: nodes"),
        (["32x16", "8", "--recomputation"], "--recomputation means nothing for an ONNX model"),
        (["32x16x2", "8"], "In MatMul 'y': "),
    ],
)
def test_what_cannot_be_profiled_says_why(path, arguments, text, capsys):
    assert main(["profile", path, *arguments]) == 2
    assert text in capsys.readouterr().err


def test_choices_are_compared(path, capsys):
    choices = ["--batch-size", "32,64", "--target", "gc200,bow"]
    assert main(["what-if", path, *choices, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [tuple(row["choices"].values()) for row in rows] == [
        *((32, "gc200"), (32, "bow")),
        *((64, "gc200"), (64, "bow")),
    ]
    # One step of 32 samples takes the time that `profile` says.
    assert main(["profile", path, "32x16", "8", "--json"]) == 0
    assert rows[0]["seconds_per_step"] == json.loads(capsys.readouterr().out)["seconds_per_step"]
    assert main(["what-if", path, "32x16", "8", "--batch-size", "32"]) == 2
    assert "--batch-size of an ONNX model stands for its SPECs" in capsys.readouterr().err


def test_other_commands_take_none(path, capsys):
    assert main(["suggest-pipeline", path, "32x16", "8", "--num-ipus", "2"]) == 2
    assert "takes no ONNX model: `profile`, `what-if` and `report` do" in capsys.readouterr().err
