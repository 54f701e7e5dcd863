"""Options as people read them: no word of Python, and IPUs as they are counted."""

import doctest

import pytest

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.program import Pipeline
from ipu_keras.report import options_in_words as module
from ipu_keras.report.options_in_words import ipus_in_words, options_in_words
from ipu_keras.settings.pipeline_choices import (
    PipelineSchedule,
    PipelineStageOptions,
    SelectionOrder,
)


def test_examples():
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "1 IPU"),
        ({"num_replicas": 16}, "16 replicas of 1 IPU"),
        ({"num_ipus": 4}, "4 IPUs, which share the layers; one computes at a time"),
        ({"pipeline": Pipeline(device_mapping=(0, 0))}, "1 IPU in a pipeline of 2 stages"),
        (
            {"pipeline": Pipeline(device_mapping=(0, 1, 2, 3, 0))},
            "4 IPUs in a pipeline of 5 stages",
        ),
        (
            {"pipeline": Pipeline(device_mapping=(0, 1)), "num_replicas": 2, "stage_splits": 2},
            "2 replicas of 4 IPUs in a pipeline of 4 stages",
        ),
    ],
)
def test_ipus(options, words):
    assert ipus_in_words(CostOptions(**options)) == words
    assert options_in_words(CostOptions(**options))[0] == ("IPUs", words)


def test_what_is_always_said():
    assert options_in_words(CostOptions()) == (
        ("IPUs", "1 IPU"),
        ("available memory proportion", "0.6"),
        ("steps per execution", "1"),
        ("dtype", "as traced"),
        ("recomputation", "no"),
    )


def test_values_are_written_as_people_do():
    options = CostOptions(
        recomputation=True,
        dtype="float16",
        steps_per_execution=2000,
        selection_order=SelectionOrder.SNAKE,
        convolution_options={"availableMemoryProportion": "0.15", "partialsType": "half"},
    )
    found = dict(options_in_words(options))
    assert found["recomputation"] == "yes"
    assert found["dtype"] == "float16"
    assert found["steps per execution"] == "2,000"
    assert found["selection order"] == "SNAKE"
    assert found["convolution options"] == "availableMemoryProportion 0.15, partialsType half"


def test_choices_of_a_pipeline_are_named_one_by_one():
    pipeline = Pipeline(
        device_mapping=(0, 1),
        schedule=PipelineSchedule.Interleaved,
        offload_weight_update_variables=True,
        offload_activations=False,
        forward_options=(
            PipelineStageOptions(matmul_options={"partialsType": "half"}),
            PipelineStageOptions(),
        ),
    )
    found = options_in_words(
        CostOptions(pipeline=pipeline, gradient_accumulation_count=4, steps_per_execution=4)
    )
    assert found[-4:] == (
        ("IPU of each stage", "0, 1"),
        ("pipeline: schedule", "Interleaved"),
        ("pipeline: forward options", "stage 0: matmul options partialsType half; stage 1: none"),
        ("pipeline: offload weight update variables", "yes"),
    )
    assert not any("{" in value or "None" in value for _, value in found)


def test_how_a_pipeline_computes_again_is_what_it_does():
    """`Auto` means another mode for each schedule."""
    for schedule, mode in (
        (PipelineSchedule.Grouped, "RecomputeThenBackpropagate"),
        (PipelineSchedule.Sequential, "RecomputeAndBackpropagateInterleaved"),
    ):
        pipeline = Pipeline(device_mapping=(0, 1), schedule=schedule)
        found = options_in_words(CostOptions(pipeline=pipeline, recomputation=True))
        assert ("pipeline: recomputation mode", mode) in found
        assert "Auto" not in str(found)
