"""Models one program with changes, as they would be written, for searches among them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ipu_keras.advice.balanced_pipeline import balanced_pipeline, graph_in_stages
from ipu_keras.advice.changes import is_training_step, num_layers
from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.cost.passes import MODEL_PASSES, READING_PASSES, model_graph
from ipu_keras.cost.pipeline.pipeline_run import is_training
from ipu_keras.cost.pipeline.schedule import overlap
from ipu_keras.ir import Graph, LayeredStep, Variants
from ipu_keras.program import Pipeline
from ipu_keras.settings.pipeline_choices import PipelineSchedule

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
        changes, dtype, graph = dict(changes), None, self._model.graph
        if self._variants is not None and "dtype" in changes:
            dtype = changes.pop("dtype")
            graph = self._in_dtype(dtype)
        num_stages = changes.pop("pipeline_stages", None)
        options = replace(self._model.options, **changes)
        if num_stages is not None:
            return self._pipelined(dtype, num_stages, options)
        read = replace(self._as_read(graph, options), options=options)
        return _after(MODEL_PASSES[len(READING_PASSES) :], read)

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
        read = _after(READING_PASSES, model)
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
        model, step = self._model, self._by_layer(dtype)
        if step is None:
            raise ValueError(f"The layers cannot be assigned to {num_stages} stages.")
        pipeline = options.pipeline or Pipeline(device_mapping=(0, 1))
        pipeline = replace(pipeline, device_mapping=tuple(range(num_stages)))
        options = replace(options, pipeline=pipeline)
        found = balanced_pipeline(
            step,
            num_stages,
            target=model.target,
            schedule=pipeline.schedule,
            training=is_training_step(model.graph),
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


def _after(
    passes: Sequence[Callable[[ModelledProgram], ModelledProgram]], model: ModelledProgram
) -> ModelledProgram:
    for model_pass in passes:
        model = model_pass(model)
    return model
