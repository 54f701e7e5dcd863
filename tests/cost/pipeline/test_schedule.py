"""Schedules of pipelines against streams drawn by hand, and stashes counted on paper."""

import doctest
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.cost.pipeline import schedule as pipeline_schedule
from ipu_keras.cost.pipeline.depth import depth_message, overlap
from ipu_keras.cost.pipeline.schedule import (
    Activity,
    Phase,
    PipelinePlan,
    check_schedule,
    schedule_pipeline,
)
from ipu_keras.settings.pipeline_choices import PipelineSchedule

GROUPED, INTERLEAVED, SEQUENTIAL = PipelineSchedule


def as_text(steps, ipus):
    """A line for each step: its phase, and what each IPU does, between bars."""
    rows = []
    for step in steps:
        cells = [" ".join(str(i) for i in step.instructions if i.part.ipu == ipu) for ipu in ipus]
        rows.append(f"{step.phase.value}: {' | '.join(cells)}")
    return rows


def instructions_of(ipu, steps):
    """What an IPU does, in order."""
    return [one for step in steps for one in step.instructions if one.part.ipu == ipu]


def lines(num_stages, num_micro_batches, schedule, *, work=True, **options):
    """The schedule of stages on IPUs of their own; only computation unless all `work` is asked."""
    ipus = tuple(range(num_stages))
    plan = PipelinePlan(
        device_mapping=ipus, num_micro_batches=num_micro_batches, schedule=schedule, **options
    )
    steps = schedule_pipeline(plan)
    check_schedule(plan, steps)
    if not work:
        kept = (Activity.FORWARD, Activity.BACKWARD, Activity.WEIGHT_UPDATE)
        steps = [
            replace(step, instructions=[i for i in step.instructions if i.part.work in kept])
            for step in steps
        ]
    return as_text(steps, ipus)


def test_examples_in_docstrings():
    assert doctest.testmod(pipeline_schedule).failed == 0


def test_grouped_with_two_stages():
    """Forward steps and backward steps alternate.

            F   F B   F B ...
    IPU 0   0   1     2 0   3 1     2     3
    IPU 1       0 0   1 1   2 2   3 3
    """
    assert lines(2, 4, GROUPED) == [
        "fill: F0.0 S0.0 | ",
        "fill: F0.0>1 F0.1 S0.1 | F1.0",
        "fill:  | B1.0",
        "steady: F0.1>1 F0.2 S0.2 | F1.1",
        "steady: U0.0 B0.0 | B1.0>0 B1.1",
        "steady: F0.2>1 F0.3 S0.3 | F1.2",
        "steady: U0.1 B0.1 | B1.1>0 B1.2",
        "drain: F0.3>1 | F1.3",
        "drain: U0.2 B0.2 | B1.2>0 B1.3",
        "drain: U0.3 B0.3 | B1.3>0",
        "weight update: W | W",
    ]


def test_grouped_with_three_stages():
    """F_k(m) is in round m + k, B_k(m) in round m + 4 - k.

    round   0   1   2     3     4     5     6     7     8     9
    IPU 0   F0  F1  F2    F3    F4 B0 F5 B1    B2    B3    B4    B5
    IPU 1       F0  F1    F2 B0 F3 B1 F4 B2 F5 B3    B4    B5
    IPU 2           F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5
    """
    assert lines(3, 6, GROUPED, work=False) == [
        "fill: F0.0 |  | ",
        "fill: F0.1 | F1.0 | ",
        "fill: F0.2 | F1.1 | F2.0",
        "fill:  |  | B2.0",
        "fill: F0.3 | F1.2 | F2.1",
        "fill:  | B1.0 | B2.1",
        "steady: F0.4 | F1.3 | F2.2",
        "steady: B0.0 | B1.1 | B2.2",
        "steady: F0.5 | F1.4 | F2.3",
        "steady: B0.1 | B1.2 | B2.3",
        "drain:  | F1.5 | F2.4",
        "drain: B0.2 | B1.3 | B2.4",
        "drain:  |  | F2.5",
        "drain: B0.3 | B1.4 | B2.5",
        "drain: B0.4 | B1.5 | ",
        "drain: B0.5 |  | ",
        "weight update: W | W | W",
    ]


def test_grouped_with_four_stages():
    """Steady from round 2S - 2 = 6, in which B0.0 runs, to round 7, in which F0.7 does."""
    found = lines(4, 8, GROUPED, work=False)
    assert found[:4] == [
        "fill: F0.0 |  |  | ",
        "fill: F0.1 | F1.0 |  | ",
        "fill: F0.2 | F1.1 | F2.0 | ",
        "fill: F0.3 | F1.2 | F2.1 | F3.0",
    ]
    assert [line for line in found if line.startswith("steady")] == [
        "steady: F0.6 | F1.5 | F2.4 | F3.3",
        "steady: B0.0 | B1.1 | B2.2 | B3.3",
        "steady: F0.7 | F1.6 | F2.5 | F3.4",
        "steady: B0.1 | B1.2 | B2.3 | B3.4",
    ]
    assert found[-4:] == [
        "drain: B0.5 | B1.6 | B2.7 | ",
        "drain: B0.6 | B1.7 |  | ",
        "drain: B0.7 |  |  | ",
        "weight update: W | W | W | W",
    ]
    # N + S - 1 steps of each direction, and the weight update.
    assert len(found) == 2 * (8 + 3) + 1


def test_interleaved_with_two_stages():
    """Neighbours are in different directions.

    step    0   1   2   3   4   5   6   7   8   9
    IPU 0   F0      F1  B0  F2  B1  F3  B2      B3
    IPU 1       F0  B0  F1  B1  F2  B2  F3  B3
    """
    assert lines(2, 4, INTERLEAVED) == [
        "fill: F0.0 S0.0 | ",
        "fill: F0.0>1 | F1.0",
        "steady: F0.1 S0.1 | B1.0",
        "steady: F0.1>1 U0.0 B0.0 | B1.0>0 F1.1",
        "steady: F0.2 S0.2 | B1.1",
        "steady: F0.2>1 U0.1 B0.1 | B1.1>0 F1.2",
        "steady: F0.3 S0.3 | B1.2",
        "steady: F0.3>1 U0.2 B0.2 | B1.2>0 F1.3",
        "drain:  | B1.3",
        "drain: U0.3 B0.3 | B1.3>0",
        "weight update: W | W",
    ]


def test_interleaved_with_three_stages():
    """
    step    0   1   2   3   4   5   6   7   8   9
    IPU 0   F0      F1      F2  B0      B1      B2
    IPU 1       F0      F1  B0  F2  B1      B2
    IPU 2           F0  B0  F1  B1  F2  B2
    """
    assert lines(3, 3, INTERLEAVED, work=False) == [
        "fill: F0.0 |  | ",
        "fill:  | F1.0 | ",
        "fill: F0.1 |  | F2.0",
        "fill:  | F1.1 | B2.0",
        "steady: F0.2 | B1.0 | F2.1",
        "steady: B0.0 | F1.2 | B2.1",
        "drain:  | B1.1 | F2.2",
        "drain: B0.1 |  | B2.2",
        "drain:  | B1.2 | ",
        "drain: B0.2 |  | ",
        "weight update: W | W | W",
    ]


def test_interleaved_with_four_stages():
    """F_k(m) in step 2m + k, B_k(m) in step 2m + 7 - k."""
    assert lines(4, 4, INTERLEAVED, work=False) == [
        "fill: F0.0 |  |  | ",
        "fill:  | F1.0 |  | ",
        "fill: F0.1 |  | F2.0 | ",
        "fill:  | F1.1 |  | F3.0",
        "fill: F0.2 |  | F2.1 | B3.0",
        "fill:  | F1.2 | B2.0 | F3.1",
        "steady: F0.3 | B1.0 | F2.2 | B3.1",
        "steady: B0.0 | F1.3 | B2.1 | F3.2",
        "drain:  | B1.1 | F2.3 | B3.2",
        "drain: B0.1 |  | B2.2 | F3.3",
        "drain:  | B1.2 |  | B3.3",
        "drain: B0.2 |  | B2.3 | ",
        "drain:  | B1.3 |  | ",
        "drain: B0.3 |  |  | ",
        "weight update: W | W | W | W",
    ]


@pytest.mark.parametrize("num_stages", [2, 3, 4])
def test_sequential(num_stages):
    """F0 F1 ... B1 B0 of one micro-batch, then of the next one; nothing fills or waits."""
    found = []
    for micro_batch in range(2):
        order = [f"F{k}" for k in range(num_stages)]
        order += [f"B{k}" for k in reversed(range(num_stages))]
        for name in order:
            cells = [""] * num_stages
            cells[int(name[1])] = f"{name}.{micro_batch}"
            found.append(f"steady: {' | '.join(cells)}")
    found.append(f"weight update: {' | '.join(['W'] * num_stages)}")
    assert lines(num_stages, 2, SEQUENTIAL, work=False) == found


@pytest.mark.parametrize("schedule", [GROUPED, INTERLEAVED])
def test_inference_has_one_direction(schedule):
    """
    IPU 0   F0  F1  F2
    IPU 1       F0  F1  F2
    IPU 2           F0  F1  F2
    """
    assert lines(3, 3, schedule, training=False) == [
        "fill: F0.0 |  | ",
        "fill: F0.0>1 F0.1 | F1.0 | ",
        "steady: F0.1>1 F0.2 | F1.0>2 F1.1 | F2.0",
        "drain: F0.2>1 | F1.1>2 F1.2 | F2.1",
        "drain:  | F1.2>2 | F2.2",
    ]


def test_stages_on_one_ipu():
    """Stages 0 and 2 are on IPU 0, which works for both in a step, the later one first."""
    plan = PipelinePlan(device_mapping=(0, 1, 0), num_micro_batches=6)
    steps = schedule_pipeline(plan)
    check_schedule(plan, steps)
    assert as_text(steps[2:4], (0, 1)) == [
        "fill: F0.1>1 F2.0 F0.2 S0.2 | F1.0>0 F1.1 S1.1",
        "fill: B2.0 | ",
    ]


def test_recomputation_comes_after_what_it_needs():
    plan = PipelinePlan(
        device_mapping=(0, 1),
        num_micro_batches=2,
        schedule=INTERLEAVED,
        recomputed=(0,),
    )
    stream = instructions_of(0, schedule_pipeline(plan))
    assert " ".join(map(str, stream)) == (
        "F0.0 S0.0 F0.0>1 F0.1 S0.1 F0.1>1 U0.0 R0.0 B0.0 U0.1 R0.1 B0.1 W"
    )


def test_copies_that_skip_a_stage():
    """Stage 2 reads what stage 0 made, too."""
    plan = PipelinePlan(
        device_mapping=(0, 1, 2), num_micro_batches=3, training=False, copies={0: (1, 2), 1: (2,)}
    )
    second = schedule_pipeline(plan)[1]
    assert " ".join(map(str, second.instructions)) == "F0.0>1 F0.0>2 F0.1 F1.0"


@pytest.mark.parametrize(
    ("schedule", "num_stages", "stashes"),
    [
        # Between F_k(m) and B_k(m), 2(S - 1 - k) more micro-batches come to stage k.
        (GROUPED, 2, (3, 1)),
        (GROUPED, 3, (5, 3, 1)),
        (GROUPED, 4, (7, 5, 3, 1)),
        # Every second step one comes; 2S - 1 - 2k steps are between.
        (INTERLEAVED, 2, (2, 1)),
        (INTERLEAVED, 3, (3, 2, 1)),
        (INTERLEAVED, 4, (4, 3, 2, 1)),
        (SEQUENTIAL, 2, (1, 1)),
        (SEQUENTIAL, 3, (1, 1, 1)),
        (SEQUENTIAL, 4, (1, 1, 1, 1)),
    ],
)
def test_stashes_by_pencil_and_paper(schedule, num_stages, stashes):
    plan = PipelinePlan(
        device_mapping=tuple(range(num_stages)), num_micro_batches=8 * 3, schedule=schedule
    )
    assert plan.stash_counts == stashes
    assert replace(plan, training=False).stash_counts == (0,) * num_stages
    # What the stream itself has between a forward and a backward part.
    steps = schedule_pipeline(plan)
    for ipu in range(num_stages):
        waiting, most = 0, 0
        for instruction in instructions_of(ipu, steps):
            waiting += {Activity.FORWARD: 1, Activity.BACKWARD: -1}.get(instruction.part.work, 0)
            most = max(most, waiting)
        assert most == stashes[ipu]


def test_what_waits_on_another_ipu():
    """What crosses arrives in the step of the next part: it waits if a later one reads it."""
    plan = PipelinePlan(device_mapping=(0, 1, 2), num_micro_batches=3, training=False)
    assert [plan.num_alive(1, k) for k in (1, 2)] == [1, 2]
    # F_0(m) reaches IPU 2 in round m + 1; B_2(m) reads it in round m + 2.
    training = PipelinePlan(device_mapping=(0, 1, 2), num_micro_batches=6)
    assert training.num_alive(1, 3) == 2


def test_numbers_of_micro_batches_that_do_not_suit():
    with pytest.raises(ValueError) as error:
        PipelinePlan(device_mapping=(0, 1), num_micro_batches=6)
    assert str(error.value) == depth_message(4, 6)


def test_a_schedule_that_is_wrong_is_noticed():
    plan = PipelinePlan(device_mapping=(0, 1), num_micro_batches=4)
    steps = schedule_pipeline(plan)
    with pytest.raises(AssertionError, match=r"F0\.0 runs 0 times"):
        check_schedule(plan, steps[1:])
    with pytest.raises(AssertionError, match=r"F0\.0 runs 2 times"):
        check_schedule(plan, (steps[0], *steps))
    with pytest.raises(AssertionError, match=r"F1\.0 runs in step 0, not after step 1"):
        check_schedule(plan, (steps[1], steps[0], *steps[2:]))
    with pytest.raises(AssertionError, match=r"weight updates at \[\]"):
        check_schedule(plan, steps[:-1])


@given(
    schedule=st.sampled_from(list(PipelineSchedule)),
    mapping=st.lists(st.integers(0, 3), min_size=2, max_size=6),
    times=st.integers(1, 3),
    training=st.booleans(),
)
def test_any_schedule(schedule, mapping, times, training):
    """Each part runs once and in order; an IPU is never asked for more than a stash has."""
    mapping = tuple(mapping)
    if schedule is INTERLEAVED and training:
        mapping = tuple(dict.fromkeys(mapping)) if len(set(mapping)) > 1 else (0, 1)
    count = times * overlap(schedule, mapping, training=training)
    plan = PipelinePlan(
        device_mapping=mapping, num_micro_batches=count, schedule=schedule, training=training
    )
    steps = schedule_pipeline(plan)
    check_schedule(plan, steps)
    order = [phase for phase in Phase if any(step.phase is phase for step in steps)]
    assert sorted(steps, key=lambda step: order.index(step.phase)) == list(steps)
    if schedule is not GROUPED:
        for step in steps[:-1]:
            parts = [
                i.part.ipu
                for i in step.instructions
                if i.part.work in (Activity.FORWARD, Activity.BACKWARD)
            ]
            assert len(parts) == len(set(parts))
