"""What makes programs wait less, against the programs that have those changes."""

import pytest
from hlo_graphs import argument, graph, op, staged_step

from ipu_keras.advice.waiting import less_waiting, with_infeed_in, with_more_micro_batches
from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.passes import model_graph
from ipu_keras.machine.target import TARGETS
from ipu_keras.program import Pipeline

GC200 = TARGETS["gc200"]
FED = graph(argument("x", 1472, 1024), op("a", "exponential", (1472, 1024), "x", layer="first"))


def modelled(step=FED, target=GC200, **options):
    return model_graph("step", step, target, CostOptions(**options))


def test_each_change_is_the_program_with_it():
    model = modelled()
    found = {next(iter(changes)): (changes, one) for changes, one in less_waiting(model, 0.05)}
    assert set(found) == {"steps_per_execution", "infeed_dtype"}
    changes, after = found["steps_per_execution"]
    assert after.cycles_per_step == modelled(**changes).cycles_per_step
    # The seed's copy is shared by 32 steps.
    saved = model.cycles_per_step - after.cycles_per_step
    assert saved == pytest.approx(model.seed_cycles * 31 / 32, abs=1)
    _, halves = found["infeed_dtype"]
    assert halves.cycles_per_step == modelled(with_infeed_in(FED, "float16")).cycles_per_step


BUSY = graph(
    argument("x", 1472, 1024), op("a", "sort", (1472, 1024), "x", layer="a", dimensions=(1,))
)


def test_tiles_for_input_and_output_are_as_many_as_hold_the_data():
    model = modelled(BUSY, steps_per_execution=32)
    (changes, after), *_ = [each for each in less_waiting(model, 0.0) if "num_io_tiles" in each[0]]
    assert changes == {"num_io_tiles": 32, "place_ops_on_io_tiles": True}
    target = GC200.without_tiles(32)
    same = modelled(BUSY, target=target, steps_per_execution=32, **changes)
    assert after.cycles_per_step == same.cycles_per_step


def test_what_would_no_longer_fit_is_left_out():
    needed = modelled(BUSY, steps_per_execution=32).memory.max_tile_bytes
    full = modelled(BUSY, GC200.with_numbers(tile_bytes=needed), steps_per_execution=32)
    assert full.memory.fits
    # Data in float16 needs 24 bytes more, as it is converted.
    assert list(less_waiting(full, 0.0)) == []


def test_what_saves_too_little_is_left_out():
    assert list(less_waiting(modelled(steps_per_execution=32), 0.9)) == []


def test_more_micro_batches():
    options = {
        "gradient_accumulation_count": 8,
        "steps_per_execution": 24,
        "pipeline": Pipeline(device_mapping=(0, 1, 2, 3)),
    }
    model = modelled(staged_step(4), **options)
    changes, after = with_more_micro_batches(model, 16)
    assert changes == {"gradient_accumulation_count": 16, "steps_per_execution": 48}
    same = modelled(staged_step(4), **{**options, **changes})
    assert after.cycles_per_step == same.cycles_per_step < model.cycles_per_step
