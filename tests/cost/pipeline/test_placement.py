"""Stages on their IPUs, in programs built by hand."""

from dataclasses import replace

from hlo_graphs import argument, graph, op, staged_step, variable

from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.pipeline.accumulation import accumulate
from ipu_keras.cost.pipeline.placement import place_stages, work_of_part
from ipu_keras.cost.pipeline.schedule import Activity, Part, PipelinePlan
from ipu_keras.cost.pipeline.step_parts import attribute_parts, sorted_by_part
from ipu_keras.settings.pipeline_choices import PipelineSchedule


def placed(step, device_mapping, count=24, **options):
    """As the passes do it, without fusing or reordering."""
    program = attribute_parts(flatten(step), len(device_mapping))
    program = sorted_by_part(accumulate(program), len(device_mapping))
    return place_stages(
        program, PipelinePlan(device_mapping=device_mapping, num_micro_batches=count, **options)
    )


def staged(one, stage):
    return replace(one, stage=stage)


def test_two_stages():
    """x z0 h0 | z1 h1 loss dz1 dw1 dh0 | dz0 dw0; `x` and `h0` wait for the gradient of z0."""
    program = placed(staged_step(2), (0, 1))
    assert [(one.ipu, one.name) for one in program.compute_sets] == [
        (0, "z0"),
        (0, "h0"),
        (0, "stage 0 forward stash"),
        (1, "stage 0 forward to IPU 1"),
        (1, "z1"),
        (1, "h1"),
        (1, "loss"),
        (1, "dz1"),
        (1, "dw1"),
        (1, "dw1/accumulate"),
        (1, "dh0"),
        (0, "stage 1 backward to IPU 0"),
        (0, "stage 0 backward unstash"),
        (0, "dz0"),
        (0, "dw0"),
        (0, "dw0/accumulate"),
        (0, "u0"),
        (1, "u1"),
        (0, "dw0/accumulator/zero"),
        (1, "dw1/accumulator/zero"),
    ]
    # Between F0(m) and B0(m) come two more batches.
    assert program.stashes == {"x": 2, "h0": 2}
    homes = {name: value.ipu for name, value in program.values.items()}
    assert {name: homes[name] for name in ("w0", "w1", "dw0/accumulator", "h0@ipu1")} == {
        "w0": 0,
        "w1": 1,
        "dw0/accumulator": 0,
        "h0@ipu1": 1,
    }


def test_stashes_of_three_stages():
    """Stage 1 keeps what it got from stage 0, and its own result."""
    found = {
        schedule: placed(staged_step(3), (0, 1, 2), schedule=schedule).stashes
        for schedule in PipelineSchedule
    }
    assert found == {
        PipelineSchedule.Grouped: {"x": 4, "h0": 4, "h0@ipu1": 2, "h1": 2},
        PipelineSchedule.Interleaved: {"x": 2, "h0": 2, "h0@ipu1": 1, "h1": 1},
        PipelineSchedule.Sequential: {},
    }


def test_everything_is_where_it_is_read():
    for mapping in ((0, 1, 2), (2, 0, 1), (0, 1, 0), (1, 1, 1)):
        program = placed(staged_step(3), mapping)
        for one in program.compute_sets:
            if one.family != "inter-IPU copy":
                assert {program.values[name].ipu for name in one.reads} <= {one.ipu}, one.name


def test_stages_on_one_ipu_need_no_copies():
    program = placed(staged_step(2), (0, 0))
    assert not [one for one in program.compute_sets if one.family == "inter-IPU copy"]


def test_all_that_goes_to_an_ipu_crosses_together():
    two = graph(
        argument("x", 8),
        staged(op("a", "tanh", (8,), "x"), 0),
        staged(op("b", "negate", (8,), "x"), 0),
        staged(op("y", "add", (8,), "a", "b"), 1),
    )
    program = placed(two, (0, 1), training=False)
    (copy,) = [one for one in program.compute_sets if one.family == "inter-IPU copy"]
    assert (copy.reads, copy.bytes_read) == (("a", "b"), 64)
    assert [value.name for value in copy.writes] == ["a@ipu1", "b@ipu1"]
    assert program.stashes == {}


def test_what_skips_a_stage_waits_on_its_ipu():
    """`a` arrives with the step of stage 1, and is read a step later."""
    skip = graph(
        argument("x", 8),
        staged(op("a", "tanh", (8,), "x"), 0),
        staged(op("b", "negate", (8,), "a"), 1),
        staged(op("y", "add", (8,), "a", "b"), 2),
    )
    program = placed(skip, (0, 1, 2), training=False)
    copies = {one.name: one.reads for one in program.compute_sets if "to IPU" in one.name}
    assert copies == {
        "stage 0 forward to IPU 1": ("a",),
        "stage 0 forward to IPU 2": ("a",),
        "stage 1 forward to IPU 2": ("b",),
    }
    assert program.stashes == {"a@ipu2": 1}
    assert [one.name for one in program.compute_sets if one.family == "stash"] == [
        "stage 2 forward unstash",
        "stage 2 forward stash",
    ]


def test_variables_that_another_stage_updates_from():
    """Both stages read `w`: its gradients meet where it lies."""
    shared = graph(
        argument("x", 8),
        variable("w", 8, result=1),
        staged(op("a", "multiply", (8,), "x", "w"), 0),
        staged(op("y", "multiply", (8,), "a", "w"), 1),
        replace(op("g1", "multiply", (8,), "y", "a", backward=True), stage=1),
        replace(op("g0", "multiply", (8,), "g1", "x", backward=True), stage=0),
        replace(op("n", "custom", (8,), "w", "g0", "g1"), weight_update=True),
        results=("y", "n"),
    )
    program = placed(shared, (0, 1))
    update = next(one for one in program.compute_sets if one.name == "n")
    assert (update.ipu, update.reads) == (0, ("w", "g0/accumulator", "g1/accumulator@ipu0"))
    late = next(one for one in program.compute_sets if one.name == "n/from IPU 1")
    assert (late.weight_update, late.reads) == (True, ("g1/accumulator",))


def test_what_counts_for_which_part():
    program = placed(staged_step(2), (0, 1))
    parts = {one.name: work_of_part(one, 0) for one in program.compute_sets}
    assert parts["z0"] == Part(Activity.FORWARD, 0, 0)
    assert parts["dw1"] == Part(Activity.BACKWARD, 1, 1, True)
    assert parts["stage 0 forward stash"] == Part(Activity.STASH, 0, 0)
    assert parts["stage 0 backward unstash"] == Part(Activity.UNSTASH, 0, 0, True)
    assert parts["stage 0 forward to IPU 1"] == Part(Activity.COPY, 0, 0, False, 1)
    assert parts["u1"] == Part(Activity.WEIGHT_UPDATE, 1)
