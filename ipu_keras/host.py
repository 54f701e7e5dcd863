"""Builds what the host runs for a program: TensorFlow graphs around its step.

Which of the constructs is used is the compiler's choice
(`ipu_keras.compiler.host_execution`); this module only knows how to build each.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf
from tensorflow.python.util import _pywrap_util_port

from ipu_keras.compiler import Compilation, compile_graph
from ipu_keras.compiler.host_execution import CONTROL_FLOW
from ipu_keras.device import IpuDevice
from ipu_keras.executable import Executable
from ipu_keras.host_replicas import ReplicaVariables
from ipu_keras.host_steps import StepGraphs
from ipu_keras.program import HostExecution, Program, TensorSpec
from ipu_keras.tracing import (
    POOLING_GRADIENT,
    PRODUCT,
    RANDOM_UNIFORM,
    Replaced,
    as_written,
    batch_norms,
    compilable_random,
    fast_pooling_gradients,
    graph_of,
    joint_summed_products,
    late_tiles,
    layer_scopes,
    no_garbage_collection,
    replicated,
    traced_for_xla,
    undone,
    wide_products,
)


@no_garbage_collection()
def build(program: Program, device: IpuDevice, *, onednn: bool | None = None) -> Executable:
    """Compiles a program for a device.

    Args:
        program: What to execute.
        device: Where it is dispatched to.
        onednn: Whether TensorFlow computes with oneDNN; `None` asks TensorFlow.

    Returns:
        The executable. It is compiled by XLA, where that was chosen, when it
        runs for the first time.
    """
    # Most programs end up in XLA, and tracing takes longer than anything but
    # XLA itself, so the first trace is one that XLA can use.
    for_xla = program.compiled is not False
    onednn = _pywrap_util_port.IsMklEnabled() if onednn is None else onednn
    step = trace(program, for_xla, onednn=onednn)
    graph = graph_of(step.function)
    compilation = compile_graph(program, graph, onednn=onednn)
    return Executable(
        program=program,
        graph=graph,
        host=HostCallable(compilation, step, device),
        reason=compilation.reason,
        variables=step.variables,
        as_written=step.as_written,
    )


def variables_of(functions: Iterable[Any]) -> tuple[TensorSpec, ...]:
    """The variables that traced functions read or write, each once.

    Args:
        functions: Each a `tf.ConcreteFunction`.
    """
    distinct = {id(v): v for function in functions for v in function.graph.variables}
    return tuple(TensorSpec(tuple(v.shape), v.dtype.name) for v in distinct.values())


@dataclass(frozen=True)
class TracedStep:
    """A step as the host runs it.

    Args:
        function: A `tf.ConcreteFunction`.
        for_xla: Whether it was traced for XLA.
        replaced: What was replaced in it for the host's speed.
        could_fuse: Whether it has batch normalizations that TensorFlow computes faster if it
            is traced for TensorFlow.
        update: The trace of the weight update, if the program has one.
    """

    function: Any
    for_xla: bool
    replaced: Sequence[Replaced] = ()
    could_fuse: bool = False
    update: Any = None

    @property
    def variables(self) -> tuple[TensorSpec, ...]:
        """Those of the step and of the weight update."""
        return variables_of(
            [self.function] if self.update is None else [self.function, self.update]
        )

    def as_written(self) -> Any:
        """The step without what was replaced, for XLA; `None` if there is no such trace.

        Returns:
            A `tf.ConcreteFunction`, or one `AsWritten`.
        """
        if not self.for_xla or self.update is not None:
            return None
        return as_written(self.function, self.replaced)

    def for_tensorflow(self, *, onednn: bool) -> "TracedStep | None":
        """The step without what is replaced for XLA alone; `None` if there is no such trace.

        Args:
            onednn: Whether TensorFlow computes with oneDNN, whose pooling needs no replacement.
        """
        needless = {RANDOM_UNIFORM, PRODUCT, *([POOLING_GRADIENT] if onednn else [])}
        gone = [one for one in self.replaced if one.result.op.type in needless]
        kept = [one for one in self.replaced if one.result.op.type not in needless]
        function = undone(self.function, gone)
        return None if function is None else replace(self, function=function, replaced=kept)


def trace(program: Program, for_xla: bool, *, onednn: bool = False) -> TracedStep:
    """Traces one step as a function of its own, which is called once per step.

    Args:
        program: Whose step it is.
        for_xla: Whether to write it as XLA likes it, or as TensorFlow does.
        onednn: Whether TensorFlow computes with oneDNN. Its gradients of pooling take half
            the time of what replaces those of others.
    """

    def step(*tensors):
        return program.step(program.unflatten(tensors))

    step.__name__ = f"{program.name}_step"
    # Gradients of many batches may be computed together, by what knows TensorFlow's products.
    alone = for_xla and program.update is None
    with (
        replicated(program.num_replicas),
        fast_pooling_gradients() if for_xla or not onednn else nullcontext([]) as pooled,
        compilable_random() if for_xla else nullcontext([]) as drawn,
        joint_summed_products() as summed,
        late_tiles() as tiled,
        wide_products() if alone else nullcontext([]) as wide,
        batch_norms(fused=program.fast_math and not for_xla) as norms,
        traced_for_xla() if for_xla else nullcontext(),
        layer_scopes(),
    ):
        concrete = _traced(step, [tf.TensorSpec(s.shape, s.dtype) for s in program.infeed])
        update = None
        if program.update is not None:
            _, gradients = concrete.structured_outputs
            update = _traced(_update_of(program.name, program.update), gradients)
    could_fuse = norms.found and program.fast_math and not norms.fused
    instead = (*pooled, *drawn, *summed, *tiled, *wide)
    return TracedStep(concrete, for_xla, instead, could_fuse, update)


def _update_of(name: str, update: Callable[[list], Any]) -> Callable:
    def run(*gradients):
        update(list(gradients))

    run.__name__ = f"{name}_update"
    return run


def _traced(function: Callable, tensors: Sequence[Any]) -> Any:
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
    return tf.function(function, autograph=False).get_concrete_function(*specs)


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
        self._variables: ReplicaVariables | None = None
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
        with tf.device(self._device.name):
            if self._function is None:
                self._function = self._build()
            assert self._variables is not None
            self._variables.synchronize()
            outfeed = self._function(*tensors)
        self._variables.note_execution()
        return outfeed

    @no_garbage_collection()
    def _build(self) -> Callable:
        program = self._compilation.program
        if self._step.for_xla and not self.execution.is_compiled:
            self._leave_xla()
        self._variables = ReplicaVariables(self._step.function, program.num_replicas, self._device)
        graphs = StepGraphs(
            self._compilation,
            self._step.function,
            self._step.update,
            self.execution,
            self._variables,
        )

        def run(*feeds):
            return graphs(*feeds)

        run.__name__ = program.name
        function = tf.function(run, autograph=False, jit_compile=graphs.is_one_program)
        batches = program.repeat_count * program.num_replicas
        specs = [tf.TensorSpec((batches, *s.shape), s.dtype) for s in program.infeed]
        concrete = function.get_concrete_function(*specs)
        self._device.register_program(concrete.function_def.signature.name)
        return concrete

    def _leave_xla(self) -> None:
        """Makes of the step, which was traced for XLA, one for TensorFlow's executor."""
        program, onednn = self._compilation.program, self._compilation.onednn
        # Tracing takes long, and most that was traced for XLA serves TensorFlow too; but loops and
        # branches are one kernel each there, which blocks a thread.
        if not (self._step.could_fuse or CONTROL_FLOW & self._compilation.graph.kinds):
            step = self._step.for_tensorflow(onednn=onednn)
            if step is not None:
                self._step = step
                return
        self._step = trace(program, for_xla=False, onednn=onednn)
        graph = graph_of(self._step.function)
        self._compilation = compile_graph(program, graph, onednn=onednn)
        executions = self._compilation.executions
        self._executions = [each for each in executions if not each.is_compiled]
