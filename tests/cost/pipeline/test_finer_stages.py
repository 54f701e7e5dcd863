"""Stages cut between their layers, in programs built by hand."""

from dataclasses import replace

import pytest
from hlo_graphs import forward_only, staged_step

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.pipeline.finer_stages import cut_stages
from ipu_keras.cost.pipeline.step_parts import attribute_parts
from ipu_keras.machine.target import TARGETS
from ipu_keras.program import Pipeline
from ipu_keras.settings.pipeline_choices import PipelineStageOptions


def cut(step, num_stages, splits):
    return cut_stages(attribute_parts(flatten(step), num_stages), num_stages, splits)


def stages(program):
    return {one.name: one.stage for one in program.compute_sets}


def without_traced_stages(compute_sets):
    """Operations still say which stage they were traced in."""
    return [
        replace(one, ops=tuple(replace(op, stage=None) for op in one.ops)) for one in compute_sets
    ]


@pytest.mark.parametrize("part", [lambda step: step, forward_only], ids=["training", "inference"])
def test_two_layers_in_each_of_two_stages_are_four_stages(part):
    """As if every layer had been traced in a stage of its own; each has the same bytes."""
    coarse, fine = part(staged_step(4, stages=[0, 0, 1, 1])), part(staged_step(4))
    found, expected = cut(coarse, 2, 2), attribute_parts(flatten(fine), 4)
    assert len(set(stages(found).values())) == (5 if "u0" in stages(found) else 4)
    assert without_traced_stages(found.compute_sets) == without_traced_stages(expected.compute_sets)


def test_gradients_are_with_their_layers():
    """Of z0 h0 z1 h1 | z2 h2 z3 h3 loss, each half is cut in its middle."""
    found = stages(cut(staged_step(4, stages=[0, 0, 1, 1]), 2, 2))
    layers = {0: "z0 h0 dz0 dw0", 1: "z1 h1 dz1 dw1 dh0", 2: "z2 h2 dz2 dw2 dh1"}
    layers[3] = "z3 h3 loss dz3 dw3 dh2"
    expected = {name: stage for stage, names in layers.items() for name in names.split()}
    assert found == expected | {f"u{k}": None for k in range(4)}


def test_layers_of_unequal_bytes():
    """144 KiB of a variable and what waits, then three layers of 32: cut behind the first."""
    step = staged_step(4, stages=[0, 0, 0, 0])
    wide = {"z0": 512, "h0": 512}
    ops = tuple(
        replace(one, outputs=(replace(one.outputs[0], shape=(64, wide[one.name])),))
        if one.name in wide
        else one
        for one in step.ops
    )
    found = stages(cut(replace(step, ops=ops), 1, 2))
    assert [found[f"z{k}"] for k in range(4)] == [0, 1, 1, 1]


def test_one_stage_each_is_the_program_itself():
    program = attribute_parts(flatten(staged_step(4)), 4)
    assert cut_stages(program, 4, 1) is program


def test_a_stage_of_one_layer_cannot_be_cut():
    message = "Stage 0 cannot be cut into 2: it has layers for 1 only.*stage_splits=2"
    with pytest.raises(ValueError, match=message):
        cut(staged_step(2), 2, 2)


def test_options_of_a_stage_are_those_of_its_parts():
    first, second = (PipelineStageOptions({}, {"partialsType": t}) for t in ("float", "half"))
    finer = Pipeline(device_mapping=(0, 1), forward_options=(first, second)).cut(3)
    assert finer.device_mapping == (0, 1, 2, 3, 4, 5)
    assert finer.forward_options == (first, first, first, second, second, second)
    assert finer.backward_options == ()


def test_the_model_is_that_of_a_finer_trace():
    """Costs, memory of each tile and the schedule."""
    fine = model_graph(
        "step",
        staged_step(4),
        TARGETS["gc200"],
        CostOptions(
            pipeline=Pipeline(device_mapping=(0, 1, 2, 3)),
            gradient_accumulation_count=8,
            steps_per_execution=8,
        ),
    )
    cut_options = replace(fine.options, pipeline=Pipeline(device_mapping=(0, 1)), stage_splits=2)
    coarse = staged_step(4, stages=[0, 0, 1, 1])
    found = model_graph("step", coarse, TARGETS["gc200"], cut_options)
    assert cut_options.ipus_per_replica == found.memory.num_ipus == 4
    sets = found.program.compute_sets
    assert without_traced_stages(sets) == without_traced_stages(fine.program.compute_sets)
    assert found.costs == fine.costs
    assert (found.memory.peak_by_tile == fine.memory.peak_by_tile).all()
    assert found.pipeline_run == fine.pipeline_run


def test_stages_can_only_be_cut_if_there_are_any():
    with pytest.raises(ValueError, match=r"there is none; `num_ipus` shares.*stage_splits=2"):
        CostOptions(stage_splits=2)
    with pytest.raises(ValueError, match=r"`stage_splits` must be a positive integer.*=0"):
        CostOptions(stage_splits=0, pipeline=Pipeline(device_mapping=(0, 1)))
