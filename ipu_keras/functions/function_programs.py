"""Makes programs of a device from the functions that users give to `strategy.run`."""

import contextlib
import warnings
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.device import IpuDevice
from ipu_keras.feeds.dataset_iterators import DatasetIterator
from ipu_keras.functions.graph_programs import (
    GraphProgram,
    explain_infeeds,
    infeeds_in,
    programs_in,
    running,
    skipped,
)
from ipu_keras.functions.place import Place
from ipu_keras.functions.synthetic_calls import SyntheticCall
from ipu_keras.functions.watched_calls import WatchedCall
from ipu_keras.host.halves import with_halves
from ipu_keras.host.operation_kinds import CONTROL_FLOW
from ipu_keras.host.replicas.layer_streams import serve_layers
from ipu_keras.host.traced_step import variables_of
from ipu_keras.host.zero_results import zero_results
from ipu_keras.internals.tensorflow.functions import (
    autograph_of,
    call_with_captures,
    jit_compile_of,
    leaves_with_paths,
)
from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ir import Graph, TensorSpec
from ipu_keras.machine.system import SYSTEM
from ipu_keras.program import OutfeedMode, Program
from ipu_keras.program.compilation_history import CompilationHistory, Signature
from ipu_keras.program.executable import Executable
from ipu_keras.settings.flags import ENVIRONMENT_VARIABLE, current_flags, data_asked_for
from ipu_keras.tracing import graph_of
from ipu_keras.tracing.frontend_attributes import numerics_in_scopes, numerics_scopes
from ipu_keras.tracing.infeeds import InfeedIterator, infeeds_for_iterators
from ipu_keras.tracing.lowering import LoweringError
from ipu_keras.tracing.replication import num_shards_of

# Kinds that TensorFlow traces in another way for XLA, or that an infeed replaces.
_TRACED_AGAIN = CONTROL_FLOW | {"IteratorGetNext"}


@dataclass(frozen=True)
class _Arguments:
    """What a function is called with: tensors, which are the infeed, and other values.

    Args:
        names: Names of the leaves, such as `"args[0]"`.
        leaves: A `TensorSpec` for each tensor, an `InfeedIterator` for each iterator of a
            dataset, and all other values as they are.
    """

    structure: Any
    names: tuple[str, ...]
    leaves: tuple[Any, ...]

    @classmethod
    def of(cls, args: Sequence[Any], kwargs: dict[str, Any]) -> "_Arguments":
        given = {"args": tuple(args), "kwargs": kwargs}
        paths = leaves_with_paths(given)
        return cls(
            structure=tf.nest.map_structure(lambda leaf: 0, given),
            names=tuple(
                first + "".join(f"[{part!r}]" for part in rest) for (first, *rest), _ in paths
            ),
            leaves=tuple(_leaf_of(value) for _, value in paths),
        )

    @property
    def infeed(self) -> tuple[TensorSpec, ...]:
        return tuple(leaf for leaf in self.leaves if isinstance(leaf, TensorSpec))

    @property
    def can_be_fed(self) -> bool:
        return all(0 not in spec.shape for spec in self.infeed)

    def unflatten(self, tensors: Sequence[Any]) -> Any:
        rest = iter(tensors)
        leaves = [
            next(rest) if isinstance(leaf, TensorSpec) else _anew(leaf) for leaf in self.leaves
        ]
        return tf.nest.pack_sequence_as(self.structure, leaves)

    def signature(self, jit_compile: bool | None) -> Signature:
        named = list(zip(self.names, self.leaves, strict=True))
        return Signature(
            tensors=tuple((name, leaf) for name, leaf in named if isinstance(leaf, TensorSpec)),
            repeat_count=1,
            outfeed_mode=OutfeedMode.LAST,
            compiled=jit_compile,
            values=(
                *((name, repr(leaf)) for name, leaf in named if not isinstance(leaf, TensorSpec)),
                *numerics_scopes(),
            ),
        )


class FunctionPrograms:
    """What a function was compiled to, by what it is given; TensorFlow dispatches it.

    It does not hold the function itself, which may be forgotten before its strategy.

    Args:
        call: Calls a function with arguments as a replica of the strategy does.
        device: The IPU device that runs it; `None` if another device does, so that there are no
            programs.
        compile_program: Called in the same way as `ipu_keras.profiling.compilation.compiled`.
    """

    def __init__(
        self,
        function: Any,
        call: Callable[..., Any],
        device: IpuDevice | None,
        *,
        compile_program: Callable[..., Executable],
    ):
        self._name = str(getattr(function, "__name__", "function"))
        self._jit_compile = jit_compile_of(function)
        self._again = _traceable(function)
        self._call = call
        self._device = device
        self._compile = compile_program
        # By the position of a program among those in the function, as several may have the same
        # name.
        self._histories: dict[int, CompilationHistory] = defaultdict(CompilationHistory)
        self._programs: dict[Hashable, tuple[GraphProgram, ...]] = {}
        self._infeeds: dict[Hashable, list[DatasetIterator]] = {}
        self._synthetic: dict[Hashable, SyntheticCall] = {}
        # What the flags said of data.
        self._flags: dict[Hashable, tuple] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._programs

    def compile(
        self, key: Hashable, concrete: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        """Makes a program of a trace, and whatever is asked for when one is compiled.

        A function that takes an empty tensor gets none, as an IPU cannot be fed that. Loops and
        pipelines in the function's graph are its programs.

        Args:
            key: Tells apart what the function is called with.

        Raises:
            tf.errors.ResourceExhaustedError: The program does not fit on an IPU, and
                `debug.allowOutOfMemory` is not `"true"`.
            ValueError: The tile of `--log_cycle_count` does not exist, or the device has not as
                many IPUs as the shards of the function.
            LoweringError: `debug.allowOutOfMemory` is `"false"`, and whether the program fits
                cannot be told.
        """
        arguments, device = _Arguments.of(args, kwargs), self._device
        self._flags[key] = data_asked_for(current_flags())
        self._infeeds[key] = infeeds_in(concrete.graph)
        synthetic = SyntheticCall.if_asked_for(concrete.graph.variables)
        if synthetic is not None and device is not None:
            self._synthetic[key] = synthetic
        if device is not None:
            serve_layers(concrete.graph.variables, device.engine)
        if device is None or not arguments.can_be_fed:
            self._programs[key] = ()
            return
        inside = programs_in(concrete.graph)
        num_replicas = Place(device).num_replicas_with_shards(num_shards_of(concrete.graph))
        for infeed in self._infeeds[key]:
            infeed.read_by(num_replicas)
        self._programs[key] = tuple(self._compiled_inside(inside, device)) or (
            GraphProgram(
                executable=self._compile(
                    self._name,
                    arguments.signature(self._jit_compile),
                    self._histories[0],
                    device,
                    lambda: self._executable(concrete, arguments, num_replicas),
                )
            ),
        )

    @contextlib.contextmanager
    def running(self, key: Hashable) -> Iterator[None]:
        """While this is open, the function is run with what `compile` had the same key for.

        Errors of an infeed that has no more elements, or was not initialized, name it.
        """
        programs = self._programs[key]
        if self._device is None:
            yield
            return
        self._warn_of_other_flags(self._flags[key])
        with running(programs, self._device):
            try:
                yield
            except tf.errors.OpError as error:
                explain_infeeds(error, self._infeeds[key])
                raise

    def _warn_of_other_flags(self, compiled_with: tuple) -> None:
        """Warns that a function, whose trace TensorFlow keeps, has the data it had before."""
        asked = data_asked_for(current_flags())
        if asked == compiled_with:
            return
        differing = sorted(set(asked) - set(compiled_with))
        warnings.warn(
            f"{ENVIRONMENT_VARIABLE} says otherwise of data than when {self._name!r} was compiled, "
            "which runs as it was. Received: "
            + ", ".join(f"{name} is now {value}" for name, value in differing)
            + ". Set the flags before a function runs for the first time, or make it anew: "
            "`tf.function(function.python_function)`.",
            stacklevel=2,
        )

    def synthetic(self, key: Hashable) -> SyntheticCall | None:
        """Returns what calls the function with other data than the host's; `None` for nothing."""
        return self._synthetic.get(key)

    def prepared(self, key: Hashable, run: Any, num_replicas: int = 1) -> Callable[..., Any]:
        """Returns what computes the numbers of an IPU, and stops where one would.

        Args:
            key: The same as for `compile`, which was called before.
            run: A trace of the function, for so many replicas; the result takes the tensors of
                its arguments.
        """
        numerics = numerics_in_scopes(SYSTEM.numerics).of_replicas(num_replicas)
        device = self._device
        assert device is not None
        if numerics.stops_at and self._programs[key]:
            return WatchedCall(run, self._programs[key], self._name, device, numerics)
        halved = with_halves(run, numerics, device.engine.rounding_keys)

        def call(*tensors: Any) -> Any:
            return call_with_captures(halved, tensors, halved.captured_inputs)

        return call

    def skip(self, key: Hashable, concrete: Any) -> Any:
        """Returns zeros in place of what a function would return that is only compiled."""
        assert self._device is not None
        skipped(self._programs[key], concrete.graph, self._device)
        return zero_results(concrete)

    def _compiled_inside(
        self, programs: Sequence[GraphProgram], device: IpuDevice
    ) -> Iterator[GraphProgram]:
        for place, program in enumerate(programs):
            yield compiled_in_graph(
                program,
                device,
                self._histories[place],
                self._compile,
                name=self._name if len(programs) == 1 else None,
            )

    def _executable(self, concrete: Any, arguments: _Arguments, num_replicas: int) -> Executable:
        graph = graph_of(concrete)
        program = Program(
            name=self._name,
            step=self._trace_again,
            infeed=arguments.infeed,
            unflatten=arguments.unflatten,
            repeat_count=1,
            num_replicas=num_replicas,
            compiled=self._jit_compile,
        )
        return Executable(
            program=program,
            graph=graph,
            host=None,
            reason="a function that TensorFlow dispatches",
            variables=variables_of([concrete]),
            as_written=lambda: concrete if _is_for_xla(concrete, graph) else None,
        )

    def _trace_again(self, given: Any) -> Any:
        try:
            with infeeds_for_iterators():
                return self._call(self._again, given["args"], given["kwargs"])
        except Exception as error:
            # An earlier trace has raised the user's own mistakes, so this is none. AutoGraph's
            # message has all lines of code that led to it; what happened comes last.
            *_, reason = str(error).splitlines() or [type(error).__name__]
            raise LoweringError(
                f"The function {self._name!r} cannot be traced as an IPU takes it, with known "
                f"shapes and with infeeds for iterators. Received: {reason.strip()}"
            ) from error


def compiled_in_graph(
    program: GraphProgram,
    device: IpuDevice,
    history: CompilationHistory,
    compile_program: Callable[..., Executable],
    *,
    name: str | None = None,
) -> GraphProgram:
    """Compiles a program in a function's graph, and raises what `FunctionPrograms.compile` raises.

    Args:
        name: The program's name, unless a user has chosen one.
    """
    program.check()
    described = program.executable.program
    if name is not None and not program.is_named:
        described = replace(described, name=name)
    signature = Signature(
        tensors=tuple((f"infeed[{k}]", spec) for k, spec in enumerate(described.infeed)),
        repeat_count=described.repeat_count,
        outfeed_mode=described.outfeed_mode,
        compiled=described.compiled,
    )
    executable = compile_program(
        described.name,
        signature,
        history,
        device,
        lambda: replace(program.executable, program=described),
    )
    return replace(program, executable=executable)


def _traceable(function: Any) -> Any:
    """Returns what can be traced as the function is; for a trace, the trace itself."""
    if not isinstance(function, tf.types.experimental.GenericFunction):
        return function
    return tf.function(function.python_function, autograph=autograph_of(function))


def _leaf_of(value: Any) -> Any:
    """Returns what a program keeps of an argument: types alone for tensors and iterators."""
    if isinstance(value, tf.Tensor | np.ndarray | np.generic):
        return TensorSpec(static_sizes(value), tf.as_dtype(value.dtype).name)
    return InfeedIterator(value.element_spec) if isinstance(value, tf.data.Iterator) else value


def _anew(leaf: Any) -> Any:
    """Returns an iterator that counts from the beginning, for equal traces to be equal."""
    return InfeedIterator(leaf.element_spec) if isinstance(leaf, InfeedIterator) else leaf


def _is_for_xla(concrete: Any, graph: Graph) -> bool:
    """Whether XLA can take a trace as it is; variables have to be captured, for one."""
    arguments = concrete.inputs[: len(concrete.inputs) - len(concrete.captured_inputs)]
    return not _TRACED_AGAIN & graph.kinds and all(
        tensor.shape.is_fully_defined() and tensor.dtype != tf.resource for tensor in arguments
    )
