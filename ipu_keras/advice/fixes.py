"""Finds what would make a program fit that does not, each remedy modelled."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ipu_keras.advice.balanced_pipeline import balanced_pipeline
from ipu_keras.advice.changes import Fix, is_mostly_single, is_training_step, num_layers
from ipu_keras.advice.planned_split import graph_in_stages
from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.cost.passes import MODEL_PASSES, READING_PASSES, model_graph
from ipu_keras.cost.pipeline.pipeline_run import is_training
from ipu_keras.cost.pipeline.schedule import overlap
from ipu_keras.ir import Graph
from ipu_keras.program import LayeredStep, Pipeline, Variants
from ipu_keras.settings.pipeline_choices import PipelineSchedule

# The largest machine that the emulator has.
_MAX_IPUS = 16
# How often a proportion is halved: less memory for temporaries costs more and more time.
_PROPORTION_HALVINGS = 2
# Options that put a program on more IPUs.
_ON_MORE_IPUS = frozenset({"num_ipus", "pipeline_stages", "stage_splits"})
# Share of the bytes that are too many: what saves less is worth a try with others, but no line.
_LEAST_SAVING = 0.1
# Tracing a step takes longer than all its modelling.
_MAX_TRACES = 3


def suggest_fixes(
    model: ModelledProgram,
    *,
    batch_size: int = 1,
    trace: Callable[[int], Graph | None] | None = None,
    variants: Variants | None = None,
) -> tuple[Fix, ...]:
    """Models what might help a program that does not fit.

    Tried are float16, recomputation, halves of the proportion of memory that products may take,
    powers of two of IPUs or, in a pipeline, of stages in place of each, and halves of the batch:
    of each, the least that fits. If none fits, those that help are combined, with more and more
    IPUs. What fits comes first, and of that what takes the least time per sample.

    Args:
        trace: Gives the step's graph for another batch size, or `None` if it has none for it.
            Smaller batches are only tried with it.
        variants: Of a Keras model, how else it could be written: its layers have another dtype,
            and more IPUs are stages of a pipeline that is balanced for them. Of other programs,
            all numbers change, and IPUs share the layers or cut the stages that there are.
    """
    if model.memory.fits:
        return ()
    search = _Search(model, batch_size, variants)
    fixes = list(search.alone())
    if trace is not None:
        fixes += search.with_smaller_batch(trace)
    if not any(fix.fits for fix in fixes):
        fixes += search.combined(fixes)
    worth = [fix for fix in fixes if _is_better(fix, model.memory.max_tile_bytes, model)]
    return tuple(sorted(worth, key=lambda fix: (not fix.fits, fix.seconds_per_sample, fix.name)))


class _Search:
    """Models changes of one program, whose first passes are run once for many of them."""

    def __init__(self, model: ModelledProgram, batch_size: int, variants: Variants | None):
        self._model = model
        self._batch_size = batch_size
        self._variants = variants
        # The traces of variants by dtype.
        self._graphs: dict[str | None, Graph | None] = {None: model.graph}
        self._layered: dict[str | None, LayeredStep | None] = {}
        # Models by graph and options, which have no hash, after the first passes: these do not
        # know how many IPUs share the layers, so their results serve all numbers of IPUs.
        self._read: list[tuple[Graph, CostOptions, ModelledProgram]] = []

    def alone(self) -> Iterator[Fix]:
        """Yields each option by itself."""
        options = self._model.options
        if is_mostly_single(self._model.graph):
            yield from self._least([{"dtype": "float16"}])
        if not options.recomputation:
            yield from self._least([{"recomputation": True}])
        proportion = options.available_memory_proportion
        halves = [round(proportion / 2**k, 6) for k in range(1, _PROPORTION_HALVINGS + 1)]
        yield from self._least([{"available_memory_proportion": half} for half in halves])
        yield from self._least(self._more_ipus())

    def combined(self, fixes: Sequence[Fix]) -> Iterator[Fix]:
        """Yields all options together that help alone, with more and more IPUs."""
        helpful = [fix.changes for fix in fixes if "batch_size" not in fix.changes]
        apart = [changes for changes in helpful if not _ON_MORE_IPUS & changes.keys()]
        together = {name: value for changes in apart for name, value in changes.items()}
        if not together:
            return
        more = self._more_ipus() if len(apart) < len(helpful) else []
        first = [together] if len(together) > 1 else []
        yield from self._least([*first, *({**together, **changes} for changes in more)])

    def with_smaller_batch(self, trace: Callable[[int], Graph | None]) -> Iterator[Fix]:
        """Yields a half, a quarter or less of the batch that fits; of some tried, the smallest."""
        memory = self._model.memory
        if not memory.code_fits:
            return  # instructions are as many for any batch
        # Bytes by batch size, as far as they are known. Before a smaller batch is modelled, all
        # but those of what is always live are taken to be proportional to the batch.
        known = [
            (0, int(memory.always_live_by_tile.max())),
            (self._batch_size, memory.max_tile_bytes),
        ]
        best: Fix | None = None
        for _ in range(_MAX_TRACES):
            promising = self._promising_batch(*known[-2:])
            graph = None if promising is None else trace(promising)
            if promising is None or graph is None:
                break
            model = self._model
            smaller = model_graph(model.name, graph, model.target, model.options)
            best = self._fix({"batch_size": promising}, smaller, promising)
            if best.fits or not smaller.memory.code_fits:
                break
            known.append((promising, best.max_tile_bytes))
        if best is not None and best.max_tile_bytes < memory.max_tile_bytes:
            yield best

    def _promising_batch(self, one: tuple[int, int], last: tuple[int, int]) -> int | None:
        """Returns the largest half, quarter or so of the last batch that may fit; `None` if none.

        What a tile needs at its fullest time is the most of several sums that grow with the
        batch, so smaller batches need at least what the line through two sizes gives them.
        """
        (size, needed), slope = last, (last[1] - one[1]) / (last[0] - one[0])
        halves = [size >> k for k in range(1, size.bit_length())]
        limit = self._model.memory.tile_bytes
        return next((b for b in halves if needed + (b - size) * slope <= limit), None)

    def _more_ipus(self) -> list[dict[str, Any]]:
        """Returns changes to twice as many IPUs, four times as many and so on."""
        options = self._model.options
        powers = [2**k for k in range(1, _MAX_IPUS.bit_length())]
        powers = [power for power in powers if power * options.ipus_per_replica <= _MAX_IPUS]
        if self._variants is not None:
            step = self._by_layer(None)
            most = 0 if step is None else step.num_layers
            stages = 1 if options.pipeline is None else options.pipeline.num_stages
            counts = [power * stages for power in powers]
            return [self._pipeline_of(count) for count in counts if count <= most]
        if options.pipeline is None:
            most = num_layers(self._model.graph) or _MAX_IPUS
            counts = (power * options.num_ipus for power in powers)
            return [{"num_ipus": count} for count in counts if count <= most]
        return [self._finer_pipeline(power * options.stage_splits) for power in powers]

    def _finer_pipeline(self, splits: int) -> dict[str, Any]:
        """Returns more stages, and as many more micro-batches as their schedule needs."""
        model, changes = self._model, {"stage_splits": splits}
        pipeline = replace(model.options, stage_splits=splits).pipeline_as_cut
        assert pipeline is not None, "only pipelines have finer ones"
        training = is_training(model.program)
        multiple = overlap(pipeline.schedule, pipeline.device_mapping, training=training)
        if model.num_micro_batches % multiple:
            count = math.lcm(model.num_micro_batches, multiple)
            if training:
                changes["gradient_accumulation_count"] = count
            changes["steps_per_execution"] = math.lcm(model.options.steps_per_execution, count)
        return changes

    def _pipeline_of(self, num_stages: int) -> dict[str, Any]:
        """Returns changes to a pipeline of so many stages, with as many steps as it needs."""
        options, changes = self._model.options, {"pipeline_stages": num_stages}
        schedule = (
            PipelineSchedule.Grouped if options.pipeline is None else options.pipeline.schedule
        )
        training = is_training_step(self._model.graph)
        count = overlap(schedule, range(num_stages), training=training)
        if options.pipeline is not None:
            count = math.lcm(self._model.num_micro_batches, count)
            if training and count != options.gradient_accumulation_count:
                changes["gradient_accumulation_count"] = count
        if options.steps_per_execution % count:
            changes["steps_per_execution"] = math.lcm(options.steps_per_execution, count)
        return changes

    def _least(self, candidates: Sequence[Mapping[str, Any]]) -> Iterator[Fix]:
        """Yields the first of some changes, each going further, that fits; else what helps most."""
        best: Fix | None = None
        for changes in candidates:
            try:
                changed = self._changed(changes)
            except ValueError:
                break  # a stage has no more layers to be cut between
            fix = self._fix(changes, changed, self._batch_size)
            if fix.fits:
                yield fix
                return
            if best is None or _is_better(fix, best.max_tile_bytes, self._model):
                best = fix
            if fix.max_tile_bytes > self._model.memory.max_tile_bytes and not (
                _ON_MORE_IPUS & changes.keys()
            ):
                break  # a step further would lead further away
        if best is not None and best.max_tile_bytes < self._model.memory.max_tile_bytes:
            yield best

    def _as_read(self, options: CostOptions) -> CostOptions:
        """Returns the options with those as they were that the first passes do not look at."""
        # Branches are compared by their cycles, so their products have to be planned as chosen.
        before = self._model.options
        if any(op.kind == "conditional" for op in self._model.graph.walk()):
            return replace(options, num_ipus=1)
        return replace(
            options,
            num_ipus=1,
            available_memory_proportion=before.available_memory_proportion,
        )

    def _changed(self, changes: Mapping[str, Any]) -> ModelledProgram:
        """Models the program with some changes; raises a `ValueError` if it cannot have them."""
        changes, dtype, graph = dict(changes), None, self._model.graph
        if self._variants is not None and "dtype" in changes:
            dtype = changes.pop("dtype")
            graph = self._in_dtype(dtype)
        num_stages = changes.pop("pipeline_stages", None)
        options = replace(self._model.options, **changes)
        if num_stages is not None:
            return self._pipelined(dtype, num_stages, options)
        shared = self._as_read(options)
        known = (model for a, b, model in self._read if a is graph and b == shared)
        read = next(known, None)
        if read is None:
            before = self._model
            model = ModelledProgram(
                name=before.name, graph=graph, target=before.target, options=options
            )
            read = _after(READING_PASSES, model)
            self._read.append((graph, shared, read))
        return _after(MODEL_PASSES[len(READING_PASSES) :], replace(read, options=options))

    def _pipelined(
        self, dtype: str | None, num_stages: int, options: CostOptions
    ) -> ModelledProgram:
        """Models the pipeline that `suggest_pipeline` would suggest, as it would run."""
        model, step = self._model, self._by_layer(dtype)
        if step is None:
            raise ValueError(f"The layers cannot be assigned to {num_stages} stages.")
        training = is_training_step(model.graph)
        pipeline = options.pipeline or Pipeline(device_mapping=(0, 1))
        pipeline = replace(pipeline, device_mapping=tuple(range(num_stages)))
        count = options.gradient_accumulation_count
        if training and options.pipeline is None:
            count = overlap(pipeline.schedule, pipeline.device_mapping, training=True)
        options = replace(options, gradient_accumulation_count=count, pipeline=pipeline)
        found = balanced_pipeline(
            step,
            num_stages,
            target=model.target,
            schedule=pipeline.schedule,
            training=training,
            options=options,
        )
        graph = graph_in_stages(step.graph, found.after.ends)
        return model_graph(model.name, graph, model.target, options)

    def _in_dtype(self, dtype: str) -> Graph:
        assert self._variants is not None, "only models are written again"
        if dtype not in self._graphs:
            self._graphs[dtype] = self._variants.in_dtype(dtype)
        graph = self._graphs[dtype]
        if graph is None:
            raise ValueError(f"The model cannot be made again in {dtype}.")
        return graph

    def _by_layer(self, dtype: str | None) -> LayeredStep | None:
        assert self._variants is not None, "only models are written again"
        if dtype not in self._layered:
            self._layered[dtype] = self._variants.by_layer(dtype)
        return self._layered[dtype]

    def _fix(self, changes: Mapping[str, Any], model: ModelledProgram, batch_size: int) -> Fix:
        seconds = model.cycles_per_step / model.target.clock_hz
        return Fix(
            changes=dict(changes),
            max_tile_bytes=model.memory.max_tile_bytes,
            fits=model.memory.fits,
            excess_code_bytes=max(model.memory.code_bytes - model.memory.code_region_bytes, 0),
            seconds_per_sample=seconds / batch_size,
        )


def _is_better(fix: Fix, needed: int, model: ModelledProgram) -> bool:
    """Whether a fix makes the model fit, or is clearly nearer to that than the bytes needed."""
    excess = needed - model.memory.tile_bytes
    return fix.fits or fix.max_tile_bytes <= needed - _LEAST_SAVING * excess


def _after(
    passes: Sequence[Callable[[ModelledProgram], ModelledProgram]], model: ModelledProgram
) -> ModelledProgram:
    for model_pass in passes:
        model = model_pass(model)
    return model
