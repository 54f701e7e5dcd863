"""Graphs at another precision, built by hand."""

import doctest

import pytest
from hlo_graphs import argument, graph, loop, op, training_step, variable

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.rewrites import precision
from ipu_keras.cost.rewrites.precision import with_precision
from ipu_keras.machine.target import TARGETS

GC200 = TARGETS["gc200"]


def dtypes(changed):
    return {one.name: one.outputs[0].dtype for one in changed.walk()}


def test_example_in_the_docstring():
    assert doctest.testmod(precision).failed == 0


def test_only_what_tiles_compute_with_changes():
    whole = graph(
        argument("x", 3),
        variable("w", 3),
        op("count", "parameter", (), dtype="int32", role="variable"),
        op("half", "convert", (3,), "x", dtype="float16"),
        op("wide", "convert", (3,), "w", dtype="float64"),
        op("mask", "compare", (3,), "x", "w", dtype="bool"),
    )
    expected = {
        "x": "float16",
        "w": "float16",
        "count": "int32",
        "half": "float16",
        "wide": "float64",
        "mask": "bool",
    }
    assert dtypes(with_precision(whole, "float16")) == expected
    assert dtypes(with_precision(whole, "float32"))["half"] == "float32"
    assert whole.ops[0].outputs[0].dtype == "float32"


def test_bodies_of_loops_change_too():
    changed = with_precision(loop(3), "float16")
    assert set(dtypes(changed).values()) == {"float16"}
    assert {output.dtype for one in changed.walk() for output in one.outputs} == {"float16"}


def test_the_same_precision_changes_nothing():
    assert with_precision(training_step(2), "float32") == training_step(2)


def test_a_model_of_half_the_bytes():
    """Constants included, whose names say their type; conversions to the same type are gone."""
    step = training_step(4)
    whole, half = (
        model_graph("step", step, GC200, CostOptions(dtype=d)) for d in (None, "float16")
    )
    sizes = [one.memory.bytes_by_category["variables"] for one in (whole, half)]
    assert sizes == [4 * 4 * 64 * 64, 4 * 2 * 64 * 64]
    assert "float16(0.0)" in half.program.values
    assert half.memory.max_tile_bytes < whole.memory.max_tile_bytes
    assert half.cycles_per_step < whole.cycles_per_step


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", ""])
def test_a_precision_that_tiles_lack(dtype):
    with pytest.raises(ValueError, match=rf"one of float16, float32, .* Received: dtype='{dtype}'"):
        CostOptions(dtype=dtype)
