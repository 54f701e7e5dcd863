"""What reports advise, and that the lines of it can be written."""

import ast
import inspect
from dataclasses import replace

import keras
import pytest
import tensorflow as tf
from hlo_graphs import argument, graph, op, staged_step
from html_reports import GC200, report

import ipu_keras
from ipu_keras.advice.changes import Fix
from ipu_keras.config import IPUConfig
from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.keras.extensions.model_extension import ModelExtension
from ipu_keras.program import Pipeline
from ipu_keras.program.compilation_history import Recompilation
from ipu_keras.report.next_steps import lines_of, next_steps
from ipu_keras.settings.pipeline_choices import PipelineSchedule

CHANGES = {
    "available_memory_proportion": 0.3,
    "batch_size": 8,
    "dtype": "float16",
    "gradient_accumulation_count": 4,
    "infeed_dtype": "float16",
    "num_io_tiles": 32,
    "num_ipus": 2,
    "offload_activations": True,
    "offload_weight_update_variables": True,
    "pipeline_stages": 2,
    "place_ops_on_io_tiles": True,
    "recomputation": True,
    "stage_splits": 2,
    "steps_per_execution": 64,
}


IN_FOUR_STAGES = CostOptions(pipeline=Pipeline(device_mapping=(0, 1, 2, 3)))


def findings(found):
    return [step.finding for step in next_steps(found)]


def test_lines_of_a_configuration_run():
    config = IPUConfig()
    for name in (
        "available_memory_proportion",
        "num_io_tiles",
        "place_ops_on_io_tiles",
        "recomputation",
    ):
        for line in lines_of({name: CHANGES[name]}):
            exec(line, {"config": config})
    assert config.allow_recompute is True
    for options in (config.convolutions, config.matmuls):
        assert options.poplar_options == {"availableMemoryProportion": "0.3"}


def test_lines_call_what_there_is():
    """With arguments that it has."""
    owners = {
        "dataset": tf.data.Dataset,
        "ipu_keras": ipu_keras,
        "keras.config": keras.config,
        "keras.tree": keras.tree,
        "tf": tf,
    }
    checked = []
    for line in lines_of(CHANGES, IN_FOUR_STAGES):
        for call in ast.walk(ast.parse(line)):
            if not isinstance(call, ast.Call):
                continue
            name = ast.unparse(call.func)
            owner, _, attribute = name.rpartition(".")
            extended = hasattr(ModelExtension, attribute)
            function = getattr(
                owners.get(owner) or (ModelExtension if extended else keras.Model), attribute
            )
            parameters = inspect.signature(function).parameters
            free = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
            assert free or {word.arg for word in call.keywords} <= set(parameters), name
            checked.append(attribute)
    assert set(checked) == {
        "fit",
        "set_dtype_policy",
        "set_pipeline_stage_assignment",
        "suggest_pipeline",
        "set_pipelining_options",
        "map",
        "map_structure",
        "cast",
        "compile",
    }


def test_more_stages_are_counted_from_those_that_were_given():
    ipus, stages = lines_of({"stage_splits": 2}, IN_FOUR_STAGES)
    assert ipus == "config.auto_select_ipus = 8"
    assert "suggest_pipeline(model, 8, *specs)" in stages


def test_stages_keep_the_schedule_and_the_replicas_that_there_are():
    pipeline = Pipeline(device_mapping=(0, 1), schedule=PipelineSchedule.Sequential)
    options = CostOptions(pipeline=pipeline, num_replicas=2)
    assert lines_of({"pipeline_stages": 3, "gradient_accumulation_count": 6}, options) == (
        "config.auto_select_ipus = 8",
        "model.set_pipeline_stage_assignment(ipu_keras.suggest_pipeline(model, 3, *specs, "
        "schedule=PipelineSchedule.Sequential))",
        "model.set_pipelining_options(..., gradient_accumulation_steps_per_replica=6)",
    )


def test_options_of_a_pipeline_are_set_in_one_line():
    """A second call would be as good, but `...` would stand for the first one in it."""
    away = {"offload_activations": True, "offload_weight_update_variables": True}
    offloaded = "offload_activations=True, offload_weight_update_variables=True"
    assert lines_of(away, IN_FOUR_STAGES) == (f"model.set_pipelining_options(..., {offloaded})",)
    steps = "gradient_accumulation_steps_per_replica=4"
    assert lines_of({"gradient_accumulation_count": 4, **away}, IN_FOUR_STAGES) == (
        f"model.set_pipelining_options(..., {steps}, {offloaded})",
    )


def test_fixes_come_first_in_their_order():
    fixes = (
        Fix(changes={"dtype": "float16"}, max_tile_bytes=900, fits=True, seconds_per_sample=4e-8),
        Fix(changes={"num_ipus": 2}, max_tile_bytes=1001, fits=False, seconds_per_sample=2e-6),
    )
    lacks = replace(report(target=GC200.with_numbers(tile_bytes=1000)), fixes=fixes)
    first, second, *_ = next_steps(lacks)
    assert first.finding == "Float16: fits, 900 bytes on the fullest tile, 40.0 ns per sample"
    assert first.lines == ('keras.config.set_dtype_policy("float16")',)
    assert second.finding == (
        "The layers on 2 IPUs: does not fit either, 1,001 bytes on the fullest tile, 2.00 us per "
        "sample"
    )
    # Speed is of no use before it fits.
    assert not any("float32" in one or "most cycles" in one for one in findings(lacks))
    asked = findings(replace(lacks, fixes=()))
    assert asked[0].startswith("It does not fit, and no change is known that would help")


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({}, ("model.compile(..., steps_per_execution=32)",)),
        (
            {"gradient_accumulation_count": 2, "steps_per_execution": 2},
            ("model.compile(..., steps_per_execution=64)",),
        ),
        (
            {"steps_per_execution": 32},
            ("config.io_tiles.num_io_tiles = 32", "config.io_tiles.place_ops_on_io_tiles = True"),
        ),
    ],
)
def test_a_program_that_waits_for_the_host(options, lines):
    found = report(**options)
    assert found.bound == "host"
    step = next_steps(found)[0]
    assert step.lines == lines
    changed = {
        "model.compile(..., steps_per_execution=32)": {"steps_per_execution": 32},
        "model.compile(..., steps_per_execution=64)": {"steps_per_execution": 64},
    }.get(lines[0], {"num_io_tiles": 32, "place_ops_on_io_tiles": True})
    target = GC200.without_tiles(changed.get("num_io_tiles", 0))
    after = report(target=target, **{**options, **changed})
    assert step.finding.endswith(
        f"a step takes {after.cycles_per_step:,} cycles in place of {found.cycles_per_step:,}"
    )


def test_a_pipeline_that_waits_for_itself():
    pipeline = Pipeline(device_mapping=(0, 1, 2, 3))

    def with_steps(count):
        return report(
            staged_step(4),
            gradient_accumulation_count=count,
            steps_per_execution=16,
            pipeline=pipeline,
            synthetic_infeed=True,
            synthetic_outfeed=True,
        )

    found = with_steps(8)
    waits = [one for one in next_steps(found) if "fills and drains" in one.finding]
    assert found.pipeline.bubble_share > 0.2
    (more,) = [one.lines for one in waits]
    assert more == (
        "model.set_pipelining_options(..., gradient_accumulation_steps_per_replica=16)",
    )
    after = with_steps(16)
    assert waits[0].finding.endswith(
        f"a step takes {after.cycles_per_step:,} cycles in place of {found.cycles_per_step:,}"
    )
    stages = list(found.pipeline.stages)
    assert max(one.cycles for one in stages) < 1.25 * sum(one.cycles for one in stages) / 4


def test_layers_that_wait_for_each_other_and_shapes_that_change():
    two_layers = graph(
        argument("x", 1472, 64),
        op("a", "sort", (1472, 64), "x", layer="first", dimensions=(0,)),
        op("b", "sort", (1472, 64), "a", layer="second", dimensions=(0,)),
    )
    found = report(two_layers, num_ipus=2)
    again = replace(found, recompilations=(Recompilation("step", ("x is other",)),) * 2)
    said = findings(again)
    assert any(one.startswith("The layers are on 2 IPUs, of which one computes") for one in said)
    assert any(one.startswith("It was compiled again 2 times") for one in said)
    assert not any("compiled again" in one for one in findings(found))


def test_what_takes_the_longest():
    found = report()
    layer = found.layers[0]
    step = found.next_steps[-1]
    assert f"The layer {layer.name} takes the most cycles" in step.finding
    rows = eval(step.lines[0], {"report": found})
    assert sum(row.cycles for row in rows) == layer.cycles
