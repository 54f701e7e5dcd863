"""What would make programs fit, on graphs built by hand."""

import dataclasses
import doctest

import numpy as np
import pytest
from hlo_graphs import forward_only, staged_step, training_step

from ipu_keras.advice import changes
from ipu_keras.advice.changed_programs import ChangedPrograms
from ipu_keras.advice.fixes import suggest_fixes
from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.flat.memory import MemoryPlan
from ipu_keras.cost.passes import model_graph
from ipu_keras.ir import LayeredStep, Variants
from ipu_keras.machine.target import TARGETS
from ipu_keras.program import Pipeline
from ipu_keras.settings.pipeline_choices import PipelineSchedule

GC200 = TARGETS["gc200"]
# 1.3 GB of activations in steps of 16 MB; an IPU has 0.9 GB.
LARGE = {"layers": 81, "batch": 65536, "width": 64}


def modelled(layers, batch, width, target=GC200, **options):
    step = training_step(layers, batch=batch, width=width)
    return model_graph("step", step, target, CostOptions(**options))


def test_example_in_the_docstring():
    assert doctest.testmod(changes).failed == 0


def test_each_fix_is_the_program_with_that_change():
    model = modelled(**LARGE)
    found = suggest_fixes(
        model,
        batch_size=65536,
        trace=lambda size: training_step(81, batch=size, width=64),
    )
    names = [fix.name for fix in found]
    assert {"float16", "recomputation", "the layers on 2 IPUs", "batch size 32768"} <= set(names)
    for fix in found:
        changes = dict(fix.changes)
        size = changes.pop("batch_size", 65536)
        same = modelled(81, size, 64, **changes)
        assert fix.max_tile_bytes == same.memory.max_tile_bytes < model.memory.max_tile_bytes
        assert fix.fits == same.memory.fits
        assert fix.seconds_per_sample == same.cycles_per_step / GC200.clock_hz / size


def test_those_that_fit_come_first_then_the_fastest():
    found = suggest_fixes(modelled(**LARGE), batch_size=65536)
    keys = [(not fix.fits, fix.seconds_per_sample) for fix in found]
    assert keys == sorted(keys)
    assert found[0].name == "float16"
    assert found[0].fits


def test_a_program_that_fits_needs_none():
    assert suggest_fixes(modelled(2, 64, 64), trace=pytest.fail) == ()


def test_the_least_number_of_ipus_that_fits():
    model = modelled(**LARGE, target=GC200.with_numbers(tile_bytes=400_000))
    (fix,) = (fix for fix in suggest_fixes(model) if set(fix.changes) == {"num_ipus"})
    count = fix.changes["num_ipus"]
    assert count > 2
    assert fix.fits
    assert not modelled(**LARGE, target=model.target, num_ipus=count // 2).memory.fits


def test_no_more_ipus_than_clearly_help():
    """Two layers of 4096 units: a third IPU would have the loss, and save some bytes of code."""
    tight = GC200.with_numbers(tile_bytes=100_000)
    models = {n: modelled(2, 64, 4096, target=tight, num_ipus=n) for n in (1, 2, 4)}
    needs = {n: model.memory.max_tile_bytes for n, model in models.items()}
    assert needs[1] - needs[2] > 10_000
    assert 0 < needs[2] - needs[4] < 1000
    (fix,) = (fix for fix in suggest_fixes(models[1]) if set(fix.changes) == {"num_ipus"})
    assert (fix.changes["num_ipus"], fix.max_tile_bytes, fix.fits) == (2, needs[2], False)


def test_what_helps_is_combined_if_nothing_else_fits():
    """On two IPUs of half precision, half of a tile's bytes is enough; alone neither is."""
    needs = {
        names: modelled(**LARGE, **changes).memory.max_tile_bytes
        for names, changes in {
            "float16": {"dtype": "float16"},
            "recomputation": {"recomputation": True},
            "both": {"dtype": "float16", "recomputation": True},
        }.items()
    }
    model = modelled(**LARGE, target=GC200.with_numbers(tile_bytes=needs["both"]))
    assert needs["both"] < min(needs["float16"], needs["recomputation"])
    found = suggest_fixes(dataclasses.replace(model))
    fitting = [fix for fix in found if fix.fits]
    assert fitting
    assert all(len(fix.changes) > 1 for fix in fitting if "num_ipus" not in fix.changes)
    assert found.index(fitting[-1]) < min(found.index(fix) for fix in found if not fix.fits)


def test_float16_that_cannot_fit_is_only_tried_with_others():
    """Half of the bytes is too many by itself, and less helps."""
    needed = modelled(**LARGE).memory.max_tile_bytes
    model = modelled(**LARGE, target=GC200.with_numbers(tile_bytes=int(0.49 * needed)))
    found = suggest_fixes(model)
    assert any(fix.fits for fix in found)
    assert all("dtype" not in fix.changes for fix in found)
    tight = modelled(**LARGE, target=GC200.with_numbers(tile_bytes=30_000))
    (best, *others) = suggest_fixes(tight)
    assert {"dtype", "recomputation"} < best.changes.keys()
    assert others
    assert all(fix.changes.keys() != {"dtype"} for fix in others)
    # If nothing else helps, it is all that there is to say.
    wide = modelled(1, 8, 8192, target=GC200.with_numbers(tile_bytes=30_000))
    assert [fix.name for fix in suggest_fixes(wide)] == ["float16"]


def test_no_more_stages_than_the_largest_layer_leaves_room_for():
    """Of five layers, the last is as large as twelve others: more stages than two are no help."""
    step = staged_step(stages=[0, 1, 2, 3, *[4] * 12], layers=16, batch=64, width=1024)
    target = GC200.with_numbers(tile_bytes=50_000)
    model = model_graph("step", step, target, CostOptions(recomputation=True))
    layered = LayeredStep(graph=step, num_layers=5)
    variants = Variants(in_dtype=lambda dtype: None, by_layer=lambda dtype: layered)
    programs = ChangedPrograms(model, variants)
    two, four = programs.to_more_ipus()
    assert (two["pipeline_stages"], four["pipeline_stages"]) == (2, 4)
    needed = [programs.with_changes(each).memory.max_tile_bytes for each in (two, four)]
    assert needed == pytest.approx([needed[0]] * 2, rel=0.01)
    assert programs.is_finest(two)
    judged = []
    found = suggest_fixes(model, variants=variants, is_close=judged.append)
    assert {fix.changes.get("pipeline_stages", 2) for fix in found} == {2}
    assert judged.count(needed[0]) == 1
    assert needed[1] not in judged or needed[1] == needed[0]


def test_what_is_chosen_already_is_not_suggested():
    model = modelled(162, 65536, 64, dtype="float16", recomputation=False, num_ipus=1)
    assert not model.memory.fits
    assert all("dtype" not in fix.changes for fix in suggest_fixes(model))
    tight = GC200.with_numbers(tile_bytes=60_000)
    again = modelled(81, 65536, 64, target=tight, recomputation=True, num_ipus=2)
    for fix in suggest_fixes(again):
        assert "recomputation" not in fix.changes
        assert fix.changes.get("num_ipus", 4) > 2


def test_the_batch_is_halved_until_it_fits():
    """Batches that are far too large by what is alive are not traced."""
    traced = []

    def trace(size):
        traced.append(size)
        return training_step(81, batch=size, width=64)

    model = modelled(**LARGE, target=GC200.with_numbers(tile_bytes=200_000))
    found = suggest_fixes(model, batch_size=65536, trace=trace)
    (fix,) = (fix for fix in found if "batch_size" in fix.changes)
    assert fix.fits
    assert 1 <= len(traced) <= 2
    assert fix.changes["batch_size"] == traced[-1] < 65536 // 2


def test_what_is_not_always_live_shrinks_with_the_batch():
    """100 bytes do not depend on it; 900 are of 8 samples, of which 250 bytes hold one."""
    memory = MemoryPlan(
        always_live_by_tile=np.array([100]),
        peak_by_tile=np.array([1000]),
        tile_bytes=250,
    )
    traced = []
    suggest_fixes(
        dataclasses.replace(modelled(1, 8, 8), memory=memory), batch_size=8, trace=traced.append
    )
    assert traced == [1]


def test_no_more_ipus_than_layers():
    """A fourth IPU of three layers would be empty, or have the loss alone."""
    model = modelled(3, 64, 64, target=GC200.with_numbers(tile_bytes=1000))
    assert changes.num_layers(model.graph) == 3
    assert changes.num_layers(forward_only(model.graph)) == 3
    for fix in suggest_fixes(model):
        assert fix.changes.get("num_ipus", 1) <= 2


def test_no_smaller_batch_if_the_code_finds_no_room():
    memory = MemoryPlan(
        peak_by_tile=np.array([200]), tile_bytes=250, code_bytes=90, code_region_bytes=80
    )
    model = dataclasses.replace(modelled(1, 8, 8), memory=memory)
    assert not model.memory.fits
    suggest_fixes(model, batch_size=8, trace=pytest.fail)


def test_a_fix_whose_code_finds_no_room_says_so():
    target = GC200.with_numbers(code_region_bytes=1000)
    model = modelled(3, 64, 64, target=target)
    assert not model.memory.code_fits
    fix = changes.Fix(
        changes={"num_ipus": 2},
        max_tile_bytes=900,
        fits=False,
        seconds_per_sample=1e-6,
        excess_code_bytes=1234,
    )
    assert str(fix) == (
        "the layers on 2 IPUs: does not fit either (1,234 bytes of code are too many), "
        "900 bytes on the fullest tile, 1.00 us per sample"
    )


def pipelined(step, *, tile_bytes=638_976, schedule=PipelineSchedule.Grouped, **options):
    target = GC200.with_numbers(tile_bytes=tile_bytes)
    pipeline = Pipeline(device_mapping=(0, 1), schedule=schedule)
    return model_graph("step", step, target, CostOptions(pipeline=pipeline, **options))


def finer(model):
    """The fix of more stages alone."""
    alone = {"stage_splits", "gradient_accumulation_count", "steps_per_execution"}
    (fix,) = (
        fix
        for fix in suggest_fixes(model)
        if "stage_splits" in fix.changes and fix.changes.keys() <= alone
    )
    return fix


# 16 layers of 64 MiB each: variables, their accumulators and gradients.
WIDE = {"layers": 16, "batch": 64, "width": 4096}


def test_more_stages_of_a_pipeline():
    """Eight layers of each stage do not fit, nor do four; two do, with 16 micro-batches for 8."""
    step = staged_step(stages=[0] * 8 + [1] * 8, **WIDE)
    counts = {"gradient_accumulation_count": 8, "steps_per_execution": 24}
    model = pipelined(step, tile_bytes=450_000, **counts)
    fix = finer(model)
    assert fix.changes == {
        "stage_splits": 4,
        "gradient_accumulation_count": 16,
        "steps_per_execution": 48,
    }
    assert fix.name == (
        "4 stages in place of each, 16 steps between weight updates and 48 steps per execution"
    )
    assert fix.fits
    same = pipelined(step, tile_bytes=450_000, **fix.changes)
    assert fix.max_tile_bytes == same.memory.max_tile_bytes
    assert fix.seconds_per_sample == same.cycles_per_step / GC200.clock_hz
    fewer = {**fix.changes, "stage_splits": 2}
    assert not pipelined(step, tile_bytes=450_000, **fewer).memory.fits


def test_more_stages_of_a_pipeline_in_inference():
    """Executions of six batches do not suit four stages, those of twelve do."""
    step = forward_only(staged_step(stages=[0] * 8 + [1] * 8, **WIDE))
    model = pipelined(step, tile_bytes=400_000, steps_per_execution=6)
    assert finer(model).changes == {"stage_splits": 2, "steps_per_execution": 12}


def test_stages_with_fewer_layers_than_that_are_not_cut():
    model = pipelined(
        staged_step(stages=[0, 0, 1, 1], layers=4, batch=64, width=8192),
        schedule=PipelineSchedule.Sequential,
        tile_bytes=500_000,
    )
    fix = finer(model)
    assert fix.changes == {"stage_splits": 2}
    assert not fix.fits
    (best, *_) = suggest_fixes(model)
    assert best.changes.keys() >= {"dtype", "stage_splits"}


def test_a_step_for_one_batch_size_only():
    found = suggest_fixes(modelled(**LARGE), batch_size=65536, trace=lambda size: None)
    assert all("batch_size" not in fix.changes for fix in found)


def test_no_batch_helps_if_the_variables_are_too_large():
    model = modelled(10, 8, 5120)
    found = suggest_fixes(model, batch_size=8, trace=pytest.fail)
    assert {fix.name for fix in found if fix.fits} == {"the layers on 2 IPUs", "float16"}
