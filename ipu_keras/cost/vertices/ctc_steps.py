"""Costs the recursions of the CTC loss, of which popnn has a vertex that computes a whole step."""

import math
from collections.abc import Mapping, Sequence

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.flat.control_flow import is_in_loop
from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.cost import Cost, arrival_cycles
from ipu_keras.cost.tile.exchange import sync_cycles
from ipu_keras.cost.tile.vertex_rates import ELEMENTWISE
from ipu_keras.ir import num_elements
from ipu_keras.machine.target import Confidence, Target

CTC_LOSS_FAMILY = "CTCLoss"

# Scores, emissions, and what says which states may be skipped to and which steps count.
_NUM_OPERANDS = 4
# A state takes the scores of two others.
_NUM_NEIGHBOURS = 2


def costs_of_recursion(compute_sets: Sequence[ComputeSet], target: Target) -> Mapping[str, Cost]:
    """Returns the costs of a loss's compute sets in its loop: the last one's is that of a step."""
    steps = [one for one in compute_sets if is_in_loop(one)]
    mapped = [one for one in steps if one.family == "elementwise"]
    if not mapped:
        return {}
    states = max(num_elements(one.writes[0].spec) for one in mapped)
    recursion = [one for one in mapped if num_elements(one.writes[0].spec) == states]
    own = dict.fromkeys((one.name for one in steps), Cost())
    return own | {recursion[-1].name: _step_cost(recursion, states, target)}


def _step_cost(recursion: Sequence[ComputeSet], states: int, target: Target) -> Cost:
    """Guesses a step, as no cycles of popnn's vertices are published.

    Tiles share the states, and take scores from their neighbours. The recursion from the end runs
    at the same time on other tiles, so that each counts half of the cycles that both take.
    """
    scores = recursion[-1].writes[0].spec
    cycles = vertices.fused(
        target,
        operations=[
            (op.kind, len(op.inputs))
            for one in recursion
            for op in one.ops
            if op.kind in ELEMENTWISE
        ],
        dtype=scores.dtype,
        num_elements=math.ceil(states / target.num_tiles),
        num_inputs=_NUM_OPERANDS,
    )
    received = _NUM_NEIGHBOURS * math.ceil(scores.nbytes / max(states, 1))
    return Cost(
        compute_cycles=math.ceil((cycles.cycles + target.launch_cycles) / 2),
        exchange_cycles=math.ceil(arrival_cycles(target, received) / 2),
        sync_cycles=math.ceil(sync_cycles(target, num_ipus=1) / 2),
        exchange_bytes=received,
        num_vertices=1,
        tiles=min(states, target.num_tiles),
        vertex="ctc step",
        confidence=Confidence.GUESSED,
    )
