"""Has the table of who costs which family of operations."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram
from ipu_keras.cost.flat.host_tables import HOST_TABLE_FAMILY
from ipu_keras.cost.flat.host_work import OUTSIDE_COMPILATION_FAMILY, USER_OPERATION_FAMILY
from ipu_keras.cost.flat.layouts import num_tiles_of
from ipu_keras.cost.flat.memory import peak_besides_results
from ipu_keras.cost.pipeline.offloading import REMOTE_FAMILY
from ipu_keras.cost.pipeline.placement import STASH_FAMILY
from ipu_keras.cost.pipeline.shards import COPY_FAMILY
from ipu_keras.cost.products.planning_options import ProductOptions
from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.cost import Cost, started_together
from ipu_keras.cost.vertices.context import CostContext
from ipu_keras.cost.vertices.copies import (
    cost_of_copy,
    cost_of_dynamic_slice,
    cost_of_stash,
    cost_of_transpose,
)
from ipu_keras.cost.vertices.ctc_steps import CTC_LOSS_FAMILY, costs_of_recursion
from ipu_keras.cost.vertices.elementwise import cost_of_broadcast, cost_of_elementwise
from ipu_keras.cost.vertices.gathers import cost_of_gather, cost_of_scatter
from ipu_keras.cost.vertices.normalizations import cost_of_normalization
from ipu_keras.cost.vertices.pooled_windows import cost_of_pooling
from ipu_keras.cost.vertices.products import cost_of_product
from ipu_keras.cost.vertices.random_draws import cost_of_draw
from ipu_keras.cost.vertices.reductions import reduction_cost
from ipu_keras.cost.vertices.scans import cost_of_scan
from ipu_keras.cost.vertices.sorts import cost_of_sort
from ipu_keras.cost.vertices.transfers import (
    cost_of_collective,
    cost_of_host_copy,
    cost_of_inter_ipu_copy,
    cost_of_remote_copy,
    cost_of_stream_copy,
)
from ipu_keras.ir import num_elements
from ipu_keras.machine.target import Confidence

# The kind of operation that `ops.multi_convolution` traces.
MULTI_CONVOLUTION_FAMILY = "MultiConv"


def _cost_of_reduction(one: ComputeSet, context: CostContext) -> Cost:
    """Costs a reduction along axes, with one or several results."""
    return reduction_cost(
        context.target,
        operation=one.ops[-1].attributes["operation"],
        source=one.operands[0],
        axes=one.ops[-1].attributes["dimensions"],
        num_outputs=sum(num_elements(value.spec) for value in one.writes),
    )


_BY_FAMILY: Mapping[str, Callable[[ComputeSet, CostContext], Cost]] = {
    "broadcast": cost_of_broadcast,
    "cast": cost_of_elementwise,
    "collective": cost_of_collective,
    "control flow": lambda one, context: Cost(),
    "convolution": cost_of_product,
    "copy": cost_of_copy,
    "dot": cost_of_product,
    "dynamic slice": cost_of_dynamic_slice,
    "elementwise": cost_of_elementwise,
    "gather": cost_of_gather,
    HOST_TABLE_FAMILY: cost_of_host_copy,
    OUTSIDE_COMPILATION_FAMILY: cost_of_host_copy,
    COPY_FAMILY: cost_of_inter_ipu_copy,
    "norm": cost_of_normalization,
    "pooling": cost_of_pooling,
    "random": cost_of_draw,
    "reduce": _cost_of_reduction,
    "scan": cost_of_scan,
    "scatter": cost_of_scatter,
    "softmax": cost_of_normalization,
    "sort": cost_of_sort,
    REMOTE_FAMILY: cost_of_remote_copy,
    STASH_FAMILY: cost_of_stash,
    "stream copy": cost_of_stream_copy,
    "transpose": cost_of_transpose,
    USER_OPERATION_FAMILY: cost_of_host_copy,
}


def cost_of(one: ComputeSet, context: CostContext) -> Cost:
    if one.body is not None:
        return _cost_of_body(one, one.body, context)
    return _BY_FAMILY.get(one.family, _cost_of_others)(one, context)


def _cost_of_body(one: ComputeSet, body: FlatProgram, context: CostContext) -> Cost:
    """Sums what an operation of Poplar's libraries consists of."""
    # Poplar's options are those of the stage that the operation is in, which its parts do not
    # say. An operation's own proportion, such as an LSTM's, goes before these.
    place = {name: getattr(one, name) for name in ("stage", "backward", "weight_update")}
    share = one.ops[-1].attributes.get("memory_proportion")
    own = {} if share is None else {"memory_proportion": share}

    def options(inner: ComputeSet) -> ProductOptions:
        return replace(context.product_options(replace(inner, **place)), **own)

    inside = context.within(body, options)
    together = _together(body) if one.family == MULTI_CONVOLUTION_FAMILY else ()
    shares = dict(share for group in together for share in _contexts(group, inside))
    known = (
        costs_of_recursion(body.compute_sets, context.target)
        if one.family == CTC_LOSS_FAMILY
        else {}
    )
    parts = tuple(
        known[inner.name] if inner.name in known else cost_of(inner, shares.get(inner.name, inside))
        for inner in body.compute_sets
    )
    by_name = {inner.name: part for inner, part in zip(body.compute_sets, parts, strict=True)}
    # Of what runs at the same time, the slowest counts.
    hidden = {
        inner.name
        for group in together
        for inner in sorted(group, key=lambda inner: by_name[inner.name].cycles)[:-1]
    }
    runs = [
        by_name[inner.name].in_step(inner, batches_per_update=1)
        for inner in body.compute_sets
        if inner.name not in hidden
    ]
    # Values within it are temporary; what it is given is where it was, its results where they
    # are made.
    return Cost(
        compute_cycles=sum(run.compute_cycles for run in runs),
        exchange_cycles=sum(run.exchange_cycles for run in runs),
        sync_cycles=sum(run.sync_cycles for run in runs),
        exchange_bytes=sum(run.exchange_bytes for run in runs),
        temporary_bytes=peak_besides_results(
            body,
            context.target,
            temporary_bytes=[part.temporary_bytes for part in parts],
            message_bytes=[part.message_bytes for part in parts],
        ),
        num_vertices=sum(run.num_vertices for run in runs),
        tiles=max((part.tiles for part in parts), default=0),
        vertex=one.family,
        confidence=vertices.least([Confidence.DERIVED, *(part.confidence for part in parts)]),
        detail=f"{len(parts)} compute set{'s' if len(parts) != 1 else ''}",
        parts=parts,
    )


def _together(body: FlatProgram) -> list[list[ComputeSet]]:
    """Returns the convolutions of each pass of a multi-convolution, which run at the same time."""
    passes: defaultdict[tuple[Any, ...], list[ComputeSet]] = defaultdict(list)
    for inner in body.compute_sets:
        if inner.family == "convolution":
            # Gradients of inputs and of weights are multi-convolutions of their own: which of
            # the passes one is shows in what it takes for samples and for channels.
            axes = ("input_feature_dimension", "output_batch_dimension")
            key = (*(inner.ops[-1].attributes[name] for name in axes), inner.backward)
            passes[key].append(inner)
    return list(passes.values())


def _contexts(
    group: Sequence[ComputeSet], context: CostContext
) -> Iterator[tuple[str, CostContext]]:
    """Divides the tiles among convolutions by their operations, as poplin's parallel plans do."""
    flops = sum(inner.flops for inner in group)
    left = context.target.num_tiles - len(group)
    for inner in group:
        tiles = 1 + left * inner.flops // max(flops, 1)
        target = context.target.without_tiles(context.target.num_tiles - tiles)
        yield inner.name, replace(context, target=target)


def _cost_of_others(one: ComputeSet, context: CostContext) -> Cost:
    """Guesses the cost of a family without a module from bytes and operations alone."""
    target = context.target
    tiles = max((num_tiles_of(value.spec, target) for value in one.writes), default=1)
    cycles = vertices.unknown(
        target,
        bytes_read=math.ceil(one.bytes_read / tiles),
        bytes_written=math.ceil(one.bytes_written / tiles),
        flops=math.ceil(one.flops / tiles),
        dtype=one.writes[0].spec.dtype if one.writes else "float32",
    )
    received = context.inputs_per_tile(one)
    return started_together(one, target, cycles, received, vertex=one.ops[-1].kind)
