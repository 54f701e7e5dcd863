"""Costs moving values between IPUs, remote memory and the host.

These take links rather than tiles, and no tile computes meanwhile. What comes over a link passes
through buffers of packets, whose size is not known, to where it is to lie: there is no message of
the whole besides. (With one, the optimizer's state of the table of BERT-Large would not fit on the
IPU that it was trained on.)
"""

import math
from collections.abc import Callable, Iterable, Mapping

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.flat.layouts import bytes_per_tile, num_tiles_of
from ipu_keras.cost.tile.cost import Cost
from ipu_keras.cost.tile.exchange import (
    Members,
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    host_seconds,
    inter_ipu_copy_seconds,
    reduce_scatter_seconds,
    remote_seconds,
    sync_cycles,
)
from ipu_keras.cost.vertices.context import CostContext
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.target import Confidence, Target

# Seconds by kind, in which the synchronization is.
_COLLECTIVES: Mapping[str, Callable[..., float]] = {
    "all-gather": all_gather_seconds,
    "all-reduce": all_reduce_seconds,
    "all-to-all": all_to_all_seconds,
    "reduce-scatter": reduce_scatter_seconds,
}


def cost_of_collective(one: ComputeSet, context: CostContext) -> Cost:
    """Costs what the replicas of a group exchange over links, and over gateways between racks."""
    op, target = one.ops[-1], context.target
    num_replicas = op.attributes.get("num_replicas", 1)
    if op.kind not in _COLLECTIVES or num_replicas == 1:
        return Cost(vertex=one.family)
    # An all-gather starts from parts; all others from whole tensors.
    whole = op.outputs if op.kind == "all-gather" else one.operands
    num_bytes = sum(spec.nbytes for spec in whole)
    members = Members.of(target, num_replicas, ipus_each=context.ipus_per_replica)
    seconds = _COLLECTIVES[op.kind](target, num_bytes, members, num_tensors=len(whole))
    detail = f"{num_replicas} replicas" + (f" in {members.racks} racks" * (members.racks > 1))
    return Cost(
        exchange_cycles=math.ceil(seconds * target.clock_hz),
        exchange_bytes=_on_a_tile(whole, target),
        num_vertices=1,
        tiles=max(num_tiles_of(spec, target) for spec in whole),
        vertex=op.kind,
        # No measurement of a gateway's latency is known.
        confidence=Confidence.DERIVED if members.racks == 1 else Confidence.GUESSED,
        detail=detail + (f", {len(whole)} tensors" if len(whole) > 1 else ""),
    )


def cost_of_inter_ipu_copy(one: ComputeSet, context: CostContext) -> Cost:
    """Costs a copy over the links between two IPUs."""
    target, source = context.target, context.values[one.reads[0]]
    specs = [context.spec(name) for name in one.reads]
    here, there = context.ipu_at(source.ipu), context.ipu_at(one.ipu)
    seconds = inter_ipu_copy_seconds(target, _size(specs), source=here, to=there)
    sync = sync_cycles(target, num_ipus=2)
    return Cost(
        exchange_cycles=math.ceil(seconds * target.clock_hz) - sync,
        sync_cycles=sync,
        exchange_bytes=_on_a_tile(specs, target),
        arrives_in_place=True,
        vertex=one.family,
        detail=f"from IPU {source.ipu} to IPU {one.ipu}",
    )


def cost_of_remote_copy(one: ComputeSet, context: CostContext) -> Cost:
    """Costs a copy to or from the memory of the machine."""
    target = context.target
    seconds = remote_seconds(target, _size(one.operands), num_ipus=context.num_ipus)
    sync = sync_cycles(target, num_ipus=2)
    return Cost(
        exchange_cycles=math.ceil(seconds * target.clock_hz) - sync,
        sync_cycles=sync,
        exchange_bytes=_on_a_tile(one.operands, target),
        arrives_in_place=True,
        vertex=one.family,
        # The bandwidth is that of DRAM; no measurement of such a copy is known.
        confidence=Confidence.GUESSED,
        detail=one.ops[-1].kind,
    )


def cost_of_host_copy(one: ComputeSet, context: CostContext) -> Cost:
    """Costs what the host gets for its part of the program, and the results that it sends."""
    target = context.target
    sizes = one.bytes_read, one.bytes_written
    seconds = sum(host_seconds(target, size, num_ipus=context.num_ipus) for size in sizes if size)
    return Cost(
        exchange_cycles=math.ceil(seconds * target.clock_hz),
        exchange_bytes=_on_a_tile((value.spec for value in one.writes), target),
        arrives_in_place=True,
        vertex=one.family,
        confidence=Confidence.DERIVED,
        detail=f"{sizes[0]:,} bytes to the host, {sizes[1]:,} from it",
    )


def cost_of_stream_copy(one: ComputeSet, context: CostContext) -> Cost:
    """Costs nothing: what all steps feed and fetch is counted together."""
    return Cost(vertex=one.family)


def _size(specs: Iterable[TensorSpec]) -> int:
    return sum(spec.nbytes for spec in specs)


def _on_a_tile(specs: Iterable[TensorSpec], target: Target) -> int:
    return sum(bytes_per_tile(spec, target) for spec in specs)
