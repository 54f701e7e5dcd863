"""Stages that compute their activations again, in programs built by hand."""

from dataclasses import replace

import pytest
from hlo_graphs import (
    argument,
    forward_only,
    graph,
    inner_parameter,
    op,
    spec,
    staged_step,
    variable,
    with_checkpoint,
)

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.pipeline.placement import place_stages
from ipu_keras.cost.pipeline.recomputation import recompute_stages
from ipu_keras.cost.pipeline.schedule import PipelinePlan
from ipu_keras.cost.pipeline.step_parts import attribute_parts, sorted_by_part
from ipu_keras.ir import Op
from ipu_keras.machine.target import TARGETS
from ipu_keras.program import Pipeline
from ipu_keras.settings.pipeline_choices import PipelineSchedule, RecomputationMode

GROUPED, INTERLEAVED, SEQUENTIAL = PipelineSchedule
AUTO, THEN, TOGETHER = RecomputationMode


def recomputed(mode, layers=4, stages=(0, 0, 1, 1)):
    program = attribute_parts(flatten(staged_step(layers, stages=stages)), 2)
    return recompute_stages(sorted_by_part(program, 2), 2, mode)


def names(program, stage, backward):
    return [
        one.name
        for one in program.compute_sets
        if (one.stage, one.backward, one.weight_update) == (stage, backward, False)
    ]


def test_all_again_before_the_backward_part():
    """h0 and h1 of stage 0 come again; the last stage keeps what it has."""
    program = recomputed(THEN)
    again = ["z0/recomputed", "h0/recomputed", "z1/recomputed", "h1/recomputed"]
    assert names(program, 0, True) == [*again, "dz1", "dw1", "dh0", "dz0", "dw0"]
    assert names(program, 1, True) == ["dz3", "dw3", "dh2", "dz2", "dw2", "dh1"]
    reads = {one.name: one.reads for one in program.compute_sets}
    assert reads["z1/recomputed"] == ("h0/recomputed", "w1")
    assert reads["dz1"] == ("dh1", "h1/recomputed")
    # Another stage reads what the forward part made.
    assert reads["z2"] == ("h1", "w2")
    assert reads["dw2"] == ("h1", "dz2")
    assert [one.recomputed for one in program.compute_sets].count(True) == 4


def test_each_just_before_it_is_needed():
    """dz1 needs h1, for which h0 has to be there too; nothing comes again for the others."""
    program = recomputed(TOGETHER)
    assert names(program, 0, True)[:5] == [
        "z0/recomputed",
        "h0/recomputed",
        "z1/recomputed",
        "h1/recomputed",
        "dz1",
    ]


def test_only_what_enters_a_stage_is_stashed():
    plan = PipelinePlan(device_mapping=(0, 1), num_micro_batches=4, recomputed=(0,))
    assert place_stages(recomputed(THEN), plan).stashes == {"x": 2}


def test_without_a_gradient_nothing_comes_again():
    program = attribute_parts(flatten(forward_only(staged_step(2))), 2)
    assert recompute_stages(program, 2, THEN) == program


def six_layers_in_a_stage(mode, *checkpoints):
    """The model of eight layers of which two are the last stage, with 4 MB activations."""
    step = staged_step(8, stages=(0,) * 6 + (1,) * 2, batch=16384)
    for name in checkpoints:
        step = with_checkpoint(step, name, (16384, 64))
    options = CostOptions(
        recomputation=True,
        pipeline=Pipeline(device_mapping=(0, 1), recomputation_mode=mode),
        gradient_accumulation_count=8,
        steps_per_execution=8,
    )
    return model_graph("step", step, TARGETS["gc200"], options)


def live_at(found, name):
    """What is in use on IPU 0 while a compute set runs, in sizes of activations."""
    position = [one.name for one in found.program.compute_sets].index(name)
    return found.memory.live_by_ipu[0][position] / (4 * 16384 * 64)


def test_recomputation_starts_from_a_checkpoint():
    """Of h0 to h5, h3 to h5 come again from h2; the others when h2's own gradient is there.

    For `dz5` there are x, six activations, the gradient that enters, and what arrives of it at
    each tile; then x, the checkpoint, three activations and the same.
    """
    whole = six_layers_in_a_stage(TOGETHER)
    halved = six_layers_in_a_stage(TOGETHER, "h2")
    assert live_at(whole, "dz5") == pytest.approx(9, rel=1e-3)
    assert live_at(halved, "dz5") == pytest.approx(7, rel=1e-3)
    again = [one.name for one in halved.program.compute_sets if one.recomputed]
    assert again == [
        *("z3/recomputed", "h3/recomputed", "z4/recomputed", "h4/recomputed"),
        *("z5/recomputed", "h5/recomputed"),
        *("z0/recomputed", "h0/recomputed", "z1/recomputed", "h1/recomputed"),
    ]
    # It waits for its backward part as the input does.
    assert whole.program.stashes == {"x": 2}
    assert halved.program.stashes == {"x": 2, "h2": 2}


@pytest.mark.parametrize("mode", [AUTO, THEN])
def test_checkpoints_have_no_effect_on_what_is_computed_at_once(mode):
    plain, marked = six_layers_in_a_stage(mode), six_layers_in_a_stage(mode, "h2")
    assert marked.program.stashes == plain.program.stashes == {"x": 2}
    assert marked.costs == plain.costs
    assert marked.memory.max_tile_bytes == plain.memory.max_tile_bytes


def test_a_checkpoint_that_ends_a_stage_does_not_count():
    """`h5` is what the next stage gets; `dz5` has it again from h4, as without a checkpoint."""
    whole, ended = six_layers_in_a_stage(TOGETHER), six_layers_in_a_stage(TOGETHER, "h5")
    assert ended.program.stashes == whole.program.stashes == {"x": 2}
    assert ended.costs == whole.costs


def in_last_stage(mode, *checkpoints):
    """What comes again of six layers in the second of two stages."""
    step = staged_step(8, stages=(0,) * 2 + (1,) * 6)
    for name in checkpoints:
        step = with_checkpoint(step, name)
    program = attribute_parts(flatten(step), 2)
    found = recompute_stages(sorted_by_part(program, 2), 2, mode)
    return [one.name for one in found.compute_sets if one.recomputed and one.stage == 1]


def test_the_last_stage_repeats_what_comes_before_its_last_checkpoint():
    """It keeps h5, and what comes behind, for its backward part follows at once."""
    again = ["z4/recomputed", "h4/recomputed", "z2/recomputed", "h2/recomputed"]
    assert in_last_stage(TOGETHER, "h3", "h5") == again
    assert in_last_stage(TOGETHER) == []
    assert in_last_stage(THEN, "h3", "h5") == []


def with_loop():
    """Stage 0 applies tanh three times over in a loop, whose result its gradient needs.

    x ─ while ─ y │ z ─ loss ─ dz ─ dw1, dy │ dw0
    """
    shape = (64, 64)
    body = graph(inner_parameter("a", *shape), op("b", "tanh", shape, "a"))
    condition = graph(inner_parameter("a", *shape), op("more", "compare", (), "a"))
    loop = Op(
        "while",
        "while",
        (spec(*shape),),
        inputs=("x",),
        body=("condition", "body"),
        attributes={"trip_count": 3},
    )
    parts = [
        (0, [loop, op("y", "multiply", shape, "while", "w0")]),
        (1, [op("z", "multiply", shape, "y", "w1"), op("loss", "reduce", (), "z", "zero")]),
        (1, [op("dz", "sine", shape, "z", backward=True)]),
        (1, [op("dw1", "multiply", shape, "y", "dz", backward=True)]),
        (1, [op("dy", "multiply", shape, "dz", "w1", backward=True)]),
        (0, [op("dw0", "multiply", shape, "while", "dy", backward=True)]),
    ]
    staged = [replace(one, stage=stage) for stage, ops in parts for one in ops]
    updates = [
        replace(op(f"u{k}", "subtract", shape, f"w{k}", f"dw{k}"), weight_update=True)
        for k in range(2)
    ]
    return graph(
        argument("x", *shape),
        op("zero", "constant", (), value=0.0),
        *(variable(f"w{k}", *shape, result=k + 1) for k in range(2)),
        *staged,
        *updates,
        results=("loss", "u0", "u1"),
        functions={"condition": condition, "body": body},
    )


@pytest.mark.parametrize("mode", [THEN, TOGETHER])
def test_a_loop_comes_again_as_a_whole(mode):
    """As layers that are written out do, so that only what enters the stage is stashed."""
    program = sorted_by_part(attribute_parts(flatten(with_loop()), 2), 2)
    found = recompute_stages(program, 2, mode)
    again = ["while:0", "while/body/b", "while/body/carried:0"]
    again = [f"{name}/recomputed" for name in again]
    assert names(found, 0, True) == [*again, "dw0"]
    sets = {one.name: one for one in found.compute_sets}
    assert sets["dw0"].reads == ("while/body/carried:0/recomputed", "dy")
    assert sets["while/body/b/recomputed"].reads == ("while:0/recomputed",)
    assert {part.loop for name in again for part in sets[name].loops} == {"while/recomputed"}
    # The repetition carries in place, too, and the first run is as it was.
    assert found.in_place == {
        **program.in_place,
        "while/body/carried:0/recomputed": "while:0/recomputed",
    }
    plan = PipelinePlan(device_mapping=(0, 1), num_micro_batches=4, recomputed=(0,))
    assert place_stages(found, plan).stashes == {"x": 2}
