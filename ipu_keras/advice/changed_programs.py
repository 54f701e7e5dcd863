"""Models one program with changes, as they would be written, for searches among them."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ipu_keras.advice.balanced_pipeline import LayerCost, Pipelines, layer_costs
from ipu_keras.advice.changes import OFFLOADED, is_training_step, num_layers
from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.cost.passes import MODEL_PASSES, READING_PASSES, after_passes, model_graph
from ipu_keras.cost.pipeline.pipeline_run import is_training
from ipu_keras.cost.pipeline.schedule import overlap
from ipu_keras.ir import Graph, LayeredStep, Variants
from ipu_keras.program import Pipeline
from ipu_keras.settings.pipeline_choices import PipelineSchedule

# One whose stages are not known yet.
_ANY_PIPELINE = Pipeline(device_mapping=(0, 1))
# The largest machine that the emulator has.
_MAX_IPUS = 16
# Changes that put a program on more IPUs.
ON_MORE_IPUS = frozenset({"num_ipus", "pipeline_stages", "stage_splits"})


class ChangedPrograms:
    """Models changes of one program, whose first passes are run once for many of them.

    Args:
        variants: How else a Keras model could be written: changes of its dtype and of its IPUs
            are those of the model. Of other programs, all numbers change, and IPUs share the
            layers or cut the stages that there are.
    """

    def __init__(self, model: ModelledProgram, variants: Variants | None = None):
        # The graph is in the precision that was chosen already.
        self._model = replace(model, options=replace(model.options, dtype=None))
        self._variants = variants
        # The traces of variants by dtype.
        self._graphs: dict[str, Graph | None] = {}
        self._layered: dict[str | None, LayeredStep | None] = {}
        # Models by graph and options, which have no hash, after the first passes: these do not
        # know how many IPUs share the layers, so their results serve all numbers of IPUs.
        self._read: list[tuple[Graph, CostOptions, ModelledProgram]] = []
        # The same of pipelines by dtype and number of stages, and of what layers take.
        self._known_pipelines: list[tuple[tuple[str | None, int], CostOptions, Pipelines]] = []
        self._known_layers: list[tuple[LayeredStep, CostOptions, tuple[LayerCost, ...]]] = []

    def to_more_ipus(self, most_ipus: int = _MAX_IPUS) -> list[dict[str, Any]]:
        """Returns changes to twice as many IPUs, four times as many and so on, of each replica."""
        options = self._model.options
        powers = [2**k for k in range(1, _MAX_IPUS.bit_length())]
        powers = [power for power in powers if power * options.ipus_per_replica <= most_ipus]
        if not powers:
            return []
        if self._variants is not None:
            step = self._by_layer(None)
            most = 0 if step is None else step.num_layers
            stages = 1 if options.pipeline is None else options.pipeline.num_stages
            counts = [power * stages for power in powers]
            return [self._pipeline_of(count) for count in counts if count <= most]
        if options.pipeline is None:
            most = num_layers(self._model.graph) or _MAX_IPUS
            counts = [power * options.num_ipus for power in powers]
            return [{"num_ipus": count} for count in counts if count <= most]
        return [self._finer_pipeline(power * options.stage_splits) for power in powers]

    def with_changes(self, changes: Mapping[str, Any]) -> ModelledProgram:
        """Models the program with some changes; raises a `ValueError` if it cannot have them."""
        dtype, num_stages, options = self._taken_apart(changes)
        if num_stages is not None:
            return self._pipelined(dtype, num_stages, options)
        graph = self._model.graph if dtype is None else self._in_dtype(dtype)
        read = replace(self._as_read(graph, options), options=options)
        return after_passes(MODEL_PASSES[len(READING_PASSES) :], read)

    def cannot_fit(self, changes: Mapping[str, Any]) -> bool:
        """Whether what is known before a program is modelled is more than it may need.

        With variables that may be in remote memory, nothing is. Raises a `ValueError` as
        `with_changes` does.
        """
        dtype, num_stages, options = self._taken_apart(changes)
        if num_stages is not None:
            return (
                options.pipeline is None
                and self._pipelines(dtype, num_stages, options).cannot_fit()
            )
        if "dtype" not in changes or ON_MORE_IPUS & changes.keys():
            return False
        # Numbers of half as many bytes are half of the bytes at most; other changes leave what is
        # always live.
        memory = self._model.memory
        alone = len(changes) == 1
        least = memory.max_tile_bytes if alone else int(memory.always_live_by_tile.max())
        return least / 2 > memory.tile_bytes

    def is_finest(self, changes: Mapping[str, Any]) -> bool:
        """Whether no more stages of a new pipeline, which was modelled, would need less."""
        dtype, num_stages, options = self._taken_apart(changes)
        if num_stages is None or not changes.keys().isdisjoint(OFFLOADED):
            return False
        return self._pipelines(dtype, num_stages, options).balanced.is_finest

    def _taken_apart(
        self, changes: Mapping[str, Any]
    ) -> tuple[str | None, int | None, CostOptions]:
        """Returns what a model is written again for: its dtype and stages, and the options."""
        changes = dict(changes)
        dtype = changes.pop("dtype", None) if self._variants is not None else None
        num_stages = changes.pop("pipeline_stages", None)
        offloaded = {name: changes.pop(name) for name in OFFLOADED if name in changes}
        options = replace(self._model.options, **changes)
        if offloaded:
            if options.pipeline is None and num_stages is None:
                raise ValueError("Only pipelines have values in remote memory.")
            pipeline = replace(options.pipeline or _ANY_PIPELINE, **offloaded)
            options = replace(options, pipeline=pipeline)
        return dtype, num_stages, options

    def _as_read(self, graph: Graph, options: CostOptions) -> ModelledProgram:
        """Returns the program after the first passes."""
        shared = self._options_of_reading(options)
        for known, known_options, model in self._read:
            if known is graph and known_options == shared:
                return model
        before = self._model
        model = ModelledProgram(
            name=before.name, graph=graph, target=before.target, options=options
        )
        read = after_passes(READING_PASSES, model)
        self._read.append((graph, shared, read))
        return read

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
        model, changes = self._model, {"pipeline_stages": num_stages}
        options, pipeline = model.options, model.options.pipeline
        training = is_training_step(model.graph)
        schedule = PipelineSchedule.Grouped if pipeline is None else pipeline.schedule
        count = overlap(schedule, range(num_stages), training=training)
        if pipeline is not None:
            count = math.lcm(model.num_micro_batches, count)
        # A pipeline that trains is always told how many steps are between its weight updates.
        if training and (pipeline is None or count != options.gradient_accumulation_count):
            changes["gradient_accumulation_count"] = count
        if options.steps_per_execution % count:
            changes["steps_per_execution"] = math.lcm(options.steps_per_execution, count)
        return changes

    def _options_of_reading(self, options: CostOptions) -> CostOptions:
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

    def _pipelined(
        self, dtype: str | None, num_stages: int, options: CostOptions
    ) -> ModelledProgram:
        """Models the pipeline that `suggest_pipeline` would suggest, as it would run."""
        model, found = self._model, self._pipelines(dtype, num_stages, options)
        ends = found.balanced.ends
        read = found.read(ends)
        pipeline = options.pipeline or _ANY_PIPELINE
        options = replace(
            options, pipeline=replace(pipeline, device_mapping=tuple(range(num_stages)))
        )
        if not _are_read_alike(read.options, options):
            return model_graph(model.name, read.graph, model.target, options)
        read = replace(read, name=model.name, options=options)
        return after_passes(MODEL_PASSES[len(READING_PASSES) :], read)

    def _pipelines(self, dtype: str | None, num_stages: int, options: CostOptions) -> Pipelines:
        """Returns the pipelines of so many stages; raises a `ValueError` if there are none."""
        model, step = self._model, self._by_layer(dtype)
        if step is None:
            raise ValueError(f"The layers cannot be assigned to {num_stages} stages.")
        pipeline = options.pipeline
        if pipeline is not None:
            # Stages are suggested for what is on the IPUs, wherever values then are.
            pipeline = replace(
                pipeline, offload_activations=None, offload_weight_update_variables=None
            )
            options = replace(options, pipeline=None if pipeline == _ANY_PIPELINE else pipeline)
        for known, known_options, pipelines in self._known_pipelines:
            if known == (dtype, num_stages) and known_options == options:
                return pipelines
        found = Pipelines(
            step,
            self._layers(step, options),
            num_stages,
            target=model.target,
            schedule=PipelineSchedule.Grouped if pipeline is None else pipeline.schedule,
            training=is_training_step(model.graph),
            options=options,
        )
        self._known_pipelines.append(((dtype, num_stages), options, found))
        return found

    def _layers(self, step: LayeredStep, options: CostOptions) -> tuple[LayerCost, ...]:
        # A layer by itself takes the same for any number of micro-batches that are added up.
        count = min(options.gradient_accumulation_count, 2)
        options = replace(
            options, pipeline=None, gradient_accumulation_count=count, steps_per_execution=count
        )
        for known, known_options, layers in self._known_layers:
            if known is step and known_options == options:
                return layers
        layers = layer_costs(step, self._model.target, options)
        self._known_layers.append((step, options, layers))
        return layers

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


def _are_read_alike(one: CostOptions, other: CostOptions) -> bool:
    """Whether the first passes do the same, which see no more than if there are micro-batches."""
    several = [options.gradient_accumulation_count > 1 for options in (one, other)]
    return several[0] == several[1] and other == replace(
        one,
        gradient_accumulation_count=other.gradient_accumulation_count,
        steps_per_execution=other.steps_per_execution,
    )
