"""Finds which layers go into which stage, so that the slowest stage takes the least."""

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram, Value
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.cost.passes import (
    MODEL_PASSES,
    READING_PASSES,
    WRITING_PASSES,
    after_passes,
    estimate_cycles,
    merge_sums,
    place_on_ipus,
    reuse_memory,
)
from ipu_keras.cost.pipeline.schedule import PipelinePlan, overlap
from ipu_keras.cost.pipeline.shards import COPY_FAMILY
from ipu_keras.ir import Graph, LayeredStep, Op
from ipu_keras.machine.target import Target
from ipu_keras.program import Pipeline
from ipu_keras.settings.pipeline_choices import PipelineSchedule

# Share of an IPU's memory that a split may fill: code and what is fullest on one tile need the
# rest. Source: 894 of 940.6 MB for values and code (auto-pipelining of ipu_tensorflow_addons).
USABLE_SHARE = 894 / 940.6

_AFTER_WRITING = READING_PASSES[len(WRITING_PASSES) :]

# Whole pipelines that are modelled in search of one that fits: each takes seconds.
_MOST_TRIED = 4
# A split that takes more than this in place of 1, as far as costs of layers add up, is not modelled
# beside the best one.
_NEAR = 1.1


@dataclass(frozen=True)
class LayerCost:
    """What a layer asks of its stage: cycles for a micro-batch, and bytes.

    Args:
        variable_bytes: Bytes of its variables, their accumulators and the optimizer's state.
        activation_bytes: Bytes that its forward part leaves for the gradient.
        crossing_bytes: Bytes that the forward pass hands over behind it.
    """

    cycles: int
    variable_bytes: int
    activation_bytes: int
    crossing_bytes: int


@dataclass(frozen=True)
class Split:
    """Layers in stages that follow each other, as far as costs of layers add up.

    Args:
        ends: The number of layers up to the end of each stage.
        cycles: Tile cycles of each stage for one micro-batch.
        num_bytes: Bytes that each stage needs, stashes included, and `capacity` may need.
    """

    ends: tuple[int, ...]
    cycles: tuple[int, ...]
    num_bytes: tuple[int, ...]
    capacity: int

    @property
    def slowest(self) -> int:
        """Tile cycles of the slowest stage."""
        return max(self.cycles)

    @property
    def fits(self) -> bool:
        return max(self.num_bytes) <= self.capacity


@dataclass(frozen=True)
class PlannedSplit:
    """Layers in stages that follow each other, modelled as the pipeline that they make.

    Args:
        ends: The number of layers up to the end of each stage.
        cycles: Tile cycles of each stage for one micro-batch, without copies to other IPUs.
        tile_bytes: Bytes on the fullest tile of each stage's IPU, and `capacity` those it has.
    """

    ends: tuple[int, ...]
    cycles: tuple[int, ...]
    tile_bytes: tuple[int, ...]
    capacity: int

    @property
    def slowest(self) -> int:
        """Tile cycles of the slowest stage."""
        return max(self.cycles)

    @property
    def fits(self) -> bool:
        return max(self.tile_bytes) <= self.capacity

    @property
    def is_finest(self) -> bool:
        """Whether the fullest stage is one layer, so that more stages would need no less."""
        fullest = self.tile_bytes.index(max(self.tile_bytes))
        return self.stages.count(fullest) == 1

    @property
    def stages(self) -> tuple[int, ...]:
        """The stage of each layer."""
        starts = (0, *self.ends)
        return tuple(k for k, end in enumerate(self.ends) for _ in range(end - starts[k]))


@dataclass(frozen=True, kw_only=True)
class BalancedPipeline:
    """The stages before, as many layers in each, and after they were balanced."""

    layers: tuple[LayerCost, ...]
    before: PlannedSplit
    after: PlannedSplit


def balanced_pipeline(
    step: LayeredStep,
    num_stages: int,
    *,
    target: Target,
    schedule: PipelineSchedule,
    training: bool,
    options: CostOptions,
) -> BalancedPipeline:
    """Models the layers of a step, balances stages of them, and models the pipelines these make."""
    programs = LayeredPrograms(step, target)
    layers = layer_costs(programs, options)
    pipelines = Pipelines(
        programs,
        layers,
        num_stages,
        schedule=schedule,
        training=training,
        options=options,
    )
    return BalancedPipeline(layers=layers, before=pipelines.even(), after=pipelines.balanced)


class LayeredPrograms:
    """The compute sets of a step, written out once for all splits of its layers into stages."""

    def __init__(self, step: LayeredStep, target: Target):
        self.step, self.target = step, target
        # Branches are compared by their cycles, on which any option may have an effect.
        self._has_branches = any(op.kind == "conditional" for op in step.graph.walk())
        # After the first passes, by options, which have no hash.
        self._written: list[tuple[CostOptions | str | None, ModelledProgram]] = []

    def by_layer(self, options: CostOptions) -> ModelledProgram:
        """Returns the program of a pipeline after `WRITING_PASSES`, with a stage for each layer."""
        assert options.pipeline is not None, "scopes of shards count where there is none"
        effective = options if self._has_branches else options.dtype
        for known, written in self._written:
            if known == effective:
                return replace(written, options=options)
        written = after_passes(
            WRITING_PASSES,
            ModelledProgram(name="", graph=self.step.graph, target=self.target, options=options),
        )
        self._written.append((effective, written))
        return written

    def in_stages(self, ends: Sequence[int], options: CostOptions) -> ModelledProgram:
        """Returns the same with the stages of a split."""
        written, staged = self.by_layer(options), _Staged(ends)
        return replace(
            written, graph=staged.graph(written.graph), program=staged.program(written.program)
        )


class Pipelines:
    """Models the pipelines that splits of a step's layers make, each split once."""

    def __init__(
        self,
        programs: LayeredPrograms,
        layers: Sequence[LayerCost],
        num_stages: int,
        *,
        schedule: PipelineSchedule,
        training: bool,
        options: CostOptions,
    ):
        self._programs, self._layers, self._target = programs, layers, programs.target
        self._stashes = _stashes(num_stages, schedule, training=training)
        count = num_micro_batches(num_stages, schedule, training=training)
        self._options = replace(
            options,
            pipeline=Pipeline(device_mapping=tuple(range(num_stages)), schedule=schedule),
            gradient_accumulation_count=count if training else 1,
            steps_per_execution=count,
        )
        self._even_ends = tuple(len(layers) * k // num_stages for k in range(1, num_stages + 1))
        # The program after the first passes, and its split as planned.
        self._found: dict[tuple[int, ...], tuple[ModelledProgram, PlannedSplit]] = {}

    def even(self) -> PlannedSplit:
        """Returns the split with as many layers in each stage."""
        return self.planned(self._even_ends)

    @functools.cached_property
    def balanced(self) -> PlannedSplit:
        """The fastest split that fits of some; if none does, the one that lacks the least.

        The split with as many layers in each stage is among them if what the layers take adds up
        to nearly as little there.
        """
        tried = {}
        share = USABLE_SHARE
        for _ in range(_MOST_TRIED):
            split = self.balance(share)
            if split.ends in tried:
                break
            found = tried[split.ends] = self.planned(split.ends)
            if found.fits:
                break
            # A whole pipeline has code and temporaries besides: the next split has to leave as
            # much more room as the fullest tile had too much.
            share = min(share, max(split.num_bytes) / self._target.ipu_bytes)
            share *= found.capacity / max(found.tile_bytes)
        if self._even_is_near(split, any(one.fits for one in tried.values())):
            tried[self._even_ends] = self.even()
        return min(
            tried.values(), key=lambda one: (max(max(one.tile_bytes), one.capacity), one.slowest)
        )

    def balance(self, usable_share: float = USABLE_SHARE) -> Split:
        """Balances the stages by what the layers take, as far as that adds up."""
        return self._balance(self._layers, usable_share)

    def cannot_fit(self) -> bool:
        """Whether what layers keep is by itself more than the stages of any split may have.

        Of activations that are computed again, nothing is known before a split is modelled.
        """
        layers = self._layers
        if self._options.recomputation:
            layers = [replace(one, activation_bytes=0, crossing_bytes=0) for one in layers]
        return not self._balance(layers, usable_share=1.0).fits

    def _balance(self, layers: Sequence[LayerCost], usable_share: float) -> Split:
        together = self._programs.step.together
        return balance(
            layers, self._stashes, self._target, together=together, usable_share=usable_share
        )

    def planned(self, ends: tuple[int, ...]) -> PlannedSplit:
        """Models the pipeline that a split makes: layer k of the trace is in stage k's scope."""
        if ends not in self._found:
            written = self._programs.in_stages(ends, self._options)
            read = after_passes(_AFTER_WRITING, written)
            self._found[ends] = read, _planned(read, ends)
        return self._found[ends][1]

    def read(self, ends: tuple[int, ...]) -> ModelledProgram:
        """Returns a split's program after the passes that no number of steps changes."""
        self.planned(ends)
        return self._found[ends][0]

    def _even_is_near(self, best: Split, fits: bool) -> bool:
        if any(
            first < end <= last
            for first, last in self._programs.step.together
            for end in self._even_ends
        ):
            return False
        even = split_at(self._layers, self._even_ends, self._stashes, self._target)
        if fits:
            return even.slowest <= _NEAR * best.slowest
        return max(even.num_bytes) <= _NEAR * max(best.num_bytes)


def _planned(read: ModelledProgram, ends: tuple[int, ...]) -> PlannedSplit:
    model = after_passes(MODEL_PASSES[len(READING_PASSES) :], read)
    assert model.pipeline_run is not None, "it has a pipeline"
    return PlannedSplit(
        ends=ends,
        cycles=model.pipeline_run.stage_cycles,
        # A pipeline of three stages has four IPUs, of which the last one holds nothing.
        tile_bytes=tuple(int(peak) for peak in model.memory.max_bytes_by_ipu[: len(ends)]),
        capacity=model.target.tile_bytes,
    )


def num_micro_batches(num_stages: int, schedule: PipelineSchedule, *, training: bool) -> int:
    """Returns so many micro-batches that all stages come to keep what they ever do."""
    return 2 * num_stages * overlap(schedule, range(num_stages), training=training)


class _Staged:
    """Gives what is in the scopes of layers the stages of a split instead."""

    def __init__(self, ends: Sequence[int]):
        starts = (0, *ends)
        self._stages: dict[int | None, int | None] = {
            layer: k for k, end in enumerate(ends) for layer in range(starts[k], end)
        }
        self._stages[None] = None
        # By the identity of those in the scopes of layers, which a graph and its program share.
        self._ops: dict[int, Op] = {}

    def graph(self, graph: Graph) -> Graph:
        return replace(
            graph,
            ops=tuple(map(self._op, graph.ops)),
            functions={name: self.graph(each) for name, each in graph.functions.items()},
        )

    def program(self, program: FlatProgram) -> FlatProgram:
        return replace(program, compute_sets=tuple(map(self._compute_set, program.compute_sets)))

    def _compute_set(self, one: ComputeSet) -> ComputeSet:
        return replace(
            one,
            stage=self._stages[one.stage],
            ops=tuple(map(self._op, one.ops)),
            body=None if one.body is None else self.program(one.body),
        )

    def _op(self, op: Op) -> Op:
        if op.stage is None:
            return op
        if id(op) not in self._ops:
            self._ops[id(op)] = replace(op, stage=self._stages[op.stage])
        return self._ops[id(op)]


def _stashes(num_stages: int, schedule: PipelineSchedule, *, training: bool) -> Sequence[int]:
    return PipelinePlan(
        device_mapping=tuple(range(num_stages)),
        num_micro_batches=num_micro_batches(num_stages, schedule, training=training),
        schedule=schedule,
        training=training,
    ).stash_counts


def layer_costs(programs: LayeredPrograms, options: CostOptions) -> tuple[LayerCost, ...]:
    """Models the layers of a step, as if each were a stage by itself."""
    step = programs.step
    # Sequential takes any number of micro-batches, and has no stashes, which depend on the
    # split.
    each = Pipeline(
        device_mapping=tuple(range(max(step.num_layers, 2))), schedule=PipelineSchedule.Sequential
    )
    model = programs.by_layer(replace(options, pipeline=each))
    passes = (*_AFTER_WRITING, place_on_ipus, merge_sums, reuse_memory, estimate_cycles)
    return _summed(after_passes(passes, model), step.num_layers)


def _summed(model: ModelledProgram, num_layers: int) -> tuple[LayerCost, ...]:
    program = model.program
    cycles, variables, activations = ([0] * num_layers for _ in range(3))
    for one, cost in zip(program.compute_sets, model.costs, strict=True):
        if one.stage is not None and one.family != COPY_FAMILY:
            cycles[one.stage] += cost.cycles * one.repeat
    for value in program.values.values():
        if value.role == "variable":
            variables[value.ipu] += value.spec.nbytes
    makers, reached = _reach(program)
    for name in _kept_for_gradient(program) & makers.keys():
        activations[makers[name]] += program.values[name].spec.nbytes
    crossing = [0] * (num_layers + 1)
    for name, last in reached.items():
        for layer in range(makers[name], last):
            crossing[layer] += program.values[name].spec.nbytes
    found = zip(cycles, variables, activations, crossing[:num_layers], strict=True)
    return tuple(LayerCost(*numbers) for numbers in found)


def _original(value: Value) -> str:
    """Returns the name of a value before it was copied to other IPUs."""
    return value.name if value.copy_of is None else value.copy_of


def _reach(program: FlatProgram) -> tuple[dict[str, int], dict[str, int]]:
    """Returns for values of a batch the layer that has them first, and their last reader."""
    makers: dict[str, int] = {}
    reached: dict[str, int] = {}
    for one in program.compute_sets:
        if one.stage is None or one.backward or one.family == COPY_FAMILY:
            continue
        for name in one.reads:
            value = program.values[name]
            if value.role in ("activation", "argument"):
                makers.setdefault(_original(value), one.stage)
                reached[_original(value)] = one.stage
        makers.update((value.name, one.stage) for value in one.writes)
    return makers, reached


def _kept_for_gradient(program: FlatProgram) -> set[str]:
    return {
        _original(program.values[name])
        for one in program.compute_sets
        if one.backward and one.stage is not None and one.family != COPY_FAMILY
        for name in one.reads
    }


def split_at(
    layers: Sequence[LayerCost],
    ends: Sequence[int],
    stashes: Sequence[int],
    target: Target,
    usable_share: float = USABLE_SHARE,
) -> Split:
    """Returns a split with its figures, for stages of which each keeps so many micro-batches."""
    starts = (0, *ends)
    spans = [(starts[k], end) for k, end in enumerate(ends)]
    return Split(
        ends=tuple(ends),
        cycles=tuple(sum(layer.cycles for layer in layers[a:b]) for a, b in spans),
        num_bytes=tuple(
            _bytes_of(layers, a, b, max(count, 1))
            for (a, b), count in zip(spans, stashes, strict=True)
        ),
        capacity=int(target.ipu_bytes * usable_share),
    )


def _bytes_of(layers: Sequence[LayerCost], start: int, end: int, count: int) -> int:
    waiting = _entering(layers, start) + sum(layer.activation_bytes for layer in layers[start:end])
    return count * waiting + sum(layer.variable_bytes for layer in layers[start:end])


def balance(
    layers: Sequence[LayerCost],
    stashes: Sequence[int],
    target: Target,
    *,
    together: Collection[tuple[int, int]] = (),
    usable_share: float = USABLE_SHARE,
) -> Split:
    """Returns the split whose slowest stage is fastest, among those that need least memory.

    All splits that fit count as equal. If none does, those are compared whose fullest stage
    needs the fewest bytes.

    Args:
        stashes: Micro-batches for which each stage keeps activations.
        together: First and last layer of runs that may not be cut, as they share variables.
        usable_share: Share of an IPU's memory that a stage may fill.
    """
    capacity = int(target.ipu_bytes * usable_share)
    cuts = [
        end
        for end in range(1, len(layers))
        if not any(first < end <= last for first, last in together)
    ]
    ends = [*cuts, len(layers)]
    if len(ends) < len(stashes):
        raise ValueError(
            "There are fewer layers that can be in different stages than stages. Received: "
            f"{len(ends)} of them, num_ipus={len(stashes)}"
        )
    found = _best(layers, ends, stashes, capacity)
    if found is None:
        found = _best(layers, ends, stashes, _least_capacity(layers, ends, stashes))
    assert found is not None, "one split needs just so much"
    return split_at(layers, found, stashes, target, usable_share)


def _best(
    layers: Sequence[LayerCost], ends: Sequence[int], stashes: Sequence[int], capacity: int
) -> tuple[int, ...] | None:
    # The best for the first layers and stages is known before the next stage is added, so each
    # pair of ends is looked at once, not each split.
    allowed = frozenset(ends)
    # Cycles of the slowest stage and all ends, by the end of the stages so far.
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0, ())}
    for count in stashes:
        following: dict[int, tuple[float, tuple[int, ...]]] = {}
        for start, (slowest, before) in best.items():
            cycles, num_bytes = 0, max(count, 1) * _entering(layers, start)
            for end in range(start + 1, len(layers) + 1):
                layer = layers[end - 1]
                cycles += layer.cycles
                num_bytes += max(count, 1) * layer.activation_bytes + layer.variable_bytes
                if num_bytes > capacity:
                    break
                candidate = max(slowest, cycles), (*before, end)
                if end in allowed and (end not in following or candidate < following[end]):
                    following[end] = candidate
        best = following
    return best[len(layers)][1] if len(layers) in best else None


def _least_capacity(
    layers: Sequence[LayerCost], ends: Sequence[int], stashes: Sequence[int]
) -> int:
    """Returns the bytes of the fullest stage in the split where these are the fewest."""
    fullest: dict[int, int] = {0: 0}  # by the end of the stages so far, as in `_best`
    for count in stashes:
        following: dict[int, int] = {}
        for start, before in fullest.items():
            num_bytes = max(count, 1) * _entering(layers, start)
            num_bytes_at = {}
            for end in range(start + 1, len(layers) + 1):
                layer = layers[end - 1]
                num_bytes += max(count, 1) * layer.activation_bytes + layer.variable_bytes
                num_bytes_at[end] = max(before, num_bytes)
            for end in ends:
                if end > start:
                    following[end] = min(num_bytes_at[end], following.get(end, num_bytes_at[end]))
        fullest = following
    return fullest[len(layers)]


def _entering(layers: Sequence[LayerCost], start: int) -> int:
    return layers[start - 1].crossing_bytes if start else 0
