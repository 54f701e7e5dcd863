"""What a step of the CTC loss's recursions costs, of which popnn has a vertex."""

import pytest
from graph_costs import GC200, LAUNCH, SYNC, WAY, program_costs
from hlo_graphs import loop, op

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram
from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.tile import vertices
from ipu_keras.cost.vertices.ctc_steps import costs_of_recursion
from ipu_keras.machine.target import Confidence


def test_a_vertex_computes_a_step():
    # An addition of three states, 100 times over.
    recursion = flatten(loop(100))
    found = costs_of_recursion(recursion.compute_sets, GC200)
    inside = [one for one in recursion.compute_sets if one.loops]
    assert list(found) == [one.name for one in inside]
    (step,) = (
        one for one in inside if one.family == "elementwise" and not one.loops[0].is_condition
    )
    cost = found[step.name]
    # A state on each of three tiles, of which two neighbours come first; the other recursion runs
    # at the same time.
    vertex = vertices.fused(
        GC200, operations=[("add", 2)], dtype="float32", num_elements=1, num_inputs=4
    )
    assert cost.compute_cycles == -(-(vertex.cycles + LAUNCH) // 2)
    assert (cost.exchange_bytes, cost.tiles) == (8, 3)
    assert (cost.exchange_cycles, cost.sync_cycles) == (-(-(3 + WAY) // 2), SYNC // 2)
    assert cost.confidence is Confidence.GUESSED
    assert sum(other.cycles for other in found.values()) == cost.cycles


@pytest.mark.parametrize(("family", "at_once"), [("CTCLoss", True), ("Other", False)])
def test_only_recursions_of_a_loss_are_steps(family, at_once):
    body = flatten(loop(100))
    whole = ComputeSet(
        name="loss",
        family=family,
        ops=(op("loss", "poplar-call", (3,)),),
        operands=(),
        reads=("x", "w"),
        writes=(body.values["y"],),
        body=body,
    )
    values = {name: body.values[name] for name in ("x", "w", "y")}
    found = program_costs(FlatProgram(compute_sets=(whole,), values=values))["loss"]
    vertex_types = {part.vertex for part in found.parts}
    assert ("ctc step" in vertex_types) == at_once
    assert "map negate float32" in vertex_types
