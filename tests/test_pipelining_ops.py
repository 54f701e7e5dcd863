"""The documented choices of pipelines."""

import pytest

from ipu_keras.pipelining_ops import PipelineSchedule, PipelineStageOptions, RecomputationMode


def test_members():
    assert [one.name for one in PipelineSchedule] == ["Grouped", "Interleaved", "Sequential"]
    assert [one.name for one in RecomputationMode] == [
        "Auto",
        "RecomputeThenBackpropagate",
        "RecomputeAndBackpropagateInterleaved",
    ]


def test_stage_options():
    options = PipelineStageOptions(matmul_options={"availableMemoryProportion": "0.1"})
    assert options.convolution_options is None
    assert options.matmul_options == {"availableMemoryProportion": "0.1"}
    with pytest.raises(TypeError) as error:
        PipelineStageOptions(convolution_options=["partialsType"])
    assert str(error.value) == (
        "`convolution_options` must be a dictionary of Poplar options. "
        "Received: convolution_options=['partialsType']"
    )
