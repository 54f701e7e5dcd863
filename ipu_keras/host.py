"""Builds what the host runs for a program: TensorFlow graphs around its step.

Which of the constructs is used is the compiler's choice
(`ipu_keras.compiler.host_execution`); this module only knows how to build each.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import tensorflow as tf
from tensorflow.python.util import _pywrap_util_port

from ipu_keras.compiler import Compilation, compile_graph
from ipu_keras.device import IpuDevice
from ipu_keras.executable import Executable
from ipu_keras.program import HostExecution, OutfeedMode, Program
from ipu_keras.tracing import (
    RANDOM_UNIFORM,
    fast_pooling_gradients,
    graph_of,
    traced_for_xla,
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
    step = _trace(program, for_xla)
    graph = graph_of(step)
    compilation = compile_graph(program, graph, onednn=_pywrap_util_port.IsMklEnabled())
    host = HostCallable(compilation, {for_xla: step}, device)
    return Executable(program=program, graph=graph, host=host, reason=compilation.reason)


class HostCallable:
    """Runs all steps of a program on the host, dispatched through a device.

    Args:
        compilation: The compiled program.
        steps: Traces of its step, by whether they are made for XLA.
        device: Where the calls are dispatched to.
    """

    def __init__(self, compilation: Compilation, steps: dict[bool, Any], device: IpuDevice):
        self._compilation = compilation
        self._steps = steps
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
        for_xla = self.execution.is_compiled
        if for_xla not in self._steps:
            # Tracing takes long, and most that was traced for XLA serves TensorFlow too.
            reuses = True in self._steps and not _ONLY_FOR_XLA & self._compilation.graph.kinds
            self._steps[for_xla] = self._steps[True] if reuses else _trace(program, for_xla)
        function = _function(self._compilation, self._steps[for_xla], self.execution)
        specs = [tf.TensorSpec((program.repeat_count, *s.shape), s.dtype) for s in program.infeed]
        concrete = function.get_concrete_function(*specs)
        self._device.register_program(concrete.function_def.signature.name)
        return concrete


def _trace(program: Program, for_xla: bool) -> Any:
    """Traces one step as a function of its own, which is called once per step."""

    def step(*tensors):
        with fast_pooling_gradients(), traced_for_xla() if for_xla else nullcontext():
            return program.step(program.unflatten(tensors))

    specs = [tf.TensorSpec(spec.shape, spec.dtype) for spec in program.infeed]
    step.__name__ = f"{program.name}_step"
    return tf.function(step, autograph=False).get_concrete_function(*specs)


def _function(compilation: Compilation, step, execution: HostExecution) -> Any:
    program = compilation.program
    in_steps = execution is HostExecution.COMPILED_STEPS
    out_of_order = execution is HostExecution.PARALLEL_LOOP
    if in_steps:
        step = _compiled(program, step)
        out_of_order = not compilation.graph.writes_state

    # A single step needs no loop around it, which XLA would take long to see.
    max_unrolled = _MAX_UNROLLED_STEPS if in_steps else 1

    def run(*feeds):
        if program.repeat_count <= max_unrolled:
            return _unrolled(program, step, feeds)
        return _loop(program, step, feeds, _PARALLEL_STEPS if out_of_order else 1)

    run.__name__ = program.name
    in_xla = execution is HostExecution.COMPILED_LOOP
    return tf.function(run, autograph=False, jit_compile=in_xla)


def _compiled(program: Program, step) -> Any:
    """The step as an XLA program of its own."""
    specs = [tf.TensorSpec(spec.shape, spec.dtype) for spec in program.infeed]
    function = tf.function(lambda *batch: step(*batch), autograph=False, jit_compile=True)
    return function.get_concrete_function(*specs)


def _unrolled(program: Program, step, feeds) -> Any:
    """A call of the step for each batch of a super-batch, without a loop."""
    structure = step.structured_outputs
    for tensor in tf.nest.flatten(structure):
        _static(program, tensor)
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


def _static(program: Program, tensor) -> tf.TensorSpec:
    if not tensor.shape.is_fully_defined():
        raise ValueError(
            f"A result of program {program.name!r} has the shape {tensor.shape}, which is not "
            "fully defined. IPU programs are static: give the operation that makes it a fixed "
            f"output shape. Received: {tensor.name}"
        )
    return tf.TensorSpec(tensor.shape, tensor.dtype)
