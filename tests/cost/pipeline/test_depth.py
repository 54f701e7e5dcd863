import doctest

import pytest
from said import said

from ipu_keras.cost.pipeline import depth
from ipu_keras.cost.pipeline.depth import depth_message, overlap
from ipu_keras.settings.pipeline_choices import PipelineSchedule

GROUPED, INTERLEAVED, SEQUENTIAL = PipelineSchedule


def test_examples_in_docstrings():
    assert doctest.testmod(depth).failed == 0


@pytest.mark.parametrize(
    ("schedule", "device_mapping", "training", "expected"),
    [
        (GROUPED, (0, 1, 2), True, 6),
        (GROUPED, (0, 1, 2), False, 3),
        (GROUPED, (0, 1, 0), True, 6),
        (INTERLEAVED, (0, 1), True, 2),
        (INTERLEAVED, (0, 1, 2, 3), True, 4),
        (INTERLEAVED, (0, 1, 2, 3), False, 4),
        # 0 1 0, 0 0 1 and 1 0 0 have an IPU in common at a place.
        (INTERLEAVED, (0, 1, 0), False, 1),
        # 0 0 1 1 and 1 1 0 0 do not.
        (INTERLEAVED, (0, 0, 1, 1), False, 2),
        (SEQUENTIAL, (0, 1, 2), True, 1),
        (SEQUENTIAL, (0, 0), False, 1),
    ],
)
def test_overlap(schedule, device_mapping, training, expected):
    assert overlap(schedule, device_mapping, training=training) == expected


def test_what_a_number_that_does_not_suit_is_told():
    assert depth_message(4, 6) == (
        "The number of iterations of the pipeline must be a multiple of 4, but it is 6. This "
        "number might be called `gradient_accumulation_count` or "
        "`gradient_accumulation_steps_per_replica` in training, and `steps_per_execution` in "
        "evaluation and prediction: give it 4, 8, 12 or so."
    )


def test_interleaved_training_needs_an_ipu_for_each_stage():
    with pytest.raises(NotImplementedError) as error:
        overlap(INTERLEAVED, (0, 1, 0), training=True)
    assert str(error.value).startswith(
        "The pipelining schedule 'Interleaved' does not currently support multiple pipeline "
        "stages on the same device"
    )
    assert "Received: device_mapping=[0, 1, 0]" in said(error.value)
