"""Files that are no models, each with what the error says, and what is read of those that are."""

import gc
import os
import re
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx_models import WEIGHTS, model_of, models

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.files.loading import load
from ipu_keras.popart.operations.evaluation import outputs_of

FLOAT = TensorProto.FLOAT


def relu(*, name="relu", inputs=("x",), outputs=("y",), **attributes):
    return helper.make_node("Relu", list(inputs), list(outputs), name, **attributes)


def model(nodes=None, inputs=None, outputs=("y",), initialisers=(), **options):
    inputs = {"x": [2, 3]} if inputs is None else inputs
    return model_of([relu()] if nodes is None else nodes, inputs, outputs, initialisers, **options)


def add_of(tensor):
    """A model with an initialiser `w`."""
    made = model([helper.make_node("Add", ["x", "w"], ["y"], "add")])
    tensor.name = "w"
    made.graph.initializer.append(tensor)
    return made


def tensor(**fields):
    return TensorProto(data_type=FLOAT, **fields)


def edited(edit, made=None):
    made = model() if made is None else made
    edit(made)
    return made


def field(number, content):
    """A field of a message, of bytes."""

    def varint(value):
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)

    return varint(number << 3 | 2) + varint(len(content)) + content


def nested(depth):
    """A model whose graphs are within each other; no library makes one that protobuf refuses."""
    graph = b""
    for _ in range(depth):
        attribute = field(1, b"then_branch") + field(6, graph) + b"\xa0\x01\x05"
        graph = field(1, field(4, b"If") + field(5, attribute))
    return b"\x08\x07" + field(7, graph)


def branch(nodes, outputs=("z",)):
    values = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
    return helper.make_graph(nodes, "branch", [], values)


def if_of(graph):
    nodes = [
        helper.make_node("If", ["c"], ["y"], "choice", then_branch=graph, else_branch=graph),
    ]
    return model(nodes, initialisers={"c": np.array(True)})


def attribute_of(**fields):
    made = model()
    made.graph.node[0].attribute.append(AttributeProto(name="alpha", **fields))
    return made


def unsorted_nodes():
    return model([relu(name="b", inputs=["h"]), relu(name="a", outputs=["h"])])


def cycle():
    return model(
        [
            helper.make_node("Add", ["x", "b"], ["a"], "first"),
            relu(name="second", inputs=["a"], outputs=["b"]),
            relu(name="third", inputs=["b"]),
        ]
    )


def with_opset(*opsets):
    def edit(made):
        del made.opset_import[:]
        made.opset_import.extend(helper.make_opsetid(*each) for each in opsets)

    return edited(edit)


# Of ai.onnx, which the installed ONNX describes.
NEWEST = onnx.defs.onnx_opset_version()

HALF = model(initialisers={"w": np.ones(1000, np.float32)}).SerializeToString()

BAD_FILES = {
    "an empty file": (b"", "It is empty."),
    "a truncated file": (
        HALF[:1000],
        "It is truncated: its last part is longer than what is left of it.",
    ),
    "a file truncated between two parts": (
        model().SerializeToString()[:2],
        "It has no graph, so it is no ONNX model or only a part of one.",
    ),
    "a text": (
        b'{"irVersion": "7",\n "graph": {}}',
        'It is a text, and no ONNX model. It begins with \'{"irVersion": "7",\\n "graph": {}}\'.',
    ),
    "a pointer of git": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n",
        "It begins with 'version https://git-lfs.github.com/spec/'. Get the file itself with "
        "`git lfs pull`.",
    ),
    "another binary file": (
        b"\x89HDF\r\n\x1a\n" + bytes(100),
        "It is no ONNX model, or is damaged: its bytes are no message of protobuf.",
    ),
    "graphs nested too deep": (
        nested(500),
        "Its graphs are nested too deep: protobuf reads 100 messages within another.",
    ),
    "no graph": (
        edited(lambda m: m.ClearField("graph")),
        "It has no graph, so it is no ONNX model or only a part of one.",
    ),
    "no version of the form": (
        edited(lambda m: m.ClearField("ir_version")),
        "It has no `ir_version`, so it is no ONNX model or only a part.",
    ),
    "a version of the form to come": (
        edited(lambda m: setattr(m, "ir_version", 99)),
        f"Its `ir_version` is not supported. Expected: 3 to {onnx.IR_VERSION}. Received: 99",
    ),
    "no opset": (
        with_opset(),
        "It imports no opset, so nobody knows what its operations mean",
    ),
    "an old opset": (
        with_opset(("", 3)),
        f"It needs opset 3 of ai.onnx, and what is known here is 6 to {NEWEST}. Export the model "
        "again, such as with torch.onnx.export(..., opset_version=11); "
        "onnx.version_converter.convert_version(model, 11) converts some that are so old.",
    ),
    "a new opset": (
        with_opset(("", 99)),
        f"It needs opset 99 of ai.onnx, and what is known here is 6 to {NEWEST}. The installed "
        f"onnx {onnx.__version__} describes no newer one: upgrade it, or export the model for "
        f"opset {NEWEST} or an older one.",
    ),
    "a new opset of another domain": (
        with_opset(("", 11), ("ai.graphcore", 2)),
        "It needs opset 2 of ai.graphcore, and what is known here is 1.",
    ),
    "two opsets of a domain": (
        with_opset(("", 11), ("ai.onnx", 10)),
        "It imports two opsets of the domain 'ai.onnx'.",
    ),
    "functions": (
        edited(lambda m: m.functions.add(name="f")),
        "It has functions of its own (`functions`), and what runs here has all operations in its "
        "graph. onnx.inliner.inline_local_functions(model) puts them into it.",
    ),
    "graphs for training": (
        edited(lambda m: m.training_info.add()),
        "It has graphs for training of its own (`training_info`)",
    ),
    "a cycle": (
        cycle(),
        "In Add 'first': It takes 'b', and the nodes form a cycle: ",
    ),
    "a node that takes what it makes": (
        model([relu(inputs=["y"])]),
        "In Relu 'relu': It takes 'y', and the nodes form a cycle: y -> y.",
    ),
    "nodes that are not sorted": (
        unsorted_nodes(),
        "In Relu 'b': It takes 'h', which Relu 'a' makes only after it: the nodes are not sorted. "
        "Expected: each node after those whose results it takes.",
    ),
    "a missing input": (
        model([relu(inputs=["w"])]),
        "In Relu 'relu': It takes 'w', which is no input, no initialiser, and no result of a node: "
        "nobody makes it.",
    ),
    "an input that is left out and needed": (
        model([helper.make_node("Add", ["x", ""], ["y"], "add")]),
        "In Add 'add': Its input 1 is left out, which it needs.",
    ),
    "a doubled result": (
        model([relu(), relu(name="again")]),
        "In Relu 'again': It makes 'y', which exists already.",
    ),
    "a result that is an initialiser": (
        model(initialisers={"y": np.ones(2, np.float32)}),
        "In Relu 'relu': It makes 'y', which exists already.",
    ),
    "a doubled output": (model(outputs=["y", "y"]), "'y' is twice among the outputs."),
    "a doubled input": (
        edited(lambda m: m.graph.input.append(m.graph.input[0])),
        "'x' is twice among the inputs.",
    ),
    "a doubled initialiser": (
        edited(lambda m: m.graph.initializer.extend([tensor(name="w"), tensor(name="w")])),
        "There are two initialisers 'w'.",
    ),
    "an initialiser of no name": (
        edited(lambda m: m.graph.initializer.add()),
        "An initialiser has no name.",
    ),
    "an input of no name": (
        edited(lambda m: m.graph.input.add()),
        "One of the inputs has no name.",
    ),
    "an output that nobody makes": (
        model(outputs=["y", "z"]),
        "The output 'z' is no input, no initialiser, and no result of a node: nobody makes it.",
    ),
    "an unknown operation": (
        model([helper.make_node("Rule", ["x"], ["y"], "rule")]),
        "In Rule 'rule': Unknown operation 'Rule' of the domain 'ai.onnx'.",
    ),
    "an operation of a newer opset": (
        model([helper.make_node("Celu", ["x"], ["y"], "celu")]),
        "In Celu 'celu': No operation 'Celu' of the domain 'ai.onnx' in version 11: it exists "
        "since version 12.",
    ),
    "an unknown domain": (
        model([helper.make_node("Relu", ["x"], ["y"], "relu", domain="com.example")]),
        "In Relu 'relu': Unknown domain 'com.example'. The domains are: ai.onnx, ai.onnx.ml, "
        "ai.graphcore.",
    ),
    "a domain that is not imported": (
        model([helper.make_node("Gelu", ["x"], ["y"], "gelu", domain="ai.graphcore")]),
        "In Gelu 'gelu': Its domain is 'ai.graphcore', of which the model imports no opset.",
    ),
    "too many inputs": (
        model([relu(inputs=["x", "x"])]),
        "In Relu 'relu': It has invalid number of inputs 2. Must be between 1..1.",
    ),
    "too many outputs": (
        model([relu(outputs=["y", "z"])]),
        "In Relu 'relu': It has invalid number of outputs 2. Must be between 1..1.",
    ),
    "a name that is no text": (
        model().SerializeToString().replace(b"relu", b"\xff\xfelu"),
        "The name of a node is no text in UTF-8. Received: b'\\xff\\xfelu'",
    ),
    "less raw data": (
        add_of(tensor(dims=[3], raw_data=bytes(11))),
        "The initialiser 'w' has less data than its dimensions say. Received: 11 bytes, for "
        "dimensions=[3] of type FLOAT, which need 12",
    ),
    "more raw data": (
        add_of(tensor(dims=[3], raw_data=bytes(13))),
        "The initialiser 'w' has more data than its dimensions say. Received: 13 bytes",
    ),
    "fewer elements": (
        add_of(tensor(dims=[3], float_data=[1.0])),
        "The initialiser 'w' has less data than its dimensions say. Received: 1 elements in "
        "`float_data`, for dimensions=[3]",
    ),
    "no data": (
        add_of(tensor(dims=[2**20, 2**20])),
        "The initialiser 'w' has less data than its dimensions say. Received: 0 elements in "
        "`float_data`, for dimensions=[1048576, 1048576]",
    ),
    "data of another type": (
        add_of(tensor(dims=[1], int64_data=[1])),
        "The initialiser 'w' has data in `int64_data`. Expected: data in either `raw_data` or "
        "`float_data`, as it is of type FLOAT.",
    ),
    "data in two places": (
        add_of(tensor(dims=[1], float_data=[1.0], raw_data=bytes(4))),
        "The initialiser 'w' has data in `float_data` and `raw_data`.",
    ),
    "a negative dimension": (
        add_of(tensor(dims=[-1, -3], raw_data=bytes(12))),
        "The initialiser 'w' has a negative dimension. Received: dimensions=[-1, -3]",
    ),
    "a huge dimension": (
        add_of(tensor(dims=[2**40], raw_data=bytes(4))),
        "The initialiser 'w' is too large: at most 64 axes, 2**31 - 1 elements along each, and "
        "2**40 elements in all. Received: dimensions=[1099511627776]",
    ),
    "a huge dimension of no elements": (
        add_of(tensor(dims=[0, 2**62])),
        "The initialiser 'w' is too large",
    ),
    "many axes": (
        add_of(tensor(dims=[1] * 65, raw_data=bytes(4))),
        "The initialiser 'w' is too large: at most 64 axes",
    ),
    "a negative dimension of an input": (
        model(inputs={"x": [-2, 3]}),
        "The input 'x' has a negative dimension. Received: dimensions=[-2, 3]",
    ),
    "a huge input": (
        model(inputs={"x": [2**21, "n", 2**21]}),
        "The input 'x' is too large: at most 64 axes, 2**31 - 1 elements along each, and 2**40 "
        "elements in all. Received: dimensions=[2097152, ?, 2097152]",
    ),
    "an unknown data type": (
        add_of(TensorProto(data_type=77, dims=[1], raw_data=bytes(4))),
        "The initialiser 'w' has an unknown data type: Unknown data type 77. The data types are: "
        "1 (FLOAT), 2 (UINT8),",
    ),
    "a data type of a newer opset": (
        add_of(TensorProto(data_type=TensorProto.FLOAT8E5M2, dims=[4], raw_data=bytes(4))),
        "The initialiser 'w' has an unknown data type: Unknown data type 19.",
    ),
    "an unknown data type of an input": (
        edited(lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", -5)),
        "The input 'x' has an unknown data type: Unknown data type -5.",
    ),
    "a sparse input": (
        edited(lambda m: m.graph.input[0].type.sparse_tensor_type.SetInParent()),
        "The input 'x' is a sparse tensor. Expected: a dense one.",
    ),
    "sparse initialisers": (
        edited(lambda m: m.graph.sparse_initializer.add()),
        "It has sparse initialisers. Expected: dense ones only.",
    ),
    "a segment": (
        add_of(tensor(dims=[1], raw_data=bytes(4), segment=TensorProto.Segment(begin=0, end=1))),
        "The initialiser 'w' is a segment of a tensor. Expected: a whole one.",
    ),
    "texts that are none": (
        add_of(TensorProto(data_type=TensorProto.STRING, dims=[1], string_data=[b"\xff"])),
        "The initialiser 'w' has bytes that are no text in UTF-8. Received: b'\\xff'",
    ),
    "an attribute that is no text": (
        model([relu(__note=b"\xff\xfe")]),
        "In Relu 'relu': The attribute '__note' has bytes that are no text in UTF-8.",
    ),
    "an attribute of no type": (
        attribute_of(f=1.0),
        "In Relu 'relu': Its attribute 'alpha' has no known type. Expected one of: FLOAT, INT,",
    ),
    "an attribute of no value": (
        attribute_of(type=AttributeProto.FLOAT),
        "Its attribute 'alpha' is of type FLOAT, so its value is in `f`. Received: no value",
    ),
    "an attribute with two values": (
        attribute_of(type=AttributeProto.FLOAT, f=1.0, ints=[1]),
        "Its attribute 'alpha' is of type FLOAT, so its value is in `f`. Received: `f`, `ints`",
    ),
    "an attribute with the value of another type": (
        attribute_of(type=AttributeProto.GRAPH, ints=[1]),
        "Its attribute 'alpha' is of type GRAPH, so its value is in `g`. Received: `ints`",
    ),
    "sparse attributes": (
        attribute_of(type=AttributeProto.SPARSE_TENSORS),
        "Its attribute 'alpha' is sparse tensors, which PopART does not know.",
    ),
    "a type as an attribute": (
        attribute_of(type=AttributeProto.TYPE_PROTO),
        "Its attribute 'alpha' is a type, which PopART does not know.",
    ),
    "an attribute of a function": (
        attribute_of(type=AttributeProto.FLOAT, f=1.0, ref_attr_name="beta"),
        "Its attribute 'alpha' is that of a function around it, which PopART does not know.",
    ),
    "a doubled attribute": (
        edited(
            lambda m: m.graph.node[0].attribute.append(m.graph.node[0].attribute[0]),
            model([relu(__a=1)]),
        ),
        "In Relu 'relu': It has two attributes '__a'.",
    ),
    "an attribute of another type than the operation's": (
        model([helper.make_node("Concat", ["x"], ["y"], "concat", axis=1.0)]),
        "In Concat 'concat': Its attribute 'axis' has the wrong type. Expected: INT. Received: "
        "FLOAT",
    ),
    "a short tensor as an attribute": (
        model([helper.make_node("Constant", [], ["y"], "c", value=tensor(dims=[2]))]),
        "In Constant 'c': The attribute 'value' has less data than its dimensions say.",
    ),
    "a branch that takes what nobody makes": (
        if_of(branch([relu(name="inner", inputs=["nothing"], outputs=["z"])])),
        "In If 'choice': In its graph 'else_branch': In Relu 'inner': It takes 'nothing', which is "
        "no input",
    ),
    "a branch that makes what is around it": (
        if_of(branch([relu(name="inner", outputs=["c"])], ["c"])),
        "In If 'choice': In its graph 'else_branch': In Relu 'inner': It makes 'c', which exists",
    ),
    "a branch without its result": (
        if_of(branch([relu(name="inner", outputs=["z"])], ["other"])),
        "In If 'choice': In its graph 'else_branch': The output 'other' is no input",
    ),
    "a branch that takes what comes later": (
        edited(
            lambda m: m.graph.node.append(relu(name="late", outputs=["later"])),
            if_of(branch([relu(name="inner", inputs=["later"], outputs=["z"])])),
        ),
        "In Relu 'inner': It takes 'later', which Relu 'late' makes only after it: the nodes are "
        "not sorted.",
    ),
    "a branch of which the choice depends on the result": (
        model(
            [
                relu(name="a", inputs=["y"], outputs=["h"]),
                *if_of(branch([relu(name="inner", inputs=["h"], outputs=["z"])])).graph.node,
            ]
        ),
        "In Relu 'a': It takes 'y', and the nodes form a cycle: ",
    ),
}


@pytest.mark.parametrize(("bad", "text"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file(tmp_path, bad, text):
    content = bad if isinstance(bad, bytes) else bad.SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    for source, called in (
        (path, f"The ONNX file {str(path)!r}"),
        (content, f"The serialised ONNX model of {len(content)} bytes"),
    ):
        with pytest.raises(popart_exception) as raised:
            load(source)
        assert str(raised.value).startswith(f"{called} cannot be loaded: ")
        assert text in str(raised.value)


def test_what_is_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for source, text in {
        "missing.onnx": f"There is no such file. Relative paths begin in {str(tmp_path)!r}.",
        "folder": "It is a folder. Expected: a file.",
        "": "It is a folder. Expected: a file.",
        "pipe": "'pipe' is no regular file.",
        "null\0": "embedded null byte.",
        "n" * 300: "File name too long.",
    }.items():
        expected = f"^The ONNX file .* cannot be loaded: {re.escape(text)}$"
        for path in (source, Path(source)):
            with pytest.raises(popart_exception, match=expected):
                load(path)


def test_what_is_no_source():
    for source in (None, 3, bytearray(b"x"), model()):
        with pytest.raises(popart_exception, match=r"A model is given as the path of a file, or "):
            load(source)


def test_a_file_may_be_given_as_text_path_and_bytes(tmp_path):
    path = tmp_path / "é.onnx"
    path.write_bytes(model().SerializeToString())
    for source in (str(path), path, os.fsencode(path).decode(), path.read_bytes()):
        loaded = load(source)
        assert loaded.proto == model()
        assert loaded.model.opsets == {"ai.onnx": 11}


def test_models_that_are_right_are_computed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = models(tmp_path)
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    first, external = load(made[0]), load(made[-1])
    w1, b1, w2 = (first.model.graph.initialisers[name] for name in ("w1", "b1", "w2"))
    expected = np.maximum(x @ w1 + b1, 0) @ w2
    for each in (first, external):
        (result,) = outputs_of(each.model, {"x": x})
        np.testing.assert_allclose(result, expected, rtol=1e-6)
    # The data of another file is in the message, too.
    assert external.proto.graph.initializer == first.proto.graph.initializer
    for content in made[1:5]:
        load(content)


def test_a_subgraph_may_take_what_is_around_it_and_give_it_back():
    inner = branch([relu(name="inner", outputs=["z"])], ["z"])
    assert load(if_of(inner).SerializeToString()).model.graph.nodes[0].attributes.keys() == {
        "then_branch",
        "else_branch",
    }
    load(if_of(branch([], ["x"])).SerializeToString())


def test_initialisers_may_be_inputs_and_domains_unused():
    made = add_of(numpy_helper.from_array(np.ones(3, np.float32)))
    made.graph.input.append(helper.make_tensor_value_info("w", FLOAT, [3]))
    made.opset_import.append(helper.make_opsetid("com.example", 1))
    loaded = load(made.SerializeToString()).model
    assert [each.name for each in loaded.graph.inputs] == ["x"]
    assert list(loaded.graph.initialisers) == ["w"]


@pytest.mark.parametrize("opset", [*range(6, 12), 12, 18, NEWEST])
def test_each_opset_that_is_known(opset):
    assert load(model(opset=opset).SerializeToString()).model.opsets == {"ai.onnx": opset}


def test_nested_graphs_as_deep_as_protobuf_reads_them():
    graph = branch([relu(outputs=["z"])])
    for depth in range(30):
        names = {"then_branch": graph, "else_branch": branch([], ["x"])}
        node = helper.make_node("If", ["c"], [f"r{depth}"], **names)
        graph = branch([node], [f"r{depth}"])
    made = model([relu(), *graph.node], initialisers={"c": np.array(True)})
    assert len(load(made.SerializeToString()).model.graph.nodes) == 2


def test_a_claim_of_many_elements_takes_no_memory():
    content = add_of(tensor(dims=[2**15, 2**25])).SerializeToString()
    gc.collect()
    tracemalloc.start()
    with pytest.raises(popart_exception, match="less data than its dimensions say"):
        load(content)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**20


def test_long_names_do_not_make_long_errors():
    with pytest.raises(popart_exception) as raised:
        load(model([relu(inputs=["a" * 10**6])]).SerializeToString())
    assert len(str(raised.value)) < 2500


def test_time_grows_with_the_number_of_nodes_only():
    # Also if the last of them is wrong: what is wrong is looked for once.
    nodes = [relu(name="", inputs=[f"{i}"], outputs=[f"{i + 1}"]) for i in range(20_000)]
    for last in ("20000", "missing"):
        made = model([*nodes, relu(inputs=[last])], inputs={"0": [2]})
        counted = _calls(made.SerializeToString())
        assert counted < 60 * len(nodes)


def _calls(content):
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        load(content)
    except popart_exception:
        pass
    finally:
        sys.setprofile(before)
    return count


def test_external_data_is_read_from_the_folder_of_the_file(tmp_path):
    content = models(tmp_path)[-1]
    (tmp_path / "model.onnx").write_bytes(content)
    assert "w1" in load(tmp_path / "model.onnx").model.graph.initialisers
    (tmp_path / WEIGHTS).unlink()
    with pytest.raises(popart_exception) as raised:
        load(tmp_path / "model.onnx")
    assert str(raised.value) == (
        f"The ONNX file {str(tmp_path / 'model.onnx')!r} cannot be loaded: The file "
        f"{str(tmp_path / WEIGHTS)!r}, which has the external data of 'w1', cannot be read: No "
        "such file or directory. It has to be where the model's author had it, beside the model."
    )
