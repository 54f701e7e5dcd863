"""Runs the passes of the cost model, from a traced step to what it would cost on an IPU.

`MODEL_PASSES` has them in their order. Each is a pure function from a frozen `ModelledProgram` to
the next one, and says which module does its work.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.flat.code_sharing import with_own_code
from ipu_keras.cost.flat.compute_sets import FlatProgram
from ipu_keras.cost.flat.control_flow import bodies_of
from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.fusion import deduplicate, fuse
from ipu_keras.cost.flat.host_tables import keep_tables_on_host
from ipu_keras.cost.flat.host_work import leave_to_host
from ipu_keras.cost.flat.in_place import share_memory
from ipu_keras.cost.flat.joint_normalizations import with_normalized_bodies
from ipu_keras.cost.flat.liveness import Lifetime, lifetimes, schedule
from ipu_keras.cost.flat.memory import MemoryPlan, Region, joined, map_linearly, plan_memory
from ipu_keras.cost.flat.normalizations import fuse_normalizations
from ipu_keras.cost.flat.poplar_bodies import with_bodies_in_order
from ipu_keras.cost.flat.recomputation import recompute
from ipu_keras.cost.flat.views import with_views
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.cost.pipeline.accumulation import accumulate, reduce_over_replicas
from ipu_keras.cost.pipeline.finer_stages import cut_stages
from ipu_keras.cost.pipeline.merged_collectives import merge_collectives
from ipu_keras.cost.pipeline.offloading import offload
from ipu_keras.cost.pipeline.pipeline_run import plan_of, run_of
from ipu_keras.cost.pipeline.placement import place_stages
from ipu_keras.cost.pipeline.recomputation import recompute_stages
from ipu_keras.cost.pipeline.scoped_shards import (
    num_ipus_of_shards,
    with_shards,
    without_shards,
)
from ipu_keras.cost.pipeline.shards import shard
from ipu_keras.cost.pipeline.step_parts import attribute_parts, sorted_by_part, without_parts
from ipu_keras.cost.rewrites.batched_lookups import with_batched_lookups
from ipu_keras.cost.rewrites.counters import with_counters_of_one_axis
from ipu_keras.cost.rewrites.popnn_activations import with_popnn_activations
from ipu_keras.cost.rewrites.precision import with_precision
from ipu_keras.cost.rewrites.relu_gradients import with_relu_gradients
from ipu_keras.cost.rewrites.repeats import with_repeats
from ipu_keras.cost.rewrites.strength_reduction import (
    with_products_for_divisions,
    with_products_for_powers,
)
from ipu_keras.cost.rewrites.summed_products import with_summed_products
from ipu_keras.cost.tile.cost import Cost
from ipu_keras.cost.tile.exchange import host_seconds
from ipu_keras.cost.tile.io_tiles import StepCopies
from ipu_keras.cost.vertices.code import overhead_of
from ipu_keras.cost.vertices.context import CostContext
from ipu_keras.cost.vertices.families import cost_of
from ipu_keras.ir import Graph
from ipu_keras.machine.target import Target
from ipu_keras.settings.pipeline_choices import RecomputationMode, recomputation_mode


def choose_precision(model: ModelledProgram) -> ModelledProgram:
    """Gives the graph's floating point numbers the type that was chosen."""
    if model.options.dtype is None:
        return model
    return replace(model, graph=with_precision(model.graph, model.options.dtype))


def replace_powers(model: ModelledProgram) -> ModelledProgram:
    """Multiplies, or divides, where XLA raises to a small constant power."""
    return replace(model, graph=with_products_for_powers(model.graph))


def replace_divisions(model: ModelledProgram) -> ModelledProgram:
    """Multiplies by the reciprocal where XLA divides by a constant."""
    return replace(model, graph=with_products_for_divisions(model.graph))


def sum_in_products(model: ModelledProgram) -> ModelledProgram:
    """Lets a product add up its batch where the sum of it is all that is read."""
    return replace(model, graph=with_summed_products(model.graph))


def find_relu_gradients(model: ModelledProgram) -> ModelledProgram:
    """Makes one operation, as popnn has it, of the comparison and selection that XLA writes."""
    return replace(model, graph=with_relu_gradients(model.graph))


def find_activations(model: ModelledProgram) -> ModelledProgram:
    """Gives activation functions of popnn vertices and gradients that take the input alone."""
    return replace(model, graph=with_popnn_activations(model.graph))


def find_batched_lookups(model: ModelledProgram) -> ModelledProgram:
    """Makes lookups with batching dimensions of those whose indices count the batch."""
    return replace(model, graph=with_batched_lookups(model.graph))


def shorten_counters(model: ModelledProgram) -> ModelledProgram:
    """Counts along one axis, and repeats that along the others."""
    return replace(model, graph=with_counters_of_one_axis(model.graph))


def repeat_loops(model: ModelledProgram) -> ModelledProgram:
    """Leaves in loops that run a known number of times what their results depend on."""
    return replace(model, graph=with_repeats(model.graph))


def write_out(model: ModelledProgram) -> ModelledProgram:
    """Turns the graph into compute sets, calls and loops included."""

    def cycles_of(branch: FlatProgram) -> int:
        costs = _costs(model, branch)
        return sum(
            cost.cycles * one.repeat for one, cost in zip(branch.compute_sets, costs, strict=True)
        )

    return replace(model, program=flatten(model.graph, work_of_branch=cycles_of))


def leave_tables_to_host(model: ModelledProgram) -> ModelledProgram:
    """Replaces lookups in tables that stay on the host by copies of rows."""
    return replace(model, program=keep_tables_on_host(model.program))


def leave_work_to_host(model: ModelledProgram) -> ModelledProgram:
    """Replaces what the host computes by copies to and from it."""
    return replace(model, program=leave_to_host(model.program))


def find_shards(model: ModelledProgram) -> ModelledProgram:
    """Finds the IPU of each compute set, if scopes say it of some."""
    options = model.options
    # Scopes of shards that the program has no IPUs for say nothing.
    if options.pipeline is None and num_ipus_of_shards(model.graph) <= options.num_ipus:
        return replace(model, program=with_shards(model.program))
    return replace(model, program=without_shards(model.program))


def find_parts(model: ModelledProgram) -> ModelledProgram:
    """Finds which compute sets belong to which stage, and which to the weight update."""
    options = model.options
    if options.pipeline is not None:
        program = attribute_parts(model.program, options.pipeline.num_stages)
    elif options.has_parts:
        program = attribute_parts(model.program)
    else:
        program = without_parts(model.program)
    return replace(model, program=program)


def split_stages(model: ModelledProgram) -> ModelledProgram:
    """Cuts each stage of a pipeline into several, if that was chosen."""
    pipeline = model.options.pipeline
    if pipeline is None:
        return model
    program = cut_stages(model.program, pipeline.num_stages, model.options.stage_splits)
    return replace(model, program=program)


def forget_checkpoints(model: ModelledProgram) -> ModelledProgram:
    """Lets checkpoints be fused like other values, if nothing is computed again from them."""
    if _keeps_checkpoints(model.options):
        return model
    return replace(model, program=replace(model.program, checkpoints=()))


def _keeps_checkpoints(options: CostOptions) -> bool:
    """Whether activations are computed again, and not all activations of a stage at once."""
    pipeline = options.pipeline
    if not options.recomputation or pipeline is None:
        return options.recomputation
    mode = recomputation_mode(pipeline.schedule, pipeline.recomputation_mode)
    return mode is RecomputationMode.RecomputeAndBackpropagateInterleaved


def find_normalizations_in_bodies(model: ModelledProgram) -> ModelledProgram:
    """Finds normalizations within operations of Poplar's libraries, and their gradients."""
    return replace(model, program=with_normalized_bodies(model.program))


def compute_once(model: ModelledProgram) -> ModelledProgram:
    """Drops compute sets that compute what another one does."""
    return replace(model, program=deduplicate(model.program))


def find_normalizations(model: ModelledProgram) -> ModelledProgram:
    """Makes a few passes over the tensor of what one normalization does to it."""
    return replace(model, program=fuse_normalizations(model.program))


def take_views(model: ModelledProgram) -> ModelledProgram:
    """Lets compute sets take parts and other orders of values where these are."""
    return replace(model, program=with_views(model.program))


def fuse_chains(model: ModelledProgram) -> ModelledProgram:
    """Makes one vertex of chains of elementwise operations."""
    return replace(model, program=fuse(model.program))


def order_bodies(model: ModelledProgram) -> ModelledProgram:
    """Fuses and orders what operations of Poplar's libraries consist of."""
    return replace(model, program=with_bodies_in_order(model.program))


def add_up_gradients(model: ModelledProgram) -> ModelledProgram:
    """Adds up the gradients of several steps and replicas before the weight update."""
    options = model.options
    program = model.program
    if not options.own_updates:
        # Sums over replicas come first, so that accumulators have a replica's gradients, and
        # what the weight update takes is summed once for all batches.
        program = reduce_over_replicas(program, options.num_replicas)
    if options.gradient_accumulation_count > 1:
        pipeline = options.pipeline_as_cut
        program = accumulate(
            program,
            dtype=options.gradient_accumulation_dtype,
            ipu_of_stage=() if pipeline is None else pipeline.device_mapping,
        )
    return replace(model, program=program)


def order(model: ModelledProgram) -> ModelledProgram:
    """Puts the compute sets in the order of execution."""
    program = schedule(model.program)
    return replace(model, program=sorted_by_part(program, model.options.num_stages))


def reuse_memory(model: ModelledProgram) -> ModelledProgram:
    """Writes results over operands that nobody needs any more."""
    return replace(model, program=share_memory(model.program))


def drop_activations(model: ModelledProgram) -> ModelledProgram:
    """Computes activations again for the gradient if that was chosen."""
    if not model.options.recomputation:
        return model
    pipeline = model.options.pipeline_as_cut
    if pipeline is None:
        program = recompute(model.program)
        kept = None if program is model.program else model.program
        return replace(model, program=program, kept=kept)
    mode = recomputation_mode(pipeline.schedule, pipeline.recomputation_mode)
    program = recompute_stages(model.program, pipeline.num_stages, mode)
    return replace(model, program=program)


def place_on_ipus(model: ModelledProgram) -> ModelledProgram:
    """Shares the layers among the IPUs, or puts stages where they belong."""
    pipeline = model.options.pipeline_as_cut
    if pipeline is None:
        return replace(model, program=shard(model.program, model.options.num_ipus))
    plan = plan_of(model.program, pipeline, model.num_micro_batches)
    program = place_stages(model.program, plan)
    program = offload(
        program,
        pipeline,
        model.options.num_replicas,
        minimum_bytes=model.options.minimum_remote_tensor_size,
    )
    return replace(model, program=program)


def merge_sums(model: ModelledProgram) -> ModelledProgram:
    """Lets sums over replicas wait for each other, as far as the options say."""
    options = model.options
    buffer_bytes = {
        "all-reduce": options.maximum_cross_replica_sum_buffer_size,
        "reduce-scatter": options.maximum_reduce_scatter_buffer_size,
    }
    return replace(model, program=merge_collectives(model.program, buffer_bytes))


def estimate_cycles(model: ModelledProgram) -> ModelledProgram:
    """Costs every compute set."""
    return replace(model, costs=_costs(model, model.program))


def _costs(model: ModelledProgram, program: FlatProgram) -> tuple[Cost, ...]:
    options = model.options
    context = CostContext.of(
        program,
        model.target,
        product_options=options.product_options(),
        num_ipus=options.ipus_per_replica * options.num_replicas,
        ipus_per_replica=options.ipus_per_replica,
        ipu_at=options.ipu_at,
    )
    return tuple(cost_of(one, context) for one in program.compute_sets)


def run_pipeline(model: ModelledProgram) -> ModelledProgram:
    """Puts the parts of a pipeline in time."""
    pipeline = model.options.pipeline_as_cut
    if pipeline is None:
        return model
    plan = plan_of(model.program, pipeline, model.num_micro_batches)
    return replace(model, pipeline_run=run_of(model.program, model.costs, plan))


def estimate_host_copies(model: ModelledProgram) -> ModelledProgram:
    """Costs the infeed and the outfeed, which begin and end in each step, and the seed's copy.

    TensorFlow's programs copy the feeds in each turn of their loop; what is copied once an
    execution is the seed of random numbers, with which it begins (`poplar_compiler.cc`).
    """
    target, options = model.target, model.options
    steps = options.steps_per_execution
    # Replicas of several IPUs have links to the host of their own.
    sharing = options.num_replicas if options.ipus_per_replica == 1 else 1
    nothing = _Copied(0, 0)
    fed, fetched = _copied(model.program)
    fed = nothing if options.synthetic_infeed else fed
    fetched = nothing if options.synthetic_outfeed else fetched
    cycles = [each.cycles(target, sharing) for each in (fed, fetched)]
    # Synthetic data is for what an IPU takes by itself, so nothing is counted beside it.
    seed = model.seed_cycles / steps if any(cycles) else 0.0
    host_cycles = math.ceil(sum(cycles) + seed)
    if not options.place_ops_on_io_tiles:
        return replace(model, host_cycles=host_cycles)
    copies = StepCopies(steps, fed.num_bytes, fetched.num_bytes, *cycles)
    model = replace(model, host_cycles=host_cycles, io_tile_bytes=copies.held_bytes)
    if model.io_tile_bytes > model.io_tile_capacity:
        return model
    waiting = copies.waiting_cycles(model.compute_cycles)
    between = copies.exchange_cycles(target, options.num_io_tiles)
    return replace(
        model,
        host_cycles=math.ceil(waiting / steps + seed) + between,
        hidden_host_cycles=int((copies.cycles - waiting) / steps),
    )


@dataclass(frozen=True)
class _Copied:
    """What goes to one replica for a step, or from it: `count` times an infeed or outfeed."""

    num_bytes: int
    count: int

    def cycles(self, target: Target, sharing: int) -> float:
        """Returns the cycles for a step of as many replicas as share a link."""
        # All tensors of a feed are copied together, in each turn of the loop over steps.
        if not self.num_bytes:
            return 0.0
        seconds = host_seconds(target, self.num_bytes * sharing, num_ipus=sharing)
        return seconds * target.clock_hz + (self.count - 1) * target.host_latency_cycles


def _copied(program: FlatProgram) -> tuple[_Copied, _Copied]:
    """Returns what goes to one replica for a step, and from it."""
    fed = sum(v.spec.nbytes for v in program.values.values() if v.role == "argument")
    # What a loop takes from an infeed, the host prepares while the loop runs.
    infeeds = [one for one in program.compute_sets if one.ops[-1].kind == "infeed"]
    # All that a turn of a loop takes stands together, so that Poplar joins it
    # (`merge_infeed_io_copies`).
    turns = {bodies_of(one): one.repeat for one in infeeds if one.bytes_written}
    taken = sum(turns.values())
    received = fed + sum(one.repeat * one.bytes_written for one in infeeds)
    fetched = sum(
        program.values[name].spec.nbytes
        for name in set(program.results) - set(program.updates)
        if program.values[name].role == "activation"
    )
    return _Copied(received, bool(fed) + taken), _Copied(fetched, 1)


def fill_tiles(model: ModelledProgram) -> ModelledProgram:
    """Places values on the tiles of each IPU and adds up what each tile holds."""
    regions: dict[str, Region] = {}
    plans = []
    alive = lifetimes(model.program)
    sets = model.program.compute_sets
    own = frozenset(one.name for one in sets)
    if model.options.outlining:
        own = with_own_code(sets, model.costs)
    for ipu in range(model.options.ipus_per_replica):
        values = {name: v for name, v in model.program.values.items() if v.ipu == ipu}
        program = replace(model.program, values=values)
        here = map_linearly(program, model.target)
        plans.append(_planned(model, ipu, program, here, alive, own))
        regions.update(here)
    return replace(model, regions=regions, memory=joined(plans))


def _planned(
    model: ModelledProgram,
    ipu: int,
    program: FlatProgram,
    regions: Mapping[str, Region],
    alive: Mapping[str, Lifetime],
    own: Collection[str],
) -> MemoryPlan:
    """Returns the memory of one IPU, on which the program's values are.

    `own` are the compute sets that have code of their own.
    """
    pairs = list(zip(model.program.compute_sets, model.costs, strict=True))
    return plan_memory(
        program,
        regions,
        model.target,
        alive,
        temporary_bytes=[cost.temporary_bytes if one.ipu == ipu else 0 for one, cost in pairs],
        message_bytes=[cost.message_bytes if one.ipu == ipu else 0 for one, cost in pairs],
        receivers=[cost.num_receivers if one.ipu == ipu else None for one, cost in pairs],
        overhead=overhead_of(
            [cost for one, cost in pairs if one.ipu == ipu and one.name in own], model.target
        ),
    )


def keep_what_costs_more_to_drop(model: ModelledProgram) -> ModelledProgram:
    """Keeps all activations if their repetition needs no less memory on the fullest tile."""
    if model.kept is None:
        return model
    # The repetition has code and vertex state of its own, always live, while what is dropped may
    # not be there when the tile is fullest.
    kept = after_passes(PLACING_PASSES, replace(model, program=model.kept, kept=None))
    if kept.memory.max_tile_bytes <= model.memory.max_tile_bytes:
        return kept
    return replace(model, kept=None)


# What these do is the same whatever stages are called: searches for balanced pipelines run them
# once for all splits of the layers.
WRITING_PASSES = (
    choose_precision,
    # What XLA writes in other words than Poplar's libraries, or in more. Powers come before
    # divisions, as a power of -1 becomes a division.
    replace_powers,
    replace_divisions,
    sum_in_products,
    find_relu_gradients,
    find_activations,
    find_batched_lookups,
    # Lookups in batches are known by counters as XLA writes them, so these come last.
    shorten_counters,
    repeat_loops,
    write_out,
    # What the host computes is a copy before anything is fused: none of it is in a vertex.
    leave_tables_to_host,
    leave_work_to_host,
    find_shards,
)
# Passes that depend on the graph and its precision alone come first: searches for fixes run
# these once for all numbers of IPUs.
READING_PASSES = (
    *WRITING_PASSES,
    # Parts come before equal operations are joined, as nothing is shared across parts.
    find_parts,
    split_stages,
    forget_checkpoints,
    # Normalizations are found in single operations, with what they share computed once. Chains
    # are fused after that: what a normalization took would be in other vertices already.
    find_normalizations_in_bodies,
    compute_once,
    find_normalizations,
    take_views,
    fuse_chains,
    order_bodies,
    add_up_gradients,
    order,
)
# Sums are merged when it is known which IPU has which, and memory is shared after both, as
# copies between IPUs and merged sums keep values alive. Costs depend on what lies with what, so
# on memory; pipelines, host copies and tiles on costs.
PLACING_PASSES = (
    place_on_ipus,
    merge_sums,
    reuse_memory,
    estimate_cycles,
    run_pipeline,
    estimate_host_copies,
    fill_tiles,
)
MODEL_PASSES = (
    *READING_PASSES,
    drop_activations,
    *PLACING_PASSES,
    keep_what_costs_more_to_drop,
)


def model_graph(
    name: str,
    graph: Graph,
    target: Target,
    options: CostOptions | None = None,
    *,
    around: Callable[[str], AbstractContextManager[Any]] = nullcontext,
) -> ModelledProgram:
    """Runs every pass over a traced step, whose `form` is `"hlo"`.

    `around` is opened around each pass, with the pass' name in words.
    """
    options = CostOptions() if options is None else options
    model = ModelledProgram(name=name, graph=graph, target=target, options=options)
    return after_passes(MODEL_PASSES, model, around=around)


def after_passes(
    passes: Iterable[Callable[[ModelledProgram], ModelledProgram]],
    model: ModelledProgram,
    *,
    around: Callable[[str], AbstractContextManager[Any]] = nullcontext,
) -> ModelledProgram:
    """Runs some passes over a program, one after the other."""
    for model_pass in passes:
        with around(model_pass.__name__.replace("_", " ")):
            model = model_pass(model)
    return model
