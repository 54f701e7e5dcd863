"""Who costs which family."""

import pytest
from graph_costs import GC200, LAUNCH, TILES, costs, program_costs
from hlo_graphs import argument, graph, op

from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.fusion import fuse
from ipu_keras.cost.flat.in_place import share_memory
from ipu_keras.cost.products.planning_options import product_options
from ipu_keras.cost.vertices.context import CostContext
from ipu_keras.cost.vertices.families import cost_of
from ipu_keras.machine.target import Confidence

WINDOWS = {
    "operation": "maximum",
    "window_size": (2,),
    "window_stride": (2,),
    "base_dilation": (1,),
    "window_dilation": (1,),
}


@pytest.mark.parametrize(
    ("kind", "attributes", "shape", "confidence"),
    [
        ("slice", {"start": (0,)}, (4096,), Confidence.DERIVED),
        ("reverse", {"dimensions": (0,)}, (8192,), Confidence.DERIVED),
        ("sort", {"dimensions": (0,)}, (8192,), Confidence.GUESSED),
        ("fft", {}, (8192,), Confidence.GUESSED),
        ("random", {"distribution": "uniform"}, (8192,), Confidence.DERIVED),
        ("reduce-window", WINDOWS, (4096,), Confidence.DERIVED),
    ],
)
def test_other_families(kind, attributes, shape, confidence):
    found = costs(argument("x", 8192), op("y", kind, shape, "x", **attributes))["y"]
    assert found.compute_cycles > LAUNCH
    assert found.confidence is confidence
    # All but the random numbers are made of what other tiles have.
    assert (found.exchange_bytes > 0) == (kind != "random")


def test_costs_do_not_depend_on_what_was_costed_before():
    """But on the program: no element moves to those that lie where others do."""
    ops = graph(
        argument("x", TILES, 64),
        argument("part", 64),
        argument("at"),
        op("t", "transpose", (64, TILES), "x", dimensions=(1, 0)),
        op("a", "tanh", (64, TILES), "t"),
        op("b", "dynamic-update-slice", (64, TILES), "a", "part", "at"),
        op("c", "add", (64, TILES), "b", "t"),
        results=("a", "b", "c"),
    )
    program = share_memory(fuse(flatten(ops)))
    found = program_costs(program)
    assert {name: cost.exchange_bytes for name, cost in found.items()} == {
        "t": 256,
        "a": 0,
        "b": 0,
        "c": 0,
    }
    context = CostContext.of(program, GC200, product_options=product_options(0.6))
    backwards = [(one.name, cost_of(one, context)) for one in reversed(program.compute_sets)]
    assert dict(backwards) == found
