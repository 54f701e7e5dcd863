"""What says how nodes run, written on nodes as PopART does."""

import onnx
import pytest

from ipu_keras.popart.core import CommGroup, TensorLocation, TensorStorage, _BuilderCore
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.files.loading import load
from ipu_keras.popart.options.enumerations import CommGroupType, RecomputeType


@pytest.fixture
def builder() -> _BuilderCore:
    made = _BuilderCore()
    made.addInputTensor("FLOAT", [4, 4], "x")
    return made


def annotations(builder: _BuilderCore) -> dict:
    """Those of the node that was added last."""
    return {
        each.name: onnx.helper.get_attribute_value(each)
        for each in builder.draft.nodes[-1].attribute
        if each.name.startswith("__")
    }


OFF_CHIP = TensorLocation(TensorStorage.OffChip)

# By method: the value, and what is written.
SCOPES = [
    ("virtualGraph", (2,), {"__ipu_number": 2}),
    ("pipelineStage", (3,), {"__pipeline_stage": 3}),
    ("executionPhase", (4,), {"__execution_phase": 4}),
    ("executionPhase", (), {"__execution_phase": 0}),
    ("recomputeOutput", (RecomputeType.Recompute,), {"__recompute": 2}),
    ("recomputeOutput", (), {"__recompute": 0}),
    ("outputTensorLocation", (OFF_CHIP,), {"__output_tensor_location": [1, 0, 0, 0]}),
    ("schedulePriority", (-1.5,), {"__schedule_priority": -1.5}),
    ("outlineAttributes", ({"a": "b"},), {"__outline_attributes": [b"a", b"b"]}),
    ("commGroup", (CommGroupType.Orthogonal, 2), {"__collectiveCommGroup": [2, 2]}),
    (
        "commGroup",
        (CommGroup(CommGroupType.Consecutive, 4),),
        {"__collectiveCommGroup": [1, 4]},
    ),
    ("commGroup", (), {"__collectiveCommGroup": [0, 0]}),
]


@pytest.mark.parametrize(("method", "arguments", "written"), SCOPES)
def test_nodes_that_are_added_within(builder, method, arguments, written):
    with getattr(builder, method)(*arguments):
        builder.aiOnnxOpset10.relu(["x"])
        assert annotations(builder) == written
    result = builder.aiOnnxOpset10.relu(["x"])
    assert annotations(builder) == {}
    builder.addOutputTensor(result)
    onnx.checker.check_model(builder.getModelProto())
    node = load(builder.getModelProto()).model.graph.nodes[0]
    assert set(node.annotations) == set(written)


@pytest.mark.parametrize(("method", "arguments", "written"), SCOPES[:7])
def test_a_node_by_its_outputs(builder, method, arguments, written):
    result = builder.aiOnnxOpset10.relu(["x"])
    for outputs in (result, {result}):
        assert getattr(builder, method)(outputs, *arguments) is None
        assert annotations(builder) == written
    several = builder.aiOnnxOpset10.split(["x"], 2)
    getattr(builder, method)(set(several), *arguments)
    assert annotations(builder) == written
    with pytest.raises(popart_exception, match="Could not find a node with output name"):
        getattr(builder, method)(several[0], *arguments)


def test_scopes_within_scopes(builder):
    assert not builder.hasVirtualGraph()
    with builder.virtualGraph(1), builder.pipelineStage(5):
        with builder.virtualGraph(2):
            builder.aiOnnxOpset10.relu(["x"])
            assert annotations(builder) == {"__ipu_number": 2, "__pipeline_stage": 5}
        assert builder.hasVirtualGraph()
        assert builder.getVirtualGraph() == 1
        assert (builder.hasPipelineStage(), builder.getPipelineStage()) == (True, 5)
    with builder.executionPhase(6):
        assert (builder.hasExecutionPhase(), builder.getExecutionPhase()) == (True, 6)
    assert not builder.hasPipelineStage()
    assert not builder.hasExecutionPhase()
    assert builder.getVirtualGraph("Relu:0") == 2


def test_a_scope_ends_with_an_error_within(builder):
    with pytest.raises(popart_exception, match="Unknown tensor"), builder.virtualGraph(1):
        builder.aiOnnxOpset10.relu(["nothing"])
    assert not builder.hasVirtualGraph()


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("getVirtualGraph", "Virtual graph not set in current scope"),
        ("getPipelineStage", "Pipeline stage not set in current scope"),
        ("getExecutionPhase", "Execution phase not set in current scope"),
    ],
)
def test_what_is_not_set(builder, method, text):
    with pytest.raises(popart_exception, match=text):
        getattr(builder, method)()


def test_settings_of_products(builder):
    product = builder.aiOnnxOpset10.matmul(["x", "x"])
    assert builder.getPartialsType(product) == "FLOAT"
    builder.setPartialsType(product, "HALF")
    builder.setPartialsType(product, "HALF")
    assert builder.getPartialsType(product) == "HALF"
    builder.setAvailableMemoryProportion(product, 0.5)
    builder.setSerializeMatMul({product}, "output_channels", 4, True)
    builder.excludePatterns(product, ["MatMulPattern", "Other"])
    builder.setInplacePreferences(product, {"MatMulInplace": 10})
    assert annotations(builder) == {
        "__partials_type": b"HALF",
        "__available_memory_proportion": 0.5,
        "__serialize_matmul_mode": b"output_channels",
        "__serialize_matmul_factor": 4,
        "__serialize_matmul_precision": 1,
        "__exclude_patterns": [b"MatMulPattern", b"Other"],
        "__inplace_op_names": [b"MatMulInplace"],
        "__inplace_op_priorities": [10.0],
    }
    builder.addOutputTensor(product)
    onnx.checker.check_model(builder.getModelProto())


def test_recomputation_of_a_node(builder):
    result = builder.aiOnnxOpset10.relu(["x"])
    assert not builder.getRecomputeOutputInBackwardPass(result)
    builder.recomputeOutputInBackwardPass(result)
    assert builder.getRecomputeOutputInBackwardPass(nodeOutputNames={result})
    builder.recomputeOutputInBackwardPass(nodeOutputNames={result}, value=RecomputeType.Checkpoint)
    assert not builder.getRecomputeOutputInBackwardPass(nodeOutputName=result)


@pytest.mark.parametrize(
    ("method", "arguments", "text"),
    [
        ("virtualGraph", (-1,), "Virtual graph is not negative. Received: -1"),
        ("pipelineStage", ("MatMul:0", -1), "Pipeline stage is not negative"),
        ("executionPhase", (0.5,), "`__execution_phase` is an integer. Received"),
        ("recomputeOutput", (2,), "The value is a RecomputeType. Received: 2"),
        ("outputTensorLocation", ("MatMul:0", 1), "The value is a TensorLocation"),
        ("schedulePriority", ("a",), "`__schedule_priority` is a number"),
        ("outlineAttributes", (3,), "takes a dict. Received: 3"),
        ("outlineAttributes", ({"a": 1},), "a list of strings"),
        ("commGroup", (3,), "`type` is a CommGroupType"),
        ("commGroup", (0, -1), "`groupSize` is not negative"),
        ("setPartialsType", ("MatMul:0", "DOUBLE"), "`partialsType` is FLOAT or HALF"),
        ("setAvailableMemoryProportion", ("MatMul:0", 0), r"must be in \(0,1\]"),
        ("setAvailableMemoryProportion", ("MatMul:0", 1.5), r"must be in \(0,1\]"),
        ("setSerializeMatMul", ("MatMul:0", "rows"), "serialization mode 'rows'. Supported"),
        ("setSerializeMatMul", ("MatMul:0", "none", -1), "`factor` is not negative"),
        ("setSerializeMatMul", ("Relu:0", "none"), "should only be called on MatMul"),
        ("excludePatterns", ("MatMul:0", "a"), "a list of strings"),
        ("setInplacePreferences", ("MatMul:0", []), "`prefs` is a dict"),
        ("setPartialsType", ("y", "HALF"), "Could not find a node with output name"),
    ],
)
def test_refused_values_change_nothing(builder, method, arguments, text):
    builder.aiOnnxOpset10.matmul(["x", "x"])
    builder.aiOnnxOpset10.relu(["x"])
    before = builder.getModelProto()
    with pytest.raises(popart_exception, match=text):
        getattr(builder, method)(*arguments)
    assert builder.getModelProto() == before
    assert not builder.draft.annotations
