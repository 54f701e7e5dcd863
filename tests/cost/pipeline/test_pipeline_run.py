"""Pipelines through all passes of the cost model, on graphs built by hand."""

import pytest
from hlo_graphs import argument, forward_only, graph, op, staged_step

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.pipeline.depth import depth_message
from ipu_keras.cost.pipeline.schedule import Activity
from ipu_keras.cost.tile.exchange import link_seconds
from ipu_keras.machine.target import TARGETS
from ipu_keras.program import Pipeline
from ipu_keras.settings.pipeline_choices import (
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
    SelectionOrder,
)
from ipu_keras.store.canonical_json import from_json, to_json

GC200 = TARGETS["gc200"]


def model(
    layers=2,
    count=8,
    step=None,
    target=GC200,
    recomputation=False,
    selection_order=SelectionOrder.AUTO,
    **options,
):
    pipeline = Pipeline(**{"device_mapping": tuple(range(layers)), **options})
    return model_graph(
        "step",
        step or staged_step(layers),
        target,
        CostOptions(
            gradient_accumulation_count=count,
            steps_per_execution=count,
            recomputation=recomputation,
            pipeline=pipeline,
            selection_order=selection_order,
        ),
    )


@pytest.mark.parametrize(
    ("order", "hops"),
    [
        # IPUs 0 and 1 are a pair, as are 2 and 3; 0 and 2 are neighbours, as are 1 and 3.
        (SelectionOrder.ZIGZAG, {(0, 1): 1, (1, 2): 2, (2, 3): 1}),
        (SelectionOrder.SNAKE, {(0, 1): 1, (1, 2): 1, (2, 3): 1}),
        (SelectionOrder.AUTO, {(0, 1): 1, (1, 2): 1, (2, 3): 1}),
        (SelectionOrder.HOOF, {(0, 1): 1, (1, 2): 1, (2, 3): 1}),
    ],
)
def test_links_between_stages(order, hops):
    """Stages 1 and 2 are neighbours unless IPUs are taken by number."""
    off_board = {
        SelectionOrder.ZIGZAG: {(1, 2)},
        SelectionOrder.HOOF: {(0, 1), (2, 3)},
    }.get(order, {(1, 2)})
    found = model(4, selection_order=order)
    values = found.program.values
    seen = set()
    for one, cost in zip(found.program.compute_sets, found.costs, strict=True):
        if one.family != "inter-IPU copy" or one.backward or one.weight_update:
            continue
        way = values[one.reads[0]].ipu, one.ipu
        size = sum(values[name].spec.nbytes for name in one.reads)
        seconds = link_seconds(GC200, size, hops=hops[way], off_board=way in off_board)
        # What tiles wait for one another, and how long, is as without links.
        rest = cost.cycles - seconds * GC200.clock_hz
        assert rest == pytest.approx(600 + 3000, abs=1)
        assert cost.detail == f"from IPU {way[0]} to IPU {way[1]}"
        seen.add(way)
    assert seen == set(hops)


def cycles(found, name):
    pairs = zip(found.program.compute_sets, found.costs, strict=True)
    return next(cost.cycles for one, cost in pairs if one.name == name)


def test_a_step_has_its_share_of_the_pipeline():
    found = model()
    run = found.pipeline_run
    assert run.cycles == run.timing().cycles
    assert found.compute_cycles == -(-run.cycles // 8)
    # Two IPUs at once, but for filling, draining and waiting.
    total = sum(cost.cycles for cost in found.costs)
    assert total / 2 < found.compute_cycles < total


def test_time_of_a_grouped_pipeline_by_hand():
    """N + 1 steps of each direction; stage 0 or 1 sets the pace, or the only one that runs."""
    found = model(count=8)
    by_stage = {}
    for one, cost in zip(found.program.compute_sets, found.costs, strict=True):
        if one.family != "inter-IPU copy" and not one.weight_update:
            key = one.stage, one.backward
            by_stage[key] = by_stage.get(key, 0) + cost.cycles
    f0, f1, b1, b0 = (by_stage[key] for key in ((0, False), (1, False), (1, True), (0, True)))
    forward = f0 + 7 * max(f0, f1) + f1
    backward = b1 + 7 * max(b0, b1) + b0
    copies = cycles(found, "stage 0 forward to IPU 1") + cycles(found, "stage 1 backward to IPU 0")
    update = max(cycles(found, f"u{k}") + cycles(found, f"dw{k}/accumulator/zero") for k in (0, 1))
    assert found.pipeline_run.cycles == forward + backward + 8 * copies + update
    assert found.pipeline_run.stage_cycles == (f0 + b0, f1 + b1)
    assert found.pipeline_run.slowest_stage == (0 if f0 + b0 >= f1 + b1 else 1)


def test_sequential_takes_as_long_as_all_parts():
    found = model(schedule=PipelineSchedule.Sequential, count=3)
    pairs = zip(found.program.compute_sets, found.costs, strict=True)
    batches = sum(cost.cycles for one, cost in pairs if not one.weight_update)
    update = max(cycles(found, f"u{k}") + cycles(found, f"dw{k}/accumulator/zero") for k in (0, 1))
    assert found.pipeline_run.cycles == 3 * batches + update
    assert found.memory.bytes_by_category.keys().isdisjoint({"stashes"})


def test_stashes_take_memory_by_pencil_and_paper():
    """x and h0 of 16 KiB, of which two more are kept of each."""
    found = model()
    assert found.memory.bytes_by_category["stashes"] == 2 * 2 * 4 * 64 * 64
    without = model(schedule=PipelineSchedule.Sequential)
    grown = found.memory.always_live_by_tile.sum() - without.memory.always_live_by_tile.sum()
    assert grown >= 2 * 2 * 4 * 64 * 64


def test_recomputation_needs_less_memory_and_more_time():
    keeps, again = (model(recomputation=flag) for flag in (False, True))
    assert again.memory.bytes_by_category["stashes"] == 2 * 4 * 64 * 64
    assert again.pipeline_run.cycles > keeps.pipeline_run.cycles
    works = {i.part.work for step in again.pipeline_run.steps() for i in step.instructions}
    assert Activity.RECOMPUTE in works
    assert again.pipeline_run.plan.recomputed == (0,)


def test_inference_counts_the_steps_of_an_execution():
    options = CostOptions(steps_per_execution=6, pipeline=Pipeline(device_mapping=(0, 1)))
    found = model_graph("step", forward_only(staged_step(2)), GC200, options)
    assert found.pipeline_run.plan.num_micro_batches == 6
    assert not found.pipeline_run.plan.training
    assert found.compute_cycles == -(-found.pipeline_run.cycles // 6)


def test_numbers_of_batches_that_do_not_suit():
    with pytest.raises(ValueError) as error:
        model(count=6)
    assert str(error.value) == depth_message(4, 6)


def test_a_stage_has_less_memory_for_temporaries():
    small = PipelineStageOptions(matmul_options={"availableMemoryProportion": "0.01"})
    target = GC200.with_numbers(tile_bytes=60_000)
    large, tight = (
        model(
            target=target,
            step=staged_step(2, batch=512, width=512),
            forward_options=(PipelineStageOptions(), option),
        )
        for option in (PipelineStageOptions(), small)
    )
    temporary = [
        {o.name: c.temporary_bytes for o, c in zip(m.program.compute_sets, m.costs, strict=True)}
        for m in (large, tight)
    ]
    assert temporary[0]["z0"] == temporary[1]["z0"]
    assert temporary[0]["z1"] > temporary[1]["z1"]
    assert temporary[0]["dw1"] == temporary[1]["dw1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"pipeline": Pipeline(device_mapping=(0, 1)), "num_ipus": 2},
            "its `device_mapping` says where they are. Received: num_ipus=2",
        ),
        (
            {
                "pipeline": Pipeline(
                    device_mapping=(0, 1),
                    weight_update_options=PipelineStageOptions(
                        matmul_options={"availableMemoryProportion": "much"}
                    ),
                )
            },
            "`availableMemoryProportion` must be from 0 to 1, .* Received: 'much'",
        ),
        (
            {
                "pipeline": Pipeline(
                    device_mapping=(0, 1),
                    schedule=PipelineSchedule.Sequential,
                    recomputation_mode=RecomputationMode.RecomputeThenBackpropagate,
                )
            },
            "The schedule 'Sequential' supports .*=RecomputeThenBackpropagate",
        ),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        CostOptions(**options)


def test_a_pipelined_model_can_be_kept_in_a_file():
    found = model(recomputation=True)
    again = from_json(ModelledProgram, to_json(found))
    assert again.pipeline_run == found.pipeline_run
    assert again.program == found.program
    assert to_json(again) == to_json(found)


def test_the_ipus_of_a_replica():
    found = model(layers=3, count=6)
    assert found.options.ipus_per_replica == 4
    assert found.memory.num_ipus == 4
    assert found.memory.peak_by_tile.shape == (4 * GC200.num_tiles,)


def test_a_step_without_stages_cannot_be_a_pipeline():
    step = graph(argument("x", 8), op("y", "negate", (8,), "x"))
    with pytest.raises(ValueError, match="No operation is in a stage"):
        model(step=step)
