"""Every method of every opset of ai.onnx adds the operation that it is named after."""

import inspect

import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnx_calls import CALLS, SPECIAL, called, opset_of

from ipu_keras.popart.builder import Builder
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.files.loading import load
from ipu_keras.popart.graphs.methods import onnx_methods
from ipu_keras.popart.graphs.opsets import AI_ONNX_OPSETS
from ipu_keras.popart.graphs.tensor_types import dtype_of, is_complete, shape_of
from ipu_keras.popart.model.graph import AI_ONNX
from ipu_keras.popart.operations.evaluation import outputs_of
from ipu_keras.popart.operations.table import OPERATIONS

VERSIONS = list(AI_ONNX_OPSETS)

# Whose results are as large as the values of their inputs say.
DEPEND_ON_VALUES = {
    *("compress", "nonmaxsuppression", "nonzero", "stringnormalizer", "unique"),
    "concatfromsequence",
}
# Of which ONNX says nothing in these versions; operations are traced where they exist.
TRACED = {
    *("upsample", "lstm", "gru", "rnn", "compress", "loop"),
}


def is_computed(kind: str, version: int) -> bool:
    return any(each.since <= version for each in OPERATIONS.get((AI_ONNX, kind), ()))


def draws(kind: str) -> bool:
    """Whether an operation takes random numbers, which sessions have a seed for."""
    return any(each.is_random for each in OPERATIONS.get((AI_ONNX, kind), ()))


def new_forms() -> list[tuple[str, int]]:
    """Methods with the first opset of each form of an operation that there is."""
    return [
        (name, version)
        for version in VERSIONS
        for name, method in onnx_methods(version).items()
        if (version == VERSIONS[0] or onnx_methods(version - 1).get(name) != method)
        and is_computed(method.kind, version)
        and not draws(method.kind)
    ]


def test_opsets_have_the_methods_of_onnx():
    assert [len(onnx_methods(version)) for version in VERSIONS] == [95, 102, 104, 123, 137, 156]
    assert {name for each in VERSIONS for name in onnx_methods(each)} == {*CALLS, *SPECIAL}
    assert not hasattr(AI_ONNX_OPSETS[8], "where")
    assert {"logical_and", "logical_if", "logical_not"} < set(dir(AI_ONNX_OPSETS[6]))


@pytest.mark.parametrize(
    ("version", "name", "parameters"),
    [
        (6, "add", "args axis broadcast debugContext"),
        (7, "add", "args debugContext"),
        (6, "conv", "args dilations group kernel_shape pads strides debugContext"),
        (6, "maxpool", "args kernel_shape pads strides debugContext"),
        (
            *(10, "maxpool"),
            "args num_outputs kernel_shape ceil_mode dilations pads storage_order strides "
            "debugContext",
        ),
        (6, "randomnormal", "shape dtype mean scale seed debugContext"),
        (9, "topk", "args k axis debugContext"),
        (11, "topk", "args axis largest sorted debugContext"),
        (10, "constant", "value debugContext"),
        (11, "constant", "value is_value_sparse debugContext"),
    ],
)
def test_signatures_are_popart_s(version, name, parameters):
    method = getattr(AI_ONNX_OPSETS[version], name)
    assert list(inspect.signature(method).parameters) == ["self", *parameters.split()]


def test_what_a_method_says_of_itself():
    method = AI_ONNX_OPSETS[10].conv
    assert method.__qualname__ == "AiOnnxOpset10.conv"
    lines = method.__doc__.splitlines()
    assert lines[0] == "Adds `Conv` of ai.onnx, as it is since version 1, to the model."
    assert "    args: List of ids of tensors: X, W, B (or '')." in lines
    assert "    group: Integer. Defaults to `1`." in lines
    assert "    The id of the result." in lines
    assert "    num_outputs: Number of results, 1..any number." in (
        AI_ONNX_OPSETS[10].split.__doc__.splitlines()
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_all_methods_make_a_model(version):
    builder = Builder()
    for name, method in onnx_methods(version).items():
        results = called(builder, name, version)
        assert results[0].startswith(f"{method.kind}:0")
        is_deprecated = onnx.defs.get_schema(method.kind, version).deprecated
        for id_ in results:
            type_ = builder.draft.types[id_]
            known = name in DEPEND_ON_VALUES or is_complete(type_)
            assert known or (name in TRACED and not is_computed(method.kind, version)), name
            # An output has a number of axes; ONNX's checker refuses deprecated operations.
            if shape_of(type_) is not None and not is_deprecated:
                builder.addOutputTensor(id_)
        if is_deprecated:
            # On their own they are all that a model has.
            del builder.draft.nodes[-1]
    model = onnx.ModelProto.FromString(builder.getModelProto())
    assert model.ir_version == (3 if version <= 8 else 4)
    assert {each.domain: each.version for each in model.opset_import} == {"": version}
    onnx.checker.check_model(model)


def values_for(builder: Builder) -> dict[str, tf.Tensor]:
    """Something to compute with for each input."""
    values = {}
    for id_ in builder.getInputTensorIds():
        type_ = builder.draft.types[id_]
        dtype = dtype_of(type_.tensor_type.elem_type)
        shape = builder.getTensorShape(id_)
        if dtype.hasobject:
            values[id_] = tf.constant(np.full(shape, "text"))
        else:
            values[id_] = tf.ones(shape, tf.as_dtype(dtype))
    return values


@pytest.mark.parametrize(("name", "version"), new_forms())
def test_what_is_computed_has_the_type_that_is_said(name, version):
    builder = Builder()
    results = called(builder, name, version)
    for id_ in results:
        builder.addOutputTensor(id_)
    model = load(builder.getModelProto()).model
    for id_, result in zip(results, outputs_of(model, values_for(builder)), strict=True):
        if name in DEPEND_ON_VALUES or isinstance(result, list):
            continue
        assert list(result.shape) == builder.getTensorShape(id_)
        if result.dtype not in (tf.string, object):
            assert tf.as_dtype(result.dtype).name == builder.getTensorDtypeString(id_)


@pytest.mark.parametrize(
    ("method", "arguments", "text"),
    [
        ("matmul", {"args": ["x"]}, "MatMul has invalid number of inputs 1. Must be between 2..2"),
        ("relu", {"args": []}, "Relu has invalid number of inputs 0. Must be between 1..1"),
        ("concat", {"args": [], "axis": 0}, "Concat .* inputs 0. Must be between 1..any number"),
        ("relu", {"args": [3]}, r"`args` of Relu is a list of ids of tensors. Received: args=\[3"),
        ("relu", {"args": ["nothing"]}, r"Unknown tensor 'nothing' \(valid tensors are x, w\)"),
        ("split", {"args": ["x"], "num_outputs": 0}, "Split has invalid number of outputs 0"),
        ("concat", {"args": ["x"], "axis": 1.5}, "The attribute `axis` is an integer. Received"),
        ("conv", {"args": ["x", "w"], "pads": 1}, "The attribute `pads` is a list of integers"),
        ("constant", {"value": [1.0]}, "The attribute `value` is a NumPy array"),
        ("cast", {"args": ["x"], "to": "FLAOT"}, "Unknown dtype 'FLAOT'"),
        ("relu", {"args": ["x"], "debugContext": 3}, "`debugContext` is a string or a DebugCon"),
        (
            *("matmul", {"args": ["x", "w"]}),
            r"In MatMul 'MatMul:0': Incompatible dimensions for matrix multiplication. Received: "
            r"x float32 \(1, 1, 3, 3\), w float32 \(1, 1, 5, 5\)",
        ),
        (
            *("conv", {"args": ["x", "w"]}),
            r"In Conv 'Conv:0': Its result would have negative sizes: \[1, 1, -1, -1\]",
        ),
    ],
)
def test_refused_calls_add_nothing(method, arguments, text):
    builder = Builder()
    builder.addInputTensor("FLOAT", [1, 1, 3, 3], "x")
    builder.addInputTensor("FLOAT", [1, 1, 5, 5], "w")
    before = builder.getModelProto()
    with pytest.raises(popart_exception, match=text):
        getattr(builder.aiOnnx, method)(**arguments)
    assert builder.getModelProto() == before
    assert builder.aiOnnx.relu(["x"]) == "Relu:0"


def test_arguments_that_no_method_has():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2])
    with pytest.raises(TypeError, match="missing a required argument: 'axis'"):
        builder.aiOnnx.concat([x])
    with pytest.raises(TypeError, match="unexpected keyword argument 'alpha'"):
        builder.aiOnnx.relu([x], alpha=1.0)
    opset = Builder().aiOnnxOpset11
    with pytest.raises(popart_exception, match="Sparse constants are not supported"):
        opset.constant(np.zeros(2), True)


@pytest.mark.parametrize(
    ("method", "arguments", "attributes"),
    [
        ("reducesum", {}, {"keepdims"}),
        ("reducesum", {"axes": []}, {"axes", "keepdims"}),
        ("reducesum", {"axes": [0]}, {"axes", "keepdims"}),
        ("squeeze", {"axes": []}, set()),
        ("leakyrelu", {}, {"alpha"}),
        ("randomnormallike", {}, {"mean", "scale"}),
    ],
)
def test_what_says_nothing_is_not_written(method, arguments, attributes):
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2, 1])
    result = getattr(builder.aiOnnx, method)([x], **arguments)
    assert set(builder.getAllNodeAttributeNames({result})) == attributes


def test_what_is_returned():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [4])
    opset = opset_of(builder, 10)
    assert opset.relu([x]) == "Relu:0"
    assert opset.relu(x) == "Relu:0/1"
    assert opset.dropout([x], 1) == ["Dropout:0"]
    assert opset.split([x], 2) == ["Split:0", "Split:1"]
    count = opset.constant(np.array([2], np.int64))
    assert opset.topk([x, count]) == ["TopK:0", "TopK:1"]
