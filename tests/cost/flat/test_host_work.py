"""Work of the host within a program, on graphs built by hand."""

import math
from dataclasses import replace

import pytest
from hlo_graphs import argument, graph, inner_parameter, op, poplar_call

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.tile.exchange import host_seconds
from ipu_keras.machine.target import TARGETS

GC200 = TARGETS["gc200"]


def modelled(family):
    body = graph(inner_parameter("given", 64), op("made", "sort", (64,), "given", dimensions=(0,)))
    step = graph(
        argument("x", 64),
        poplar_call("y", family, "x", shapes=((64,),), body="body"),
        op("z", "sort", (64,), "y", dimensions=(0,)),
        functions={"body": body},
    )
    return model_graph("step", step, GC200, CostOptions())


@pytest.mark.parametrize("family", ["OutsideCompilation", "CpuUserOperation"])
def test_copies_are_what_it_costs(family):
    found = modelled(family)
    one, _ = found.program.compute_sets
    assert (one.body, one.flops, one.ops[-1].kind) == (None, 0, "host-copy")
    seconds = 2 * host_seconds(GC200, 256, num_ipus=1)
    assert found.costs[0].cycles == math.ceil(seconds * GC200.clock_hz)
    assert found.costs[0].detail == "256 bytes to the host, 256 from it"


@pytest.mark.parametrize("returns", [(), ("given",)])
def test_what_only_prints_is_sent(returns):
    printed = replace(op("print", "PrintV2", (), "given", not_lowered=True), outputs=())
    body = replace(graph(inner_parameter("given", 64), printed), results=returns)
    call = poplar_call("y", "OutsideCompilation", "x", shapes=((64,),) * len(returns), body="body")
    step = graph(argument("x", 64), call, results=("x",), functions={"body": body})
    found = model_graph("step", step, GC200, CostOptions())
    (cost,) = found.costs
    assert cost.detail == "256 bytes to the host, 0 from it"
    assert found.program.compute_sets[0].writes == ()


def test_other_operations_are_of_the_ipu():
    found = modelled("Other")
    assert found.program.compute_sets[0].body is not None
    assert found.costs[0].detail == "1 compute set"
