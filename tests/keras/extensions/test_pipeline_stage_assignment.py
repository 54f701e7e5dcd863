import re

import keras
import pytest

from ipu_keras.keras.extensions import (
    FunctionalLayerPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    SequentialLayerPipelineStageAssignment,
)


@pytest.fixture
def layer():
    return keras.layers.Dense(2, name="layer")


def test_an_assignment_in_a_sequential_model(layer):
    assignment = SequentialLayerPipelineStageAssignment(layer)
    assert assignment.layer is layer
    assert assignment.pipeline_stage is None
    assert SequentialLayerPipelineStageAssignment(layer, pipeline_stage=2).pipeline_stage == 2
    assert repr(assignment) == "SequentialLayerPipelineStageAssignment(layer, stage None)"


@pytest.mark.parametrize(
    "kind", [FunctionalLayerPipelineStageAssignment, ModelLayerPipelineStageAssignment]
)
def test_an_assignment_of_a_call(layer, kind):
    assignment = kind(layer, 3, pipeline_stage=1)
    assert assignment.layer is layer
    assert (assignment.node_index, assignment.pipeline_stage) == (3, 1)
    assert repr(assignment) == f"{kind.__name__}(layer, call 3, stage 1)"
    assert kind(layer, node_index=0).pipeline_stage is None


def test_a_stage_that_is_set(layer):
    assignment = SequentialLayerPipelineStageAssignment(layer)
    assignment.pipeline_stage = 4
    with pytest.raises(ValueError, match=r"^-1 is not a valid pipeline stage\.\nStages are"):
        assignment.pipeline_stage = -1
    assert assignment.pipeline_stage == 4
    assignment.pipeline_stage = None
    assert assignment.pipeline_stage is None
    with pytest.raises(ValueError, match=r"^1.5 is not a valid pipeline stage\.\nStages are"):
        SequentialLayerPipelineStageAssignment(layer, 1.5)


def test_what_cannot_be_set(layer):
    assignment = FunctionalLayerPipelineStageAssignment(layer, 0)
    for name in ("layer", "node_index", "inbound_layers"):
        with pytest.raises(AttributeError):
            setattr(assignment, name, None)


def test_layers_before_a_call_in_a_functional_model(layer):
    first, second = keras.Input([2]), keras.Input([2])
    add, other = keras.layers.Add(), keras.layers.Dense(2)
    # Through an operation, which is no layer.
    layer(add([other(first), keras.ops.relu(second) + other(first)]))
    layer(second)
    before = [FunctionalLayerPipelineStageAssignment(layer, k).inbound_layers for k in (0, 1)]
    assert before == [[add], [second._keras_history[0]]]
    assert FunctionalLayerPipelineStageAssignment(add, 0).inbound_layers == [
        other,
        second._keras_history[0],
    ]


def test_layers_before_a_call_that_no_model_has_told_of(layer):
    message = (
        "The inbound layers of ModelLayerPipelineStageAssignment(layer, call 0, stage None) are "
        "not known, as it was made without its model. Take it from `get_pipeline_stage_assignment"
    )
    with pytest.raises(AttributeError, match=f"^{re.escape(message)}"):
        _ = ModelLayerPipelineStageAssignment(layer, 0).inbound_layers
