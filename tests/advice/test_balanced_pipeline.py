"""Splits into stages against all splits there are, and what layers cost, by hand."""

from dataclasses import replace
from itertools import combinations

import pytest
from hlo_graphs import forward_only, staged_step
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.advice.balanced_pipeline import (
    USABLE_SHARE,
    LayerCost,
    LayeredPrograms,
    Pipelines,
    PlannedSplit,
    balance,
    balanced_pipeline,
    layer_costs,
    split_at,
)
from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.passes import READING_PASSES, after_passes
from ipu_keras.ir import LayeredStep
from ipu_keras.machine.target import TARGETS
from ipu_keras.settings.pipeline_choices import PipelineSchedule

GC200 = TARGETS["gc200"]
# 100 bytes that may be used.
TINY = GC200.with_numbers(num_tiles=1, tile_bytes=round(100 / USABLE_SHARE) + 1)


def by_layer(step):
    stages = {one.stage for one in step.ops if one.stage is not None}
    return LayeredStep(graph=step, num_layers=len(stages))


def programs(step, target=GC200):
    return LayeredPrograms(by_layer(step), target)


def pipelines(step, num_stages, *, target, options, **given):
    layered = programs(step, target)
    costs = layer_costs(layered, options)
    return Pipelines(layered, costs, num_stages, options=options, **given)


def planned_split(step, ends, **given):
    return pipelines(step, len(ends), **given).planned(ends)


def layers(*cycles, variables=0, activations=0, crossing=0):
    return tuple(LayerCost(one, variables, activations, crossing) for one in cycles)


def brute_force(costs, stashes, target, together=()):
    """The slowest stage of the best split that fits, or of the best that need the least memory."""
    places = [end for end in range(1, len(costs)) if not any(a < end <= b for a, b in together)]
    found = [
        split_at(costs, (*cuts, len(costs)), stashes, target)
        for cuts in combinations(places, len(stashes) - 1)
    ]
    least = max(found[0].capacity, min(max(split.num_bytes) for split in found))
    return min(split.slowest for split in found if max(split.num_bytes) <= least)


@given(
    numbers=st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(0, 9), st.integers(0, 5)),
        min_size=4,
        max_size=10,
    ),
    num_stages=st.integers(2, 4),
    run=st.none() | st.tuples(st.integers(0, 1), st.integers(1, 1)),
)
def test_no_split_is_better(numbers, num_stages, run):
    costs = tuple(LayerCost(*one) for one in numbers)
    stashes = tuple(range(2 * num_stages - 1, 0, -2))
    together = () if run is None or len(costs) - 1 < num_stages else (run,)
    found = balance(costs, stashes, TINY, together=together)
    assert found.slowest == brute_force(costs, stashes, TINY, together)
    assert list(found.ends) == sorted(set(found.ends))
    assert found.ends[-1] == len(costs)


def test_balanced_by_hand():
    found = balance(layers(1, 2, 3, 4, 5), (3, 1), GC200)
    assert (found.ends, found.cycles) == ((3, 5), (6, 9))


def test_memory_counts_what_each_stage_keeps():
    """Stage 0 keeps three micro-batches: it can have two layers, though three would be faster."""
    costs = layers(1, 1, 1, 3, variables=5, activations=14)
    found = balance(costs, (3, 1), TINY)
    assert (found.ends, found.fits) == ((2, 4), True)
    assert found.num_bytes == (2 * 5 + 3 * 2 * 14, 2 * 5 + 2 * 14)


def test_memory_comes_before_cycles_if_nothing_fits():
    """By cycles alone, the second stage would have one layer and the first 180 bytes."""
    costs = layers(1, 1, 1, 9, variables=60)
    found = balance(costs, (1, 1), TINY)
    assert (found.ends, found.fits) == ((2, 4), False)
    assert (found.num_bytes, found.slowest) == ((120, 120), 10)


def test_what_crosses_is_kept_where_it_arrives():
    found = split_at(layers(1, 1, crossing=7), (1, 2), (3, 1), GC200)
    assert found.num_bytes == (0, 7)


def test_what_cannot_fit_is_known_before_it_is_modelled():
    """A layer keeps 16 KiB for itself, and 32 MiB of activations, 22 KiB on a tile."""
    step = staged_step(3, batch=131_072, width=64)
    known = {}
    for tile_bytes in (80_000, 40_000, 10):
        target = GC200.with_numbers(tile_bytes=tile_bytes)
        for recomputation in (False, True):
            options = CostOptions(
                recomputation=recomputation, gradient_accumulation_count=2, steps_per_execution=2
            )
            given = {"schedule": PipelineSchedule.Sequential, "training": True}
            found = pipelines(step, 3, target=target, options=options, **given)
            known[tile_bytes, recomputation] = found.cannot_fit()
    assert known == {
        (80_000, False): False,
        (80_000, True): False,
        (40_000, False): True,
        (40_000, True): False,
        (10, False): True,
        (10, True): True,
    }


def test_a_split_is_read_as_if_its_stages_had_been_traced():
    """What no stage changes is written out once, for all splits."""
    step = staged_step(5)
    options = CostOptions(gradient_accumulation_count=2, steps_per_execution=2)
    given = {"schedule": PipelineSchedule.Grouped, "training": True}
    found = pipelines(step, 2, target=GC200, options=options, **given)
    for ends in ((2, 5), (4, 5)):
        staged = [
            op if op.stage is None else replace(op, stage=int(op.stage >= ends[0]))
            for op in step.ops
        ]
        read = found.read(ends)
        traced = replace(read, graph=replace(step, ops=tuple(staged)))
        assert read == after_passes(READING_PASSES, traced)


def test_the_finest_split_has_one_layer_where_it_is_fullest():
    split = PlannedSplit(ends=(1, 3), cycles=(1, 1), tile_bytes=(9, 8), capacity=5)
    assert split.is_finest
    assert not replace(split, tile_bytes=(8, 9)).is_finest


def test_if_nothing_fits_the_fastest_counts():
    found = balance(layers(1, 1, 1, variables=1000), (1, 1), TINY)
    assert (found.ends, found.fits) == ((1, 3), False)


def test_more_stages_than_layers():
    with pytest.raises(ValueError, match=r"Received: 2 of them, num_ipus=3"):
        balance(layers(1, 1, 1), (1, 1, 1), GC200, together=[(0, 1)])


def test_costs_of_layers():
    options = CostOptions(gradient_accumulation_count=2, steps_per_execution=2)
    found = layer_costs(programs(staged_step(3)), options)
    tensor = 4 * 64 * 64
    # A weight and its accumulator.
    assert [one.variable_bytes for one in found] == [2 * tensor] * 3
    # x and h0; h1; h2 with the gradient.
    assert [one.activation_bytes for one in found] == [2 * tensor, tensor, tensor]
    assert [one.crossing_bytes for one in found] == [tensor, tensor, 0]
    assert all(one.cycles > 0 for one in found)
    forward = layer_costs(programs(forward_only(staged_step(3))), CostOptions())
    assert all(one.cycles < other.cycles for one, other in zip(forward, found, strict=True))
    assert [one.activation_bytes for one in forward] == [0, 0, 0]


@pytest.mark.parametrize(
    ("schedule", "training", "stashes"),
    [
        (PipelineSchedule.Grouped, True, (3, 1)),
        (PipelineSchedule.Interleaved, True, (2, 1)),
        (PipelineSchedule.Sequential, True, (1, 1)),
        (PipelineSchedule.Grouped, False, (0, 0)),
    ],
)
def test_before_and_after(schedule, training, stashes):
    """The even split beside the best one; both count what stages of that schedule keep."""
    options = CostOptions(gradient_accumulation_count=2, steps_per_execution=2)
    options = options if training else CostOptions()
    step = staged_step(5) if training else forward_only(staged_step(5))
    given = {"target": GC200, "schedule": schedule, "training": training, "options": options}
    found = balanced_pipeline(by_layer(step), 2, **given)
    assert found.layers == layer_costs(programs(step), options)
    assert found.before == planned_split(step, (2, 5), **given)
    best = balance(found.layers, stashes, GC200)
    assert found.after == planned_split(step, best.ends, **given)
    assert found.after.stages == (0, 0, 0, 1, 1)


def test_a_split_that_does_not_fit_as_a_whole_leaves_more_room():
    """By costs of layers the first split fits; code and temporaries are not among those."""
    step = staged_step(5, batch=2048, width=128)
    target = GC200.with_numbers(tile_bytes=40_500)
    options = CostOptions(gradient_accumulation_count=2, steps_per_execution=2)
    given = {
        "target": target,
        "schedule": PipelineSchedule.Grouped,
        "training": True,
        "options": options,
    }
    first = balance(layer_costs(programs(step, target), options), (3, 1), target)
    assert first.fits
    assert not planned_split(step, first.ends, **given).fits
    found = balanced_pipeline(by_layer(step), 2, **given)
    assert found.after.fits
    assert (first.ends, found.after.ends) == ((3, 5), (2, 5))
    # Where none fits, it is the one that lacks the least.
    given["target"] = GC200.with_numbers(tile_bytes=30_000)
    assert not balanced_pipeline(by_layer(step), 2, **given).after.fits


def test_what_values_are_called_changes_nothing():
    names = {"h0": "h0@ipu1", "w1": "w1/accumulator", "dw0": "dw0@ipu0/accumulator"}
    step = staged_step(3)
    ops = (
        replace(
            one,
            name=names.get(one.name, one.name),
            inputs=tuple(names.get(value, value) for value in one.inputs),
        )
        for one in step.ops
    )
    found = [
        layer_costs(programs(each), CostOptions()) for each in (step, replace(step, ops=tuple(ops)))
    ]
    assert found[0] == found[1]
