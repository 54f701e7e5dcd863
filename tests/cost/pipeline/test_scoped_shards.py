"""Where compute sets are that scopes say nothing of, on programs built by hand."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hlo_graphs import argument, graph, op, training_step, variable

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.liveness import schedule
from ipu_keras.cost.flat.memory import MemoryPlan
from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.pipeline.scoped_shards import (
    num_ipus_of_shards,
    parts_of_shards,
    with_shards,
    without_shards,
)
from ipu_keras.machine.target import TARGETS

GC200 = TARGETS["gc200"]


def on(shard, one):
    return replace(one, shard=shard)


def found_in(*ops, results=()):
    program = flatten(graph(*ops, results=results))
    parts = parts_of_shards(program)
    names = [one.name for one in program.compute_sets]
    return dict(zip(names, parts.by_position, strict=True)), dict(parts.by_value)


def test_work_is_where_its_largest_operand_is():
    sets, values = found_in(
        argument("x", 4),
        variable("w", 8),
        on(1, op("y", "sort", (4,), "x", dimensions=(0,))),
        on(2, op("z", "sort", (8,), "w", dimensions=(0,))),
        op("both", "concatenate", (12,), "y", "z", dimensions=(0,)),
        op("last", "sort", (12,), "both", dimensions=(0,)),
    )
    assert sets == {"y": 1, "z": 2, "both": 2, "last": 2}
    assert values == {"x": 1, "w": 2, **sets}


def test_work_without_a_place_is_where_its_result_is_used():
    sets, values = found_in(
        argument("x", 4),
        argument("unused", 4),
        op("y", "sort", (4,), "x", dimensions=(0,)),
        op("z", "negate", (4,), "y"),
        on(3, op("last", "sort", (4,), "z", dimensions=(0,))),
    )
    assert sets == {"y": 3, "z": 3, "last": 3}
    assert (values["x"], values["unused"]) == (3, 0)


def test_an_update_is_where_its_variable_is():
    sets, values = found_in(
        argument("g", 9),
        variable("w", 9, result=1),
        on(1, op("y", "sort", (9,), "w", dimensions=(0,))),
        on(0, op("big", "sort", (9,), "g", dimensions=(0,))),
        op("new", "subtract", (9,), "big", "w"),
        results=("y", "new"),
    )
    assert sets["new"] == 1
    assert values["w"] == values["new"] == 1


def test_shards_of_a_training_step():
    """The first layer is on IPU 1, the second on IPU 0: no even cut would do that."""
    step = training_step(2)
    names = {"z0": 1, "h0": 1, "dz0": 1, "dw0": 1, "z1": 0, "h1": 0, "loss": 0, "dw1": 0}
    ops = tuple(replace(one, shard=names.get(one.name)) for one in step.ops)
    step = replace(step, ops=ops)
    assert num_ipus_of_shards(step) == 2
    found = model_graph("step", step, GC200, CostOptions(num_ipus=2))
    ipus = {one.ops[-1].name: one.ipu for one in found.program.compute_sets}
    assert {name: ipus[name] for name in ("dw0", "u0", "dw1", "u1")} == {
        "dw0": 1,
        "u0": 1,
        "dw1": 0,
        "u1": 0,
    }
    homes = {name: found.program.values[name].ipu for name in ("w0", "w1")}
    assert homes == {"w0": 1, "w1": 0}
    # Of those that there are no IPUs for nothing is left, byte for byte.
    alone = model_graph("step", step, GC200, CostOptions())
    unsharded = model_graph("step", training_step(2), GC200, CostOptions())
    assert alone.costs == unsharded.costs
    for field in fields(MemoryPlan):
        mine, other = getattr(alone.memory, field.name), getattr(unsharded.memory, field.name)
        np.testing.assert_equal(mine, other, field.name)


def test_what_is_on_two_ipus_is_not_fused():
    step = graph(
        argument("x", 9),
        on(0, op("y", "negate", (9,), "x")),
        on(1, op("z", "sine", (9,), "y")),
    )
    fused = model_graph("step", step, GC200, CostOptions()).program.compute_sets
    apart = model_graph("step", step, GC200, CostOptions(num_ipus=2)).program.compute_sets
    assert [one.name for one in fused] == ["z"]
    assert [(one.name, one.ipu) for one in apart] == [("y", 0), ("y@ipu1", 1), ("z", 1)]


def test_programs_without_shards_stay_as_they_are():
    program = schedule(flatten(training_step(2)))
    assert with_shards(program) is program
    assert without_shards(program) is program


@pytest.mark.parametrize(("last", "num_ipus"), [(None, 1), (0, 1), (1, 2), (2, 4), (3, 4), (4, 8)])
def test_ipus_of_shards(last, num_ipus):
    assert num_ipus_of_shards(graph(on(last, op("y", "iota", (3,))))) == num_ipus
