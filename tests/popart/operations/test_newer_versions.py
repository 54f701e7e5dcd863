"""Operations as they are in the opsets behind PopART's last, held against ONNX's own schemas,
its tests, and its reference."""

import doctest
import importlib
import inspect

import numpy as np
import onnx
import onnx.defs
import pytest
import tensorflow as tf
from onnx import helper
from onnx.backend.test.case import node
from onnx.reference import ReferenceEvaluator

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.files.loading import load
from ipu_keras.popart.model.graph import AI_ONNX
from ipu_keras.popart.operations import newer_versions
from ipu_keras.popart.operations.evaluation import outputs_of
from ipu_keras.popart.operations.newer_versions import LAST_OF_POPART, UNCHANGED
from ipu_keras.popart.operations.table import OPERATIONS, defaults_of, operation_of

NEWEST = onnx.defs.onnx_opset_version()
# The newest that somebody has read.
READ = min(NEWEST, 28)
FORMS = onnx.defs.OpSchema.FormalParameterOption
KINDS = sorted(kind for domain, kind in OPERATIONS if domain == AI_ONNX)


def changes_of(kind):
    """Versions of an operation behind those of PopART."""
    schemas = (one for one in onnx.defs.get_all_schemas_with_history() if not one.domain)
    return {one.since_version for one in schemas if one.name == kind} - set(range(12))


def test_examples():
    assert doctest.testmod(newer_versions).failed == 0


@pytest.mark.parametrize("kind", KINDS)
def test_each_version_has_the_inputs_and_attributes_of_its_schema(kind):
    for version in sorted(changes_of(kind)):
        if version > READ:
            continue
        schema = onnx.defs.get_schema(kind, version)
        one = operation_of(AI_ONNX, kind, version)
        forms = {
            FORMS.Single: inspect.Parameter.empty,
            FORMS.Optional: None,
            FORMS.Variadic: inspect.Parameter.empty,
        }
        given = [each.default for each in one.inputs[: len(schema.inputs)]]
        assert given == [forms[each.option] for each in schema.inputs], version
        assert one.attributes.keys() == schema.attributes.keys(), version
        for name, parameter in one.attributes.items():
            is_given = schema.attributes[name].required or name in defaults_of(one, version)
            assert (parameter.default is inspect.Parameter.empty) == is_given, (version, name)


def test_the_table_names_versions_that_there_are_and_functions_have_not():
    for kind, versions in UNCHANGED.items():
        known = set(versions)
        assert {each for each in known if each <= NEWEST} <= changes_of(kind), kind
        assert known.isdisjoint(each.since for each in OPERATIONS[AI_ONNX, kind]), kind


def test_what_nobody_has_read_is_refused_with_the_opset_to_export_for(monkeypatch):
    known = dict(UNCHANGED) | {"Relu": (13,)}
    monkeypatch.setattr("ipu_keras.popart.operations.table.UNCHANGED", known)
    assert operation_of(AI_ONNX, "Relu", 13).since == 6
    text = (
        r"'Relu' of the domain 'ai\.onnx' became another operation in version 14, which is not "
        r"known\. Received: an opset of version 18\. Export the model for opset 13, such as with "
    )
    with pytest.raises(popart_exception, match=text):
        operation_of(AI_ONNX, "Relu", 18)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("OptionalHasElement", "Programs of IPUs have tensors and sequences only: export a model"),
        ("StringSplit", "Compute it before the session runs, and give the model its result as an"),
        ("DeformConv", r"Replace it .*, such as torch\.onnx\.export\(\.\.\., opset_version=11\)"),
    ],
)
def test_what_there_is_not_is_refused_with_what_to_do(kind, text):
    with pytest.raises(popart_exception, match=f"Unknown operation '{kind}' .*{text}"):
        operation_of(AI_ONNX, kind, NEWEST)


def test_classical_models_are_left_to_the_host():
    with pytest.raises(popart_exception, match="PopART has none of this domain: leave it to the"):
        operation_of("ai.onnx.ml", "LinearClassifier", 3)
    with pytest.raises(popart_exception, match=r"docs/popart\.md lists\.$"):
        operation_of("ai.graphcore", "LinearClassifier", 1)


def computed(model, feeds):
    with tf.device("CPU:0"):
        results = outputs_of(load(model.SerializeToString()).model, feeds)
    return [np.asarray(each) for each in results]


def model_of(kind, inputs, version, num_outputs=1, **attributes):
    names = [f"x{i}" if each is not None else "" for i, each in enumerate(inputs)]
    outputs = [f"y{i}" for i in range(num_outputs)]
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in zip(names, inputs, strict=True)
        if name
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    made = helper.make_node(kind, names, outputs, **attributes)
    graph = helper.make_graph([made], "graph", given, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)


def f32(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def i64(*values):
    return np.array(values, np.int64)


X = f32(2, 3, 4)
IMAGES = f32(2, 4, 5, 6)
CHANNELS = [f32(4), f32(4), f32(4), np.abs(f32(4))]

# Kind, inputs, attributes, versions; of what ONNX's own tests have in the newest version only.
AS_REFERENCE = [
    ("Squeeze", [f32(1, 3, 1), i64(-1)], {}, (13, 17, 21, 25)),
    ("Squeeze", [f32(1, 3, 1)], {}, (13,)),
    ("Unsqueeze", [X, i64(0, -1)], {}, (13, 18, 23)),
    ("ReduceSum", [X, i64(-1, 0)], {"keepdims": 0}, (13, 18, 22)),
    ("ReduceSum", [X], {"noop_with_empty_axes": 1}, (13,)),
    ("ReduceMean", [X], {"axes": [1]}, (13, 17)),
    ("ReduceMean", [X, i64(1)], {}, (18, 22)),
    ("ReduceMax", [X, i64(2)], {"keepdims": 0}, (18, 20)),
    ("ReduceL2", [X, i64(0)], {}, (18,)),
    ("ReduceSumSquare", [X], {"noop_with_empty_axes": 1}, (18,)),
    ("Softmax", [X], {}, (13, 17)),
    ("Softmax", [X], {"axis": 1}, (13,)),
    ("LogSoftmax", [X], {"axis": 0}, (13,)),
    ("Hardmax", [X], {"axis": 1}, (13,)),
    ("Clip", [X, np.float32(-0.5), np.float32(0.5)], {}, (12, 13, 18)),
    ("Pad", [X, i64(0, 1, 0, 0, 0, 2), np.float32(7)], {}, (13, 18, 21)),
    ("Pad", [X, i64(1, 2), None, i64(-1)], {"mode": "edge"}, (18, 19)),
    ("Pad", [X, i64(1, 0, 0, 0, 5, 0)], {"mode": "wrap"}, (19, 25)),
    ("BatchNormalization", [IMAGES, *CHANNELS], {}, (14, 15)),
    ("Resize", [IMAGES, None, f32(4) * 0 + np.float32([1, 1, 2, 1.5])], {}, (13, 18)),
    ("Resize", [IMAGES, None, None, i64(10, 9)], {"axes": [2, 3], "mode": "linear"}, (18, 19)),
    ("Pow", [X, i64(2)], {}, (12, 13, 15)),
    ("Pow", [i64(1, 2, 3), np.float32([2.5, 1.5, 0.5])], {}, (12,)),
    ("Where", [X > 0, X, -X], {}, (16,)),
    ("GatherND", [X, np.array([[1], [0]])], {"batch_dims": 1}, (12, 13)),
    ("ScatterND", [X, np.array([[1], [1]]), f32(2, 3, 4)], {"reduction": "add"}, (16,)),
    ("ScatterND", [X, np.array([[1], [1]]), f32(2, 3, 4)], {"reduction": "mul"}, (16, 18)),
    ("ScatterElements", [X, np.zeros((1, 3, 4), int), f32(1, 3, 4)], {"reduction": "max"}, (18,)),
    ("Shape", [X], {"start": 1}, (15, 19, 21)),
    ("Reshape", [f32(0, 3), i64(3, 0)], {"allowzero": 1}, (14, 19)),
    ("ArgMax", [np.float32([[1, 3, 3]])], {"axis": 1, "select_last_index": 1}, (12, 13)),
    ("Einsum", [X, f32(2, 4, 5)], {"equation": "b i j, bjk -> bik"}, (12,)),
    ("AffineGrid", [f32(2, 3, 4), i64(2, 1, 2, 3, 4)], {"align_corners": 1}, (20,)),
    ("AffineGrid", [f32(2, 2, 3), i64(2, 1, 2, 3)], {}, (20,)),
    ("CenterCropPad", [X, i64(4, 2)], {"axes": [1, -1]}, (18,)),
    ("Trilu", [X, np.array(1)], {"upper": 0}, (14,)),
    ("CastLike", [X, np.array(1, np.int32)], {}, (15, 19)),
    ("GreaterOrEqual", [X, -X], {}, (12, 16)),
    ("Celu", [X], {"alpha": 2.0}, (12,)),
    ("HardSwish", [X], {}, (14,)),
    ("Mish", [X], {}, (18, 22)),
    ("Gelu", [X], {"approximate": "tanh"}, (20,)),
    ("CumSum", [X, np.array(1)], {"exclusive": 1}, (14,)),
    ("GroupNormalization", [IMAGES, f32(4), f32(4)], {"num_groups": 2}, (21,)),
    ("MaxPool", [IMAGES], {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2]}, (12, 22)),
    ("AveragePool", [IMAGES], {"kernel_shape": [2, 2], "dilations": [2, 2]}, (19, 22)),
    ("BitwiseAnd", [i64(1, 6), i64(3, 3)], {}, (18,)),
    ("RMSNormalization", [X, f32(3, 4)], {"axis": 1}, (23,)),
    ("Swish", [X], {"alpha": 2.0}, (24,)),
    ("SoftmaxCrossEntropyLoss", [f32(5, 3), i64(0, 2, 1, 1, 2), f32(3)], {}, (12, 13)),
    (
        "NegativeLogLikelihoodLoss",
        [f32(2, 3, 4), np.array([[0, 2, 1, 1], [2, 2, 0, 1]])],
        {"ignore_index": 2, "reduction": "sum"},
        (12, 13, 22),
    ),
]


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "versions"),
    AS_REFERENCE,
    ids=[f"{one[0]}-{number}" for number, one in enumerate(AS_REFERENCE)],
)
def test_versions_are_as_in_the_reference(kind, inputs, attributes, versions):
    for version in versions:
        model = model_of(kind, inputs, version, **attributes)
        feeds = {f"x{i}": each for i, each in enumerate(inputs) if each is not None}
        (result,) = computed(model, feeds)
        (expected,) = ReferenceEvaluator(model).run(None, feeds)
        assert result.dtype == expected.dtype, version
        assert result.shape == expected.shape, version
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6, err_msg=str(version))


# Those whose attributes mean much; `benchmarks/onnx_nodes.py` runs the tests of all.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "kind",
    [
        *("AveragePool", "BitShift", "Col2Im", "CumProd", "DequantizeLinear", "GatherND"),
        *(
            "GridSample",
            "LSTM",
            "LpPool",
            "MaxPool",
            "Mod",
            "Pad",
            "QuantizeLinear",
            "Resize",
            "RoiAlign",
        ),
        *("ScatterElements", "ScatterND", "SpaceToDepth", "Split"),
        *("TensorScatter", "Trilu"),
    ],
)
def test_onnx_tests_pass(kind):
    # Importing the module of an operation makes its cases.
    importlib.import_module(f"{node.__name__}.{kind.lower()}")
    cases = [
        one
        for one in node._NodeTestCases
        if [each.op_type for each in one.model.graph.node] == [kind]
        and all(isinstance(each, np.ndarray) for data in one.data_sets[0] for each in data)
    ]
    assert cases
    for case in cases:
        inputs, outputs = case.data_sets[0]
        names = [one.name for one in case.model.graph.input]
        results = computed(case.model, dict(zip(names, inputs, strict=True)))
        for result, expected in zip(results, outputs, strict=True):
            assert (result.dtype, result.shape) == (expected.dtype, expected.shape), case.name
            np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-6, err_msg=case.name)


def test_no_version_of_popart_is_another_operation_here():
    assert max(one.since for kind in KINDS for one in OPERATIONS[AI_ONNX, kind]) > LAST_OF_POPART
    for kind in ("ReduceSum", "Softmax", "Squeeze", "BatchNormalization", "Clip", "Pad"):
        assert operation_of(AI_ONNX, kind, 11).since <= LAST_OF_POPART
