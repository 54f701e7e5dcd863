"""Builds what the host runs for a program: TensorFlow graphs around its step.

Which of the constructs is used is the compiler's choice
(`ipu_keras.compiler.host_execution`); this module only knows how to build each.
"""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.util import _pywrap_util_port

from ipu_keras.compiler import Compilation, compile_graph
from ipu_keras.device import IpuDevice
from ipu_keras.executable import Executable
from ipu_keras.ir import Graph
from ipu_keras.program import HostExecution, OutfeedMode, Program, TensorSpec
from ipu_keras.tracing import (
    RANDOM_UNIFORM,
    Replaced,
    fast_pooling_gradients,
    graph_of,
    split_step,
    traced_for_xla,
    undone,
)

# Steps that a parallel loop has in flight. More than the cores can run only
# costs memory; TensorFlow's own default is 10.
_PARALLEL_STEPS = 4

# Of more compiled steps a loop calls each: a graph of thousands of calls takes
# long to build, and the loop's share of a long execution is small.
_MAX_UNROLLED_STEPS = 64

# What a trace for XLA writes in another way than TensorFlow's executor likes it:
# random numbers as many small operations, loops and branches as one kernel each.
_ONLY_FOR_XLA = frozenset(
    {RANDOM_UNIFORM, "Case", "If", "StatelessCase", "StatelessIf", "StatelessWhile", "While"}
)


def build(program: Program, device: IpuDevice) -> Executable:
    """Compiles a program for a device.

    Args:
        program: What to execute.
        device: Where it is dispatched to.

    Returns:
        The executable. It is compiled by XLA, where that was chosen, when it
        runs for the first time.
    """
    # Most programs end up in XLA, and tracing takes longer than anything but
    # XLA itself, so the first trace is one that XLA can use.
    for_xla = program.compiled is not False
    step = trace(program, for_xla)
    graph = graph_of(step.function)
    compilation = _compile(program, graph)
    return Executable(
        program=program,
        graph=graph,
        host=HostCallable(compilation, step, device),
        reason=compilation.reason,
        as_written=step.as_written,
    )


@dataclass(frozen=True)
class TracedStep:
    """A step as the host runs it.

    Args:
        function: A `tf.ConcreteFunction`.
        for_xla: Whether it was traced for XLA.
        replaced: What was replaced in it for the host's speed.
    """

    function: Any
    for_xla: bool
    replaced: Sequence[Replaced] = ()

    def as_written(self) -> Any:
        """The step without what was replaced, for XLA; `None` if there is no such trace."""
        return undone(self.function, self.replaced) if self.for_xla else None


def trace(program: Program, for_xla: bool) -> TracedStep:
    """Traces one step as a function of its own, which is called once per step.

    Args:
        program: Whose step it is.
        for_xla: Whether to write it as XLA likes it, or as TensorFlow does.
    """

    def step(*tensors):
        return program.step(program.unflatten(tensors))

    step.__name__ = f"{program.name}_step"
    function = tf.function(step, autograph=False)
    with fast_pooling_gradients() as replaced, traced_for_xla() if for_xla else nullcontext():
        concrete = function.get_concrete_function(*_step_specs(program))
    return TracedStep(concrete, for_xla, replaced)


class HostCallable:
    """Runs all steps of a program on the host, dispatched through a device.

    Args:
        compilation: The compiled program.
        step: The trace of its step that was compiled.
        device: Where the calls are dispatched to.
    """

    def __init__(self, compilation: Compilation, step: TracedStep, device: IpuDevice):
        self._compilation = compilation
        self._step = step
        self._device = device
        self._executions = list(compilation.executions)
        self._refusal: str | None = None
        self._function: Any = None
        self._ran = False

    @property
    def execution(self) -> HostExecution:
        """How the steps run."""
        return self._executions[0]

    @property
    def refusal(self) -> str | None:
        """What XLA said when it could not compile the program; `None` if it could."""
        return self._refusal

    def __call__(self, tensors) -> Any:
        tensors = list(tensors)
        if self._ran or len(self._executions) == 1:
            return self._call(tensors)
        try:
            outfeed = self._call(tensors)
        except tf.errors.OpError as error:
            # XLA refuses a program before it runs any of it, and its compiled
            # CPU code raises no op errors: this is an op that it lacks. If the
            # user's mistake is behind it, the next construct reports it in
            # TensorFlow's own words.
            self._refusal = error.message
        if self._refusal is not None:
            del self._executions[0]
            self._function = None
            return self(tensors)
        self._ran = True
        return outfeed

    def _call(self, tensors) -> Any:
        if self._function is None:
            self._function = self._build()
        with tf.device(self._device.name):
            return self._function(*tensors)

    def _build(self) -> Callable:
        program = self._compilation.program
        if self._step.for_xla and not self.execution.is_compiled:
            self._trace_again()
        function = _function(self._compilation, self._step.function, self.execution)
        specs = [tf.TensorSpec((program.repeat_count, *s.shape), s.dtype) for s in program.infeed]
        concrete = function.get_concrete_function(*specs)
        self._device.register_program(concrete.function_def.signature.name)
        return concrete

    def _trace_again(self) -> None:
        """Makes sure that the step is one for TensorFlow's executor."""
        # Tracing takes long, and most that was traced for XLA serves TensorFlow too.
        if _ONLY_FOR_XLA & self._compilation.graph.kinds:
            program = self._compilation.program
            self._step = trace(program, for_xla=False)
            self._compilation = _compile(program, graph_of(self._step.function))
            executions = self._compilation.executions
            self._executions = [each for each in executions if not each.is_compiled]


def _compile(program: Program, graph: Graph) -> Compilation:
    return compile_graph(program, graph, onednn=_pywrap_util_port.IsMklEnabled())


def _step_specs(program: Program) -> list[tf.TensorSpec]:
    return [tf.TensorSpec(spec.shape, spec.dtype) for spec in program.infeed]


def _function(compilation: Compilation, step, execution: HostExecution) -> Any:
    program = compilation.program
    in_order = compilation.graph.writes_state and not compilation.sequential

    def run(*feeds):
        if compilation.sequential:
            return _split_steps(compilation, step, feeds, execution)
        return _steps(program, step, feeds, execution, in_order=in_order)

    run.__name__ = program.name
    in_xla = execution is HostExecution.COMPILED_LOOP
    return tf.function(run, autograph=False, jit_compile=in_xla)


def _split_steps(compilation: Compilation, step, feeds, execution: HostExecution) -> Any:
    """The first parts of all steps in any order, then the second parts in turn."""
    program = compilation.program
    _check_results(program, step)
    first, second = split_step(step, compilation.sequential)
    between = tuple(
        TensorSpec(tuple(tensor.shape), tensor.dtype.name) for tensor in first.function.outputs
    )
    first_program = dataclasses.replace(
        program,
        infeed=tuple(program.infeed[i] for i in first.inputs),
        outfeed_mode=OutfeedMode.ALL,
    )
    first_feeds = [feeds[i] for i in first.inputs]
    kept = _steps(first_program, first.function, first_feeds, execution, in_order=False)
    second_program = dataclasses.replace(
        program, infeed=(*(program.infeed[i] for i in second.inputs), *between)
    )

    def finish(*feeds):
        return _loop(second_program, second.function, feeds, parallel_steps=1)

    in_turn = tf.function(finish, autograph=False, jit_compile=execution.is_compiled)
    return in_turn(*(feeds[i] for i in second.inputs), *kept)


def _steps(program: Program, step, feeds, execution: HostExecution, *, in_order: bool) -> Any:
    in_steps = execution is HostExecution.COMPILED_STEPS
    if in_steps:
        step = _compiled(program, step)
    # A single step needs no loop around it, which XLA would take long to see.
    if program.repeat_count <= (_MAX_UNROLLED_STEPS if in_steps else 1):
        return _unrolled(program, step, feeds)
    at_once = not in_order and execution is not HostExecution.GRAPH_LOOP
    return _loop(program, step, feeds, _PARALLEL_STEPS if at_once else 1)


def _compiled(program: Program, step) -> Any:
    """The step as an XLA program of its own."""
    function = tf.function(lambda *batch: step(*batch), autograph=False, jit_compile=True)
    return function.get_concrete_function(*_step_specs(program))


def _unrolled(program: Program, step, feeds) -> Any:
    """A call of the step for each batch of a super-batch, without a loop."""
    structure = step.structured_outputs
    _check_results(program, step)
    batches = zip(*map(tf.unstack, feeds), strict=True) if feeds else [()] * program.repeat_count
    results = [tf.nest.flatten(step(*batch)) for batch in batches]
    if program.outfeed_mode is OutfeedMode.ALL:
        flat = [tf.stack(values) for values in zip(*results, strict=True)]
    else:
        flat = results[-1]
    return tf.nest.pack_sequence_as(structure, flat)


def _loop(program: Program, step, feeds, parallel_steps: int) -> Any:
    """A TensorFlow loop over the steps of a super-batch."""
    structure = step.structured_outputs
    outputs = [_static(program, tensor) for tensor in tf.nest.flatten(structure)]
    keeps_all = program.outfeed_mode is OutfeedMode.ALL
    steps = program.repeat_count

    def start(tensor):
        if keeps_all:
            return tf.TensorArray(tensor.dtype, steps, element_shape=tensor.shape)
        return tf.zeros(tensor.shape, tensor.dtype)

    def body(index, *carried):
        results = tf.nest.flatten(step(*[feed[index] for feed in feeds]))
        if keeps_all:
            results = [array.write(index, r) for array, r in zip(carried, results, strict=True)]
        return index + 1, *results

    _, *carried = tf.while_loop(
        lambda index, *_: index < steps,
        body,
        [tf.constant(0), *map(start, outputs)],
        parallel_iterations=parallel_steps,
        maximum_iterations=steps,
    )
    if keeps_all:
        carried = [array.stack() for array in carried]
    return tf.nest.pack_sequence_as(structure, carried)


def _check_results(program: Program, step) -> None:
    for tensor in tf.nest.flatten(step.structured_outputs):
        _static(program, tensor)


def _static(program: Program, tensor) -> tf.TensorSpec:
    if not tensor.shape.is_fully_defined():
        raise ValueError(
            f"A result of program {program.name!r} has the shape {tensor.shape}, which is not "
            "fully defined. IPU programs are static: give the operation that makes it a fixed "
            f"output shape. Received: {tensor.name}"
        )
    return tf.TensorSpec(tensor.shape, tensor.dtype)
