"""Stages that compute their activations again, in programs built by hand."""

from hlo_graphs import forward_only, staged_step

from ipu_keras.compiler.compute_sets import flatten
from ipu_keras.compiler.pipeline_placement import place_stages
from ipu_keras.compiler.pipeline_recomputation import recompute_stages
from ipu_keras.compiler.pipeline_schedule import PipelinePlan
from ipu_keras.compiler.step_parts import attribute_parts, sorted_by_part
from ipu_keras.pipeline_choices import PipelineSchedule, RecomputationMode

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
