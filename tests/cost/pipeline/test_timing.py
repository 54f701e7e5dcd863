"""The time of schedules by closed forms, and by hand."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.cost.pipeline.schedule import (
    Activity,
    Part,
    Phase,
    PipelinePlan,
    overlap,
    schedule_pipeline,
)
from ipu_keras.cost.pipeline.timing import time_pipeline
from ipu_keras.settings.pipeline_choices import PipelineSchedule

GROUPED, INTERLEAVED, SEQUENTIAL = PipelineSchedule


def timing(forward, backward, count, schedule=GROUPED, *, training=True, copies=0, update=0):
    """Stages on IPUs of their own with these cycles, and copies to their neighbours."""
    num_stages = len(forward)
    plan = PipelinePlan(
        device_mapping=tuple(range(num_stages)),
        num_micro_batches=count,
        schedule=schedule,
        training=training,
    )
    cycles = {}
    for k in range(num_stages):
        cycles[Part(Activity.FORWARD, k, k)] = forward[k]
        cycles[Part(Activity.BACKWARD, k, k, True)] = backward[k]
        cycles[Part(Activity.COPY, k, k, False, k + 1)] = copies
        cycles[Part(Activity.COPY, k, k, True, k - 1)] = copies
        cycles[Part(Activity.WEIGHT_UPDATE, k)] = update
    return time_pipeline(schedule_pipeline(plan), cycles)


@given(
    num_stages=st.integers(2, 6),
    times=st.integers(1, 4),
    forward=st.integers(1, 9),
    backward=st.integers(1, 9),
)
def test_utilisation_of_balanced_stages_is_the_closed_form(num_stages, times, forward, backward):
    def found(schedule, *, training=True):
        count = times * overlap(schedule, range(num_stages), training=training)
        stages = [forward] * num_stages, [backward] * num_stages
        one = timing(*stages, count, schedule, training=training)
        return count, one, Fraction(sum(one.busy.values()), one.cycles * num_stages)

    n, one, utilisation = found(GROUPED)
    assert utilisation == Fraction(n, n + num_stages - 1)
    assert one.cycles == (n + num_stages - 1) * (forward + backward)
    assert one.bubble_share == pytest.approx((num_stages - 1) / (n + num_stages - 1))
    for schedule in (GROUPED, INTERLEAVED):
        n, _, utilisation = found(schedule, training=False)
        assert utilisation == Fraction(n, n + num_stages - 1)
    n, one, utilisation = found(SEQUENTIAL)
    assert utilisation == Fraction(1, num_stages)
    assert one.cycles == n * num_stages * (forward + backward)


@given(num_stages=st.integers(2, 6), times=st.integers(1, 4), work=st.integers(1, 9))
def test_interleaved_is_as_busy_if_both_directions_take_as_long(num_stages, times, work):
    count = times * num_stages
    one = timing([work] * num_stages, [work] * num_stages, count, INTERLEAVED)
    assert Fraction(sum(one.busy.values()), one.cycles * num_stages) == Fraction(
        count, count + num_stages - 1
    )


def test_interleaved_takes_longer_if_backward_does():
    grouped, interleaved = (timing([1, 1], [2, 2], 16, s) for s in (GROUPED, INTERLEAVED))
    assert grouped.cycles == (16 + 1) * 3
    # Of 34 steps, the first two and the one before the last have forward parts only.
    assert interleaved.cycles == 34 * 2 - 2
    assert interleaved.utilisation < grouped.utilisation


def test_the_slowest_stage_sets_the_pace():
    """Two stages, forward 10 and 30, in inference: 10, then 30 for each micro-batch."""
    one = timing([10, 30], [0, 0], 4, training=False)
    assert one.starts == (0, 10, 40, 70, 100, 130)
    assert one.busy == {0: 40, 1: 120}
    assert one.bubbles(0) == [(20, 40), (50, 70), (80, 130)]
    assert one.bubbles(1) == [(0, 10)]
    assert one.utilisation == 160 / 260
    assert one.cycles_by_phase == {Phase.FILL: 10, Phase.STEADY: 90, Phase.DRAIN: 30}


def test_copies_cross_before_all_begin():
    one = timing([10, 30], [0, 0], 2, training=False, copies=5)
    shown = [(str(event.instruction), event.start, event.cycles) for event in one.events]
    assert shown == [
        ("F0.0", 0, 10),
        ("F0.0>1", 10, 5),
        ("F0.1", 15, 10),
        ("F1.0", 15, 30),
        ("F0.1>1", 45, 5),
        ("F1.1", 50, 30),
    ]
    assert one.bubbles(0) == [(25, 45), (50, 80)]


def test_copies_to_several_ipus_overlap():
    plan = PipelinePlan(
        device_mapping=(0, 1, 2), num_micro_batches=3, training=False, copies={0: (1, 2)}
    )
    cycles = {Part(Activity.COPY, 0, 0, False, to): 4 * to for to in (1, 2)}
    one = time_pipeline(schedule_pipeline(plan), cycles)
    assert one.cycles == 3 * 8
    assert one.busy == {0: 24, 1: 0, 2: 0}


def test_the_weight_update_is_a_step_of_its_own():
    one = timing([1, 1], [1, 1], 4, update=7)
    assert one.cycles_by_phase[Phase.UPDATE] == 7
    assert one.cycles == 2 * 5 + 7


def test_a_pipeline_that_takes_no_time():
    one = timing([0, 0], [0, 0], 4)
    assert (one.cycles, one.utilisation, one.bubble_share) == (0, 0, 0)
    assert one.bubbles(0) == []
