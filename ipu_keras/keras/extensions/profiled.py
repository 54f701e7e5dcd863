"""What `profile` and its kin model: a function, a Keras model, or one with the IPU extension.

Each knows which options its program runs with, and how a step of it is traced.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import keras
import tensorflow as tf

from ipu_keras.cost import overlap
from ipu_keras.internals.keras.backend import compute_output_spec
from ipu_keras.ir import Graph, LayeredStep, Variants
from ipu_keras.keras.extensions.call_observer import in_stages
from ipu_keras.keras.extensions.layer_calls import functional_calls, graph_of, sequential_calls
from ipu_keras.keras.extensions.named_parts import with_named_parts
from ipu_keras.keras.extensions.pipeline_checks import (
    check_step_not_overridden,
    is_overridden,
    resolved_stages,
)
from ipu_keras.keras.extensions.remade_model import remade
from ipu_keras.keras.extensions.saved_options import SavedOptions
from ipu_keras.keras.extensions.symbolic_build import build_from
from ipu_keras.keras.extensions.training import TrainingParts, summing_gradients
from ipu_keras.keras.extensions.untouched_zeros import untouched_zeros
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops.distributed_batch_norm import distributed_batch_norm
from ipu_keras.profiling.configured_options import configured_options
from ipu_keras.profiling.given_options import check_options
from ipu_keras.profiling.models import traced_graph
from ipu_keras.program import WEIGHT_UPDATE_SCOPE
from ipu_keras.tracing import no_garbage_collection, replicated, traced_for_xla

MakeStep = Callable[["ProfiledModel", str], Callable[[Any], Any]]

_MODES = ("train", "test", "predict")


def profiled(model_or_function: Any) -> "ProfiledFunction":
    """Returns what knows how a model or a function is profiled."""
    # Models with the extension, whose own module imports this one.
    if isinstance(model_or_function, SavedOptions):
        return ProfiledExtension(model_or_function)
    if isinstance(model_or_function, keras.Model):
        return ProfiledModel(model_or_function)
    return ProfiledFunction(model_or_function)


_Profiled = TypeVar("_Profiled", bound="ProfiledFunction")


def written_as_asked(
    subject: _Profiled, options: Mapping[str, Any]
) -> tuple[_Profiled, dict[str, Any]]:
    """Returns what to trace for the options, and those that are left for the model of it.

    Layers of Keras keep more in float32 than they are told, which the trace alone knows.
    """
    written = subject.written_in(options.get("dtype"))
    if written is None:
        return subject, dict(options)
    return written, {name: value for name, value in options.items() if name != "dtype"}


class TraceKind(NamedTuple):
    """The options that decide what is traced; choices of equal kinds share a trace."""

    in_parts: bool
    accumulates: bool
    num_replicas: int

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "TraceKind":
        """Says whether a trace has to tell the weight update and the stages apart."""
        count, replicas = (
            options.get(name, 1) for name in ("gradient_accumulation_count", "num_replicas")
        )
        # A count may be a tensor.
        accumulates = options.get("pipeline") is not None or int(count) > 1
        return cls(accumulates or int(replicas) > 1, accumulates, int(replicas))


class ProfiledFunction:
    """A function of tensors, one call of which is modelled."""

    # Whether the first axis of the specs counts samples.
    has_batches = False

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def mode(self, mode: str | None, num_specs: int) -> str | None:
        """Returns the mode to profile in, which functions do not have."""
        if mode is not None:
            raise ValueError(
                "`mode` is for models only, and `model_or_function` is none. "
                f"Received: mode={mode!r} for {self._function!r}"
            )
        return None

    def note(self, mode: str | None, num_specs: int) -> str:
        """Says why a given mode of `None` is that of inference; empty if there is no question."""
        return ""

    def options(self, given: Mapping[str, Any], mode: str | None, specs: tuple) -> dict[str, Any]:
        """Returns the options of a step: those given, else those of what would run it."""
        check_options(given)
        return dict(given)

    def written_in(self, dtype: str | None) -> Self | None:
        """Returns what is profiled with layers of a dtype; `None` if it cannot be written so.

        Functions have no layers.
        """
        return None

    def variants(
        self, specs: tuple, mode: str | None, options: Mapping[str, Any]
    ) -> Variants | None:
        """Returns how the step would be traced if it were written in another way.

        It is `None` for functions, of which nothing is known but what they compute.
        """
        return None

    @no_garbage_collection()
    def traced(
        self, specs: tuple, mode: str | None, options: Mapping[str, Any]
    ) -> tuple[str, Graph]:
        """Returns the name and the graph of a step.

        An operation that XLA cannot compile raises a LoweringError.
        """
        name = str(getattr(self._function, "__name__", "function"))
        num_replicas = TraceKind.of(options).num_replicas
        # With one replica nothing is set, so that replicas which a caller has set stay.
        with contextlib.nullcontext() if num_replicas == 1 else replicated(num_replicas):
            return name, traced_graph(self._function, *specs)


class ProfiledModel(ProfiledFunction):
    """A Keras model, a step of which is modelled in the mode of training, testing or prediction."""

    has_batches = True

    def __init__(self, model: Any):
        super().__init__(model)
        self.model = model
        # Models made again, by dtype; `None` for those that cannot be.
        self._in_dtype: dict[str, Self | None] = {}

    def mode(self, mode: str | None, num_specs: int) -> str:
        """Returns the mode to profile in: that given, else what the specs are enough for."""
        if num_specs == 0:
            raise ValueError("A model needs the spec of its inputs, with the batch size.")
        trains = self.model.compiled and num_specs > 1
        if mode is None:
            mode = "train" if trains else "predict"
        if not isinstance(mode, str) or mode not in _MODES:
            raise ValueError(f"`mode` must be one of {', '.join(_MODES)}. Received: mode={mode!r}")
        if mode != "predict" and not trains:
            raise ValueError(
                f"To {mode} a model it must be compiled, and the specs of inputs and labels be "
                f"given. Received: compiled={self.model.compiled}, {num_specs} specs"
            )
        return mode

    def note(self, mode: str | None, num_specs: int) -> str:
        if mode is not None or self.mode(mode, num_specs) != "predict":
            return ""
        lacking = "no labels were given" if self.model.compiled else "the model is not compiled"
        return f"Inference is modelled, as {lacking}"

    def options(self, given: Mapping[str, Any], mode: str | None, specs: tuple) -> dict[str, Any]:
        options = {**self.as_set(given, training=mode == "train"), **given}
        check_options(options)
        if "steps_per_execution" not in given:
            # A program ends with a weight update, and a pipeline takes several batches at least.
            count = options.get("gradient_accumulation_count", 1)
            least = options.get("steps_per_execution", count)
            steps = self.model.steps_per_execution
            options["steps_per_execution"] = least if steps % least else steps
        return options

    def as_set(self, given: Mapping[str, Any], *, training: bool) -> dict[str, Any]:
        """Returns the options that were set on the model, or configured for its device."""
        return {}

    def traced(
        self, specs: tuple, mode: str | None, options: Mapping[str, Any]
    ) -> tuple[str, Graph]:
        kind = TraceKind.of(options)
        make_step: MakeStep = ProfiledModel.own_step
        if kind.in_parts:
            make_step = functools.partial(ProfiledModel.step_in_parts, accumulates=kind.accumulates)
        return self.traced_step(specs, mode, make_step, num_replicas=kind.num_replicas)

    @no_garbage_collection()
    def traced_step(
        self, specs: tuple, mode: str | None, make_step: MakeStep, *, num_replicas: int = 1
    ) -> tuple[str, Graph]:
        """Returns the name and the graph of the step that `make_step` makes of the built model."""
        mode = self.mode(mode, len(specs))
        data = self.built(specs, mode)
        model = self.model
        # Legacy models refuse to be called by anything but their programs.
        with (
            model.distribute_strategy.scope(),
            self.called_by_program(),
            replicated(num_replicas),
            distributed_batch_norm(self.batch_norm_groups(num_replicas)),
        ):
            step = with_named_parts(model, make_step(self, mode))

            def run(data):
                if mode == "predict" and len(tf.nest.flatten(data)) > 1:
                    data = (data,)  # several inputs: Keras would take the second for labels
                with traced_for_xla():
                    # An optimizer asks for the replica that it works in.
                    extended = model.distribute_strategy.extended
                    return extended.call_for_each_replica(step, args=(data,))

            return f"{model.name}.{mode}", traced_graph(run, data)

    def written_in(self, dtype: str | None) -> Self | None:
        if dtype is None or dtype == self.model.dtype_policy.name:
            return self
        if dtype not in self._in_dtype:
            model = remade(self.model, dtype)
            self._in_dtype[dtype] = None if model is None else type(self)(model)
        return self._in_dtype[dtype]

    def by_layer(self, specs: tuple, mode: str | None, *, num_replicas: int = 1) -> LayeredStep:
        """Traces the step with the k-th call of a layer in the scope of stage k."""
        self.built(specs, self.mode(mode, len(specs)))
        calls = self.calls()
        layers = [call.operation for call in calls if call.is_layer]
        stages = resolved_stages(calls, range(len(layers)))

        def make_step(subject: "ProfiledModel", mode: str) -> Callable[[Any], Any]:
            step = subject.step_with_update(mode)

            def step_by_layer(data: Any) -> Any:
                with in_stages(subject.model, calls, stages):
                    return step(data)

            return step_by_layer

        _, graph = self.traced_step(specs, mode, make_step, num_replicas=num_replicas)
        return LayeredStep(graph=graph, num_layers=len(layers), together=_together(layers))

    def variants(self, specs: tuple, mode: str | None, options: Mapping[str, Any]) -> Variants:

        def in_dtype(dtype: str) -> Graph | None:
            found = self.written_in(dtype)
            return None if found is None else found.traced(specs, mode, options)[1]

        def by_layer(dtype: str | None) -> LayeredStep | None:
            found = self.written_in(dtype)
            replicas = TraceKind.of(options).num_replicas
            if found is None or not found.has_stages_of_layers():
                return None
            return found.by_layer(specs, mode, num_replicas=replicas)

        return Variants(in_dtype=in_dtype, by_layer=by_layer)

    def has_stages_of_layers(self) -> bool:
        """Whether users can say of each layer in which stage of a pipeline it is."""
        return graph_of(self.model) is not None or isinstance(self.model, keras.Sequential)

    def built(self, specs: tuple, mode: str) -> Any:
        """Makes the variables that the step needs, and returns what the step takes."""
        data = specs[0] if mode == "predict" else specs
        with self.model.distribute_strategy.scope(), self.called_by_program():
            if mode != "predict":
                self.prepare_to_train()
                with untouched_zeros():
                    build_from(self.model, data)
            elif not self.model.built:
                compute_output_spec(self.model, _keras_specs(data))
        return data

    def own_step(self, mode: str) -> Callable[[Any], Any]:
        """Returns the model's own step."""
        return getattr(self.model, f"{mode}_step")

    def step_in_parts(self, mode: str, *, accumulates: bool) -> Callable[[Any], Any]:
        """Returns the step traced in the scopes of its stages and of the weight update.

        A train step of the user's own updates the weights itself, which replicas can do and
        accumulation cannot.
        """
        if mode == "train" and not accumulates and is_overridden(self.model, "train_step"):
            return self.in_stages(summing_gradients(self.model, self.model.train_step))
        return self.in_stages(self.step_with_update(mode))

    def step_with_update(self, mode: str) -> Callable[[Any], Any]:
        """Returns the step whose weight update, if it trains, is traced in its scope.

        A train step of the user's own is refused, as its parts are not known.
        """
        if mode != "train":
            return self.own_step(mode)
        check_step_not_overridden(self.model, "train_step", pipelined=False)
        training = TrainingParts(self.model, self.accumulator_dtype())

        def step(data: Any) -> Any:
            results, gradients = training.step(data)
            with tf.name_scope(WEIGHT_UPDATE_SCOPE):
                training.update(gradients)
            return results

        return step

    def configured(self) -> dict[str, Any]:
        """Returns the options that the active `IPUConfig` says, for models that it is about."""
        return {}

    def calls(self) -> Sequence[Any]:
        """Returns the calls of the model's layers, in their order."""
        if isinstance(self.model, keras.Sequential):
            return sequential_calls(self.model)
        return functional_calls(self.model)

    def called_by_program(self) -> contextlib.AbstractContextManager[Any]:
        """Makes a context in which the model is called as a program calls it."""
        return contextlib.nullcontext()

    def prepare_to_train(self) -> None:
        """Does what `fit` does before the model is built for training."""

    def accumulator_dtype(self) -> Any:
        """Returns the type in which gradients are accumulated; None for that of the gradients."""
        return None

    def in_stages(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Returns the step, traced in the scopes of the model's stages if it has some."""
        return step

    def batch_norm_groups(self, num_replicas: int) -> int:
        """Returns how many replicas share the statistics of batch normalization."""
        return 1


class ProfiledExtension(ProfiledModel):
    """A model that was made in an `IPUStrategy`'s scope: what is modelled is what `fit` runs."""

    def options(self, given: Mapping[str, Any], mode: str | None, specs: tuple) -> dict[str, Any]:
        found = super().options(given, mode, specs)
        if self.model.built:
            return found
        assert mode is not None, "models have one"
        # Stages may be known only once it is built.
        self.built(specs, mode)
        return super().options(given, mode, specs)

    def as_set(self, given: Mapping[str, Any], *, training: bool) -> dict[str, Any]:
        found = self.configured()
        options, staged = self.model._ipu.options, self.model._ipu.stages.staged_calls()
        pipeline = None if staged is None else self.model._ipu.stages.pipeline_of(staged)
        if "num_ipus" not in given and "pipeline" not in given:
            # A caller who shares the IPUs out leaves none for replicas.
            found["num_replicas"] = self._num_replicas(1 if pipeline is None else pipeline.num_ipus)
        if pipeline is None:
            count = options.accumulation.steps_per_replica
            return {**found, "gradient_accumulation_count": count} if training and count else found
        depth = overlap(pipeline.schedule, pipeline.device_mapping, training=training)
        found["pipeline"] = pipeline
        if training:
            count = options.pipelining.steps_per_replica or depth
            return {**found, "gradient_accumulation_count": count}
        return {**found, "steps_per_execution": depth}

    def has_stages_of_layers(self) -> bool:
        # A mapping that users have set is for as many stages as there are.
        return self.model._ipu.options.pipelining.device_mapping is None

    def configured(self) -> dict[str, Any]:
        return configured_options()

    def calls(self) -> Sequence[Any]:
        return self.model._ipu.stages.calls()

    def called_by_program(self) -> contextlib.AbstractContextManager[Any]:
        return self.model._ipu.called_by_program()

    def prepare_to_train(self) -> None:
        self.model._ipu.adopt_optimizers()

    def accumulator_dtype(self) -> Any:
        return self.model._ipu.steps.accumulator_dtype()

    def in_stages(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return self.model._ipu.in_stages(step)

    def batch_norm_groups(self, num_replicas: int) -> int:
        return 1 if num_replicas == 1 else SYSTEM.norm_group_size

    def _num_replicas(self, needed: int) -> int:
        """Returns as many replicas as the device has IPUs for; 1 if it lacks some yet."""
        device = self.model.distribute_strategy.device
        num_ipus = 0 if device is None else len(device.ipus)
        return max(num_ipus // needed, 1) if num_ipus % needed == 0 else 1


def _together(layers: Sequence[keras.Layer]) -> tuple[tuple[int, int], ...]:
    """Returns the runs of positions that share a layer's weights, and so must share an IPU."""
    calls: dict[int, list[int]] = {}
    for position, layer in enumerate(layers):
        if layer.weights:
            calls.setdefault(id(layer), []).append(position)
    return tuple((found[0], found[-1]) for found in calls.values() if len(found) > 1)


def _keras_specs(specs: Any) -> Any:
    return tf.nest.map_structure(lambda spec: keras.KerasTensor(spec.shape, spec.dtype), specs)
