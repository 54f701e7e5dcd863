"""The callable that Keras has as a model's train, test or predict function."""

import contextlib
import functools
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ipu_keras.device import IpuDevice
from ipu_keras.device.connection import runs_programs
from ipu_keras.device.traced_for import traced_for
from ipu_keras.feeds.dataset_feed import (
    ElementFeed,
    ElementFormat,
    mapped,
    synthetic_element,
    tensors_of,
)
from ipu_keras.host import host_program as host
from ipu_keras.host.exceptions import FoundException
from ipu_keras.host.synthetic_parameters import SyntheticParameters
from ipu_keras.host.traced_step import TracedStep
from ipu_keras.internals.fallbacks import fallbacks
from ipu_keras.internals.keras.backend import is_of_an_initializer
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.ir import Variants
from ipu_keras.keras.extensions.async_callbacks import StepLogs
from ipu_keras.keras.extensions.batch_formats import BatchFormats
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops import distributed_batch_norm
from ipu_keras.profiling.compilation import compiled
from ipu_keras.program import Accumulation, OutfeedMode, Pipeline, Program
from ipu_keras.program.compilation_history import CompilationHistory, Signature
from ipu_keras.program.executable import Executable
from ipu_keras.runtime import SuperBatch
from ipu_keras.settings.enumerations import SyntheticDataCategory
from ipu_keras.settings.flags import current_flags, data_asked_for
from ipu_keras.settings.synthetic_data import replaces_infeeds
from ipu_keras.tracing.frontend_attributes import numerics_in_scopes, numerics_scopes


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a model's steps are spread over accumulation, replicas and stages.

    The fields that `Program` has too mean the same here. `norm_group_size` replicas normalize
    their batches together where a layer does, `pipeline_of` gives the pipeline of a program with
    a number of steps, `check` is called with the format of batches before a program is made of
    them, and `variants_of` gives the variants of a program for specs of its data.
    """

    update: Callable[[list], Any] | None = None
    accumulation: Accumulation = field(default_factory=Accumulation)
    num_replicas: int = 1
    norm_group_size: int = 1
    pipeline_of: Callable[[int], Pipeline | None] = lambda num_steps: None
    check: Callable[[ElementFormat], None] = lambda element: None
    variants_of: Callable[[Any, Program], Variants | None] = lambda data, program: None


class StepFunction:
    """Executes a model's step on a strategy's device, compiled per format of its data.

    Arguments that `Program` has too mean the same here.

    Args:
        name: Name of the programs, such as `"train"`.
        compiled: `True` or `False` if the user asked for XLA or ruled it out, else `None`.
        history: Programs of the model that were compiled before.
        call_of: Returns the call of `fit`, `evaluate` or `predict` that is going on, or `None`.
        logs_each_step: Whether the results, which are then those of all steps, are logs for
            callbacks of each step.
        formats: Formats of the batches that the model was given before.
        shows_overflow: Whether halves that overflow are NaN whatever is configured.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[Any], Any],
        strategy: IPUStrategy,
        device: IpuDevice,
        *,
        outfeed_mode: OutfeedMode,
        layout: Layout,
        compiled: bool | None,
        history: CompilationHistory,
        first_steps: int | None = 0,
        fixed_answers: bool = False,
        call_of: Callable[[], Any] = lambda: None,
        model_name: str | None = None,
        logs_each_step: bool = False,
        formats: BatchFormats | None = None,
        shows_overflow: bool = False,
    ):
        self._name = name
        self._step = step
        self._strategy = strategy
        self._device = device
        self._outfeed_mode = outfeed_mode
        self._layout = layout
        self._compiled = compiled
        self._history = history
        self._first_steps = first_steps
        self._fixed_answers = fixed_answers
        self._call_of = call_of
        self._model_name = model_name
        self._logs_each_step = logs_each_step
        self._formats = BatchFormats() if formats is None else formats
        self._shows_overflow = shows_overflow
        self._executables: dict[tuple, Executable] = {}
        self._traced: dict[tuple, TracedStep] = {}
        self._num_runs: Counter[tuple] = Counter()
        # Where the flags ask for synthetic data: what programs have in place of variables.
        self._parameters: dict[tuple, SyntheticParameters | None] = {}
        # The call in which each program ran last. A weak reference, as a call ends with its
        # model's method.
        self._calls: dict[tuple, weakref.ref] = {}
        self._keeps_data = False
        self._kept: tuple[Executable, list] | None = None
        # What the last execution returned, and how often the device had been written to until
        # then.
        self._last: tuple[Any, int] | None = None

    @property
    def executables(self) -> tuple[Executable, ...]:
        """The programs compiled so far, oldest first."""
        return tuple(self._executables.values())

    @property
    def layout(self) -> Layout:
        """How its steps are spread."""
        return self._layout

    @property
    def num_runs(self) -> tuple[int, ...]:
        """How often each of `executables` has run."""
        return tuple(self._num_runs[key] for key in self._executables)

    def __call__(self, source: ElementFeed | Iterable[Any]) -> Any:
        """Runs one execution and returns its results as NumPy arrays.

        They are those of the last step, of all steps stacked, or `StepLogs`. `source` is a feed,
        or an iterable of the data of single batches; the end of a feed is a `StopIteration`.
        """
        asked = time.perf_counter_ns()
        if isinstance(source, ElementFeed):
            element, super_batch = source.element, next(source)
        else:
            batch = next(iter(source))
            element = self._formats.of(batch)
            memory = self._device.engine.feed_memory
            flags = current_flags()
            arrays = (
                synthetic_element(element.specs, flags)
                if replaces_infeeds(flags)
                else element.flatten(batch)
            )
            super_batch = SuperBatch.of([arrays], element.specs, memory)
        waited = time.perf_counter_ns() - asked
        key, executable = self._executable(element, self._num_steps(super_batch.num_steps))
        self._note_call(
            key, executable, self._call_of() if isinstance(source, ElementFeed) else None
        )
        outfeed = self._outfeed_of(key, executable, super_batch, waited)
        keeps_results = current_flags().asks_for_synthetic(SyntheticDataCategory.Outfeed)
        fetch = _zeros if keeps_results else _fetched
        results = mapped(fetch, outfeed)
        if self._logs_each_step:
            return StepLogs(results, self._layout.num_replicas)
        if self._outfeed_mode is OutfeedMode.LAST:
            self._last = results, self._device.num_writes
        return results

    def first_not_finite(
        self, batch: Any, prepare: Callable[[], None]
    ) -> tuple[FoundException | None, bool, Program]:
        """Looks where a step on a batch makes NaN or an infinity, and leaves all as it is.

        Each replica, and each step whose gradients are accumulated, takes the batch. What it takes
        and returns else is that of `ExceptionWatch`, and the program of the step.
        """
        element = self._formats.of(batch)
        layout = self._layout
        needed = layout.num_replicas * layout.accumulation.count
        batches = [element.flatten(batch)] * needed
        tensors = tensors_of(SuperBatch.of(batches, element.specs))
        _, executable = self._executable(element, self._num_steps(needed))
        return self._searched(executable, tensors, prepare)

    def first_not_finite_of_last(
        self, prepare: Callable[[], None]
    ) -> tuple[FoundException | None, bool, Program]:
        """Does as `first_not_finite`, with the data of the last execution, which were kept."""
        assert self._kept is not None
        return self._searched(*self._kept, prepare)

    def keep_data(self, kept: bool) -> None:
        """Says whether the data of the last execution are kept, of which a copy is made."""
        self._keeps_data, self._kept = kept, None

    def _searched(
        self, executable: Executable, tensors: list, prepare: Callable[[], None]
    ) -> tuple[FoundException | None, bool, Program]:
        assert executable.host is not None
        return *executable.host.first_not_finite(tensors, prepare), executable.program

    def _outfeed_of(
        self, key: tuple, executable: Executable, super_batch: SuperBatch, waited: int
    ) -> Any:
        """Runs an execution if programs run, and returns what is on the device then."""
        if not runs_programs(self._device):
            assert executable.host is not None
            self._device.engine.load(executable)
            return executable.host.without_running()
        parameters = self._parameters[key]
        with contextlib.nullcontext() if parameters is None else parameters.on_device():
            tensors = tensors_of(super_batch)
            if self._keeps_data:
                # The memory of a feed is written to again.
                self._kept = executable, [tf.constant(tensor.numpy()) for tensor in tensors]
            outfeed = self._device.engine.run(executable, tensors, waited)
        self._num_runs[key] += 1
        return outfeed

    def _note_call(self, key: tuple, executable: Executable, call: Any) -> None:
        """Tells the host when another call begins; a single batch is a call by itself."""
        last = self._calls.get(key)
        if call is not None and last is not None and last() is call:
            return
        assert executable.host is not None
        num_steps = executable.program.repeat_count if call is None else call.num_steps
        # The host decides by the steps to come whether compiling the program with XLA will pay.
        executable.host.begin(num_steps)
        if call is not None:
            self._calls[key] = weakref.ref(call)

    def is_last(self, results: Any) -> bool:
        """Whether the last execution returned these results and nothing has been written since.

        It is asked of programs that return only the last step's results.
        """
        if self._last is None:
            return False
        last, num_writes = self._last
        return results is last and self._device.num_writes == num_writes

    def _num_steps(self, num_batches: int) -> int:
        """Returns the steps that these batches make; each replica takes one per step."""
        layout = self._layout
        needed = layout.num_replicas * layout.accumulation.count
        if num_batches % needed:
            raise ValueError(
                f"The function {self._name!r} of this model needs batches for "
                f"{layout.num_replicas} replicas and {layout.accumulation.count} accumulated "
                f"gradients at once. Received: {num_batches}. Call `fit`, `evaluate` or `predict` "
                "instead of a method for a single batch."
            )
        return num_batches // layout.num_replicas

    def _executable(self, element: ElementFormat, num_steps: int) -> tuple[tuple, Executable]:
        trace = _trace_key(element)
        key = (*trace, num_steps, SYSTEM.numerics, *numerics_scopes())
        layout = self._layout
        if key not in self._executables:
            layout.check(element)
            numerics = numerics_in_scopes(SYSTEM.numerics)
            program = Program(
                name=self._name,
                step=self._run_step,
                infeed=element.specs,
                unflatten=element.unflatten,
                repeat_count=num_steps,
                outfeed_mode=self._outfeed_mode,
                update=None if layout.update is None else self._run_update,
                accumulation=layout.accumulation,
                num_replicas=layout.num_replicas,
                pipeline=layout.pipeline_of(num_steps),
                compiled=self._compiled,
                fast_math=SYSTEM.config.optimizations.enable_fast_math,
                first_steps=self._first_steps,
                fixed_answers=self._fixed_answers,
                model_name=self._model_name,
                numerics=replace(numerics, nanoo=True) if self._shows_overflow else numerics,
            )
            variants = functools.partial(layout.variants_of, _specs_of(element), program)
            program = replace(program, variants=variants)
            self._executables[key] = self._compile(program, element)
            self._parameters[key] = SyntheticParameters.if_asked_for(
                self._traced[trace].all_variables
            )
        return key, self._executables[key]

    def _compile(self, program: Program, element: ElementFormat) -> Executable:
        # Variables that the step makes while it is traced belong on the device.
        with self._strategy.scope():
            return compiled(
                program.name,
                _signature(program, element),
                self._history,
                self._device,
                lambda: self._build(program, element),
            )

    def _build(self, program: Program, element: ElementFormat) -> Executable:
        # What a step computes does not depend on the number of steps, so one trace serves all
        # executions.
        trace = _trace_key(element)
        if trace not in self._traced:
            with traced_for(self._device):
                self._traced[trace] = host.traced(program)
        return host.build_traced(program, self._traced[trace], self._device)

    def _run_step(self, data: Any) -> Any:
        with distributed_batch_norm.as_configured(), tf.variable_creator_scope(_made_outside):
            return self._strategy.extended.call_for_each_replica(self._step, args=(data,))

    def _run_update(self, gradients: list[Any]) -> None:
        self._strategy.extended.call_for_each_replica(self._layout.update, args=(gradients,))


def _trace_key(element: ElementFormat) -> tuple:
    # A trace reads tables on the host, or not, as the flags say.
    return (*element.key, data_asked_for(current_flags()))


def _specs_of(element: ElementFormat) -> Any:
    """Returns the data of a batch as specs of TensorFlow's."""
    specs = [tf.TensorSpec(spec.shape, spec.dtype) for spec in element.specs]
    return element.unflatten(specs)


def _fetched(tensor: tf.Tensor) -> np.ndarray:
    return tensor.numpy()


def _zeros(tensor: tf.Tensor) -> np.ndarray:
    return np.zeros(tensor.shape, tensor.dtype.as_numpy_dtype)


def _made_outside(next_creator: Callable[..., Any], **options: Any) -> Any:
    """Makes a variable of Keras's at once, such as the state of an optimizer in a `train_step`.

    TensorFlow would lift its initial value out of the trace, and trace the step a second time.
    """
    if not fallbacks().attempt(
        "one trace of steps that make variables", is_of_an_initializer, options["initial_value"]
    ):
        return next_creator(**options)
    with tf.init_scope():
        return next_creator(**{**options, "experimental_enable_variable_lifting": False})


def _signature(program: Program, element: ElementFormat) -> Signature:
    paths = keras.tree.flatten_with_path(element.structure)
    names = {position: path for path, position in paths if position is not None}
    return Signature(
        tensors=tuple(
            ("data" + "".join(f"[{part!r}]" for part in names[position]), spec)
            for position, spec in enumerate(element.specs)
        ),
        repeat_count=program.repeat_count,
        outfeed_mode=program.outfeed_mode,
        compiled=program.compiled,
        values=(*numerics_scopes(), *data_asked_for(current_flags())),
    )
