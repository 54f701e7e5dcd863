"""The documented choices of pipelines."""

import doctest

import pytest

from ipu_keras.settings import pipeline_choices
from ipu_keras.settings.pipeline_choices import (
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
    SelectionOrder,
    idle_poplar_options,
    recomputation_mode,
)

GROUPED, INTERLEAVED, SEQUENTIAL = PipelineSchedule
AUTO, THEN, TOGETHER = RecomputationMode


def test_examples():
    assert doctest.testmod(pipeline_choices).failed == 0


# As document 001 has them, of 16 IPUs; of HOOF it shows 8.
ZIGZAG = list(range(16))
SNAKE = [0, 1, 3, 2, 4, 5, 7, 6, 8, 9, 11, 10, 12, 13, 15, 14]


@pytest.mark.parametrize(
    ("order", "pipelined", "ipus"),
    [
        (SelectionOrder.ZIGZAG, True, ZIGZAG),
        (SelectionOrder.SNAKE, False, SNAKE),
        (SelectionOrder.HOOF, True, [0, 2, 4, 6, 7, 5, 3, 1]),
        (SelectionOrder.HOOF, True, [0, 2, 3, 1]),
        (SelectionOrder.HOOF, True, [0, 1]),
        (SelectionOrder.HOOF, True, [0]),
        (SelectionOrder.AUTO, True, SNAKE),
        (SelectionOrder.AUTO, False, ZIGZAG),
    ],
)
def test_orders_of_ipus(order, pipelined, ipus):
    found = [order.ipu_at(k, len(ipus), pipelined=pipelined) for k in range(len(ipus))]
    assert found == ipus


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


def test_options_of_poplar_without_a_model():
    assert idle_poplar_options([]) == []
    assert idle_poplar_options(["partialsType", "availableMemoryProportion"]) == []
    # Sorted, each once, whoever else asks for it.
    assert idle_poplar_options(["b", "partialstype", "a", "b"]) == [
        "'a'",
        "'b'",
        "'partialstype' (did you mean 'partialsType'?)",
    ]
    (found,) = idle_poplar_options(["available_memory_proportion"])
    assert found == "'available_memory_proportion' (did you mean 'availableMemoryProportion'?)"


@pytest.mark.parametrize(
    ("schedule", "mode", "found"),
    [
        (GROUPED, AUTO, THEN),
        (INTERLEAVED, AUTO, THEN),
        (SEQUENTIAL, AUTO, TOGETHER),
        (GROUPED, TOGETHER, TOGETHER),
        (INTERLEAVED, THEN, THEN),
    ],
)
def test_modes_of_schedules(schedule, mode, found):
    assert recomputation_mode(schedule, mode) is found


@pytest.mark.parametrize(("schedule", "mode"), [(INTERLEAVED, TOGETHER), (SEQUENTIAL, THEN)])
def test_modes_that_a_schedule_has_not(schedule, mode):
    message = (
        rf"schedule '{schedule.name}' supports .* or Auto. Received: recomputation_mode={mode.name}"
    )
    with pytest.raises(ValueError, match=message):
        recomputation_mode(schedule, mode)
