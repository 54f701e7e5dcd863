"""Builds what the host runs for a program, and runs it.

`ipu_keras.host.plan` chooses which of the constructs is used.
"""

import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.device import IpuDevice
from ipu_keras.device.traced_for import traced_for
from ipu_keras.host.exceptions import ExceptionWatch, FoundException, TilesExceptedError
from ipu_keras.host.first_steps import FirstSteps, steps_before_xla
from ipu_keras.host.halves import with_halves
from ipu_keras.host.operation_kinds import CONTROL_FLOW, lacked_by_xla
from ipu_keras.host.plan import HostExecution, HostPlan, plan_host
from ipu_keras.host.replicas.replica_values import Captures
from ipu_keras.host.replicas.replica_variables import ReplicaVariables, written_variables
from ipu_keras.host.step_graphs import StepGraphs
from ipu_keras.host.traced_step import TracedStep, trace
from ipu_keras.host.zero_results import zero_results
from ipu_keras.internals.tensorflow.contexts import may_record
from ipu_keras.internals.tensorflow.functions import EagerCall, call_with_captures
from ipu_keras.internals.tensorflow.log_levels import start_xla, without_notes
from ipu_keras.internals.tensorflow.operations import uses_onednn
from ipu_keras.program import Program
from ipu_keras.program.executable import Executable
from ipu_keras.progress import phase, showing
from ipu_keras.tracing import graph_of, no_garbage_collection


def build(program: Program, device: IpuDevice, *, onednn: bool | None = None) -> Executable:
    """Compiles a program for a device; TensorFlow is asked for `onednn` if it is `None`.

    XLA compiles the executable, where that was chosen, when it runs for the first time, or
    after its first steps.
    """
    onednn = uses_onednn() if onednn is None else onednn
    with traced_for(device):
        step = traced(program, onednn=onednn)
    return build_traced(program, step, device, onednn=onednn)


@no_garbage_collection()
def traced(program: Program, *, onednn: bool | None = None) -> TracedStep:
    """Traces a program's step, for programs of any number of such steps."""
    # Most programs end up in XLA, and only XLA itself takes longer than tracing, so the first
    # trace is one that XLA can use.
    for_xla = program.compiled is not False
    with phase("trace"):
        return trace(program, for_xla, onednn=uses_onednn() if onednn is None else onednn)


@no_garbage_collection()
def build_traced(
    program: Program, step: TracedStep, device: IpuDevice, *, onednn: bool | None = None
) -> Executable:
    """Compiles a program whose step is already traced."""
    onednn = uses_onednn() if onednn is None else onednn
    with phase("plan"):
        graph = graph_of(step.function)
        plan = plan_host(program, graph, onednn=onednn)
    return Executable(
        program=program,
        graph=graph,
        host=HostCallable(plan, step, device),
        reason=plan.reason,
        variables=step.variables,
        as_written=step.as_written,
    )


class HostCallable:
    """Runs all steps of a program on the host, dispatched through a device.

    If it does so `plainly`, nothing is done for speed that takes longer than some steps do.
    """

    def __init__(
        self, plan: HostPlan, step: TracedStep, device: IpuDevice, *, plainly: bool = False
    ):
        self._plan = plan
        self._step = step
        self._device = device
        self._variables: ReplicaVariables | None = None
        self._executions = list(plan.executions)
        self._refusal: str | None = None
        self._function: Any = None
        self._eager_call: EagerCall | None = None
        self._watch: ExceptionWatch | None = None
        self._in_parts = False
        self._ran = False
        self._plainly = plainly
        self._first: HostCallable | None = None
        self._first_steps = None if plainly else self._begun_op_by_op()
        # Checksums of the weights when a call began that might have been compiled.
        self._weights: list[int] | None = None

    @property
    def execution(self) -> HostExecution:
        """How the steps run, once the first ones that run op by op are over."""
        return self._executions[0]

    @property
    def refusal(self) -> str | None:
        """What XLA said when it could not compile the program; `None` if it could."""
        return self._refusal

    def __call__(self, tensors) -> Any:
        tensors = list(tensors)
        if self._ran:
            return self._call(tensors)
        num_steps = self._plan.program.repeat_count
        if self._first_steps is not None and not self._first_steps.are_over(num_steps):
            return self._op_by_op(tensors)
        if self._first is not None:
            # Replicas keep their own values when XLA takes over.
            self._variables = self._first.variables
            self._first = None
        # XLA compiles when a function first runs, so the first run is what may take long.
        with showing(self._plan.program.title), phase("first run on the host"), without_notes():
            outfeed = self._first_call(tensors)
        self._ran = True
        return outfeed

    def without_running(self) -> Any:
        """Returns zeros in place of the results of an execution, on the device."""
        self._make_sure_of_function()
        with tf.device(self._device.name):
            return zero_results(self._function)

    def begin(self, num_steps: int) -> None:
        """Says that a call begins, such as one of `evaluate`, that will run at most `num_steps`."""
        if self._first_steps is not None and not self._ran:
            self._first_steps.begin(num_steps, self._weights_written)

    def _begun_op_by_op(self) -> FirstSteps | None:
        """Returns what ends the first steps; `None` if there are none."""
        program = self._plan.program
        # Plain training in TensorFlow's executor has the same graph from the start. Inference
        # and accumulation have batches joined there, which takes long to trace, and XLA for
        # some convolutions.
        is_worked_on = program.fixed_answers or program.update is not None
        # Users who ask for XLA get it from the start.
        if program.compiled or not (self.execution.is_compiled or is_worked_on):
            return None
        count = steps_before_xla(program, self._plan.graph)
        return FirstSteps(count, fixed_answers=program.fixed_answers) if count else None

    def _op_by_op(self, tensors: list) -> Any:
        if self._first is None:
            self._first = self._plainly_op_by_op()
        outfeed = self._first(tensors)
        assert self._first_steps is not None
        self._first_steps.note(self._plan.program.repeat_count)
        return outfeed

    def _plainly_op_by_op(self) -> "HostCallable":
        others = tuple(each for each in self._executions if not each.is_compiled)
        plan = replace(self._plan, executions=others)
        return HostCallable(plan, self._step, self._device, plainly=True)

    def _weights_written(self) -> bool:
        """Whether weights that it only reads have other values than when this was last asked."""
        written = {id(variable) for variable in self._written()}
        read = (v for v in self._step.function.graph.variables if id(v) not in written)
        before, self._weights = self._weights, [_checksum(v.numpy()) for v in read]
        return before is not None and before != self._weights

    def _first_call(self, tensors: list) -> Any:
        if len(self._executions) == 1:
            return self._call(tensors)
        before: list[tuple[Any, tf.Tensor]] = []
        try:
            self._make_sure_of_function()
            # If an execution consists of parts, such as gradients and what follows them, some
            # parts have run when XLA refuses another.
            if self._in_parts:
                before = [(variable, variable.read_value()) for variable in self._written()]
            return self._call(tensors)
        except TilesExceptedError:
            raise
        except tf.errors.OpError as error:
            # XLA refuses a program before it runs any of it, and its compiled CPU code raises
            # no op errors, so this is an operation that it lacks. If the user's mistake is
            # behind it, the next construct reports it in TensorFlow's own words.
            self._refusal = error.message
        for variable, value in before:
            variable.assign(value)
        del self._executions[0]
        self._function = self._eager_call = None
        return self._first_call(tensors)

    def in_a_graph(self) -> Callable:
        """Returns the function that it calls, to be called in the graph that is being built.

        It takes what `StepGraphs` takes. Whoever runs that graph calls `synchronize` before and
        `note_execution` after it.
        """
        if self._function is None:
            # When a graph runs and XLA refuses an operation, nothing else can be tried any
            # more.
            lacked = lacked_by_xla(self._plan.graph)
            if lacked and self.execution.is_compiled:
                self._refusal = f"XLA lacks {', '.join(sorted(lacked))}"
                self._executions = [each for each in self._executions if not each.is_compiled]
            if self.execution.is_compiled:
                start_xla()
            self._function = self._build()
        return self._function

    @property
    def first_steps_in_a_graph(self) -> FirstSteps | None:
        """What ends the first steps of a program in a graph, once `in_a_graph` was called.

        It is `None` if XLA compiles nothing there, or from the start.
        """
        return self._first_steps if self.execution.is_compiled else None

    def op_by_op_in_a_graph(self) -> Callable:
        """As `in_a_graph`, of an execution by TensorFlow's executor, with the same variables."""
        first = self._plainly_op_by_op()
        first._variables = self._variables
        return first.in_a_graph()

    def in_a_graph_of_replicas(
        self,
        variables: ReplicaVariables,
        captures_of: Callable[[int], Captures],
        *,
        op_by_op: bool = False,
    ) -> Callable:
        """Does as `in_a_graph`, which was called before, where replicas do more than the program.

        Replicas take `captures_of` instead of all that the step and the weight update capture. With
        `op_by_op`, TensorFlow's executor runs the program.
        """
        if op_by_op:
            first = self._plainly_op_by_op()
            first._leave_xla()
            return first.in_a_graph_of_replicas(variables, captures_of)
        self._variables = variables
        return self._function_of(captures_of, apart=True)

    def synchronize(self) -> None:
        """Before an execution, gives the replicas the values of variables that they should have."""
        assert self._variables is not None
        self._variables.synchronize()

    def note_execution(self) -> None:
        """After an execution, remembers what the replicas' variables are."""
        assert self._variables is not None
        self._variables.note_execution()

    def _call(self, tensors) -> Any:
        self._make_sure_of_function()
        assert self._variables is not None
        with tf.device(self._device.name):
            self.synchronize()
            if tf.executing_eagerly() and not may_record():
                if self._eager_call is None:
                    self._eager_call = EagerCall(self._function)
                outfeed = self._watched(tensors)
            else:
                # The tensors are what it takes, and binding them to its signature anew takes 50
                # us.
                captures = self._function.captured_inputs
                outfeed = call_with_captures(self._function, tensors, captures)
        self.note_execution()
        return outfeed

    def _watched(self, tensors: list) -> Any:
        """Runs an execution eagerly, and sees to it that exceptions stop it."""
        assert self._eager_call is not None
        if self._watch is None:
            return self._eager_call(tensors)
        self._watch.begin()
        outfeed = self._eager_call(tensors)
        try:
            self._watch.check(tensors)
        except TilesExceptedError:
            # Replicas have the values from before, which were synchronized.
            self.note_execution()
            raise
        return outfeed

    def _watch_of(self, plain: Callable[[], Any]) -> ExceptionWatch:
        assert self._variables is not None
        variables = [*self._written(), *self._variables.copies]
        return ExceptionWatch(self._plan.program, plain, variables, self._operations)

    def first_not_finite(
        self, tensors: list, prepare: Callable[[], None]
    ) -> tuple[FoundException | None, bool]:
        """Looks where an execution makes NaN or an infinity; it changes nothing for those to come.

        It takes and returns what `ExceptionWatch.first_not_finite` does.
        """
        running = self if self._first is None else self._first
        plain = running._as_a_loop()
        assert plain._variables is not None
        with tf.device(self._device.name):

            def prepared() -> None:
                prepare()
                plain.synchronize()

            found = plain._watch_of(lambda: plain._function).first_not_finite(tensors, prepared)
        plain.note_execution()
        return found

    def _as_a_loop(self) -> "HostCallable":
        """Returns an execution of whole steps that follow each other in TensorFlow's loop."""
        plan = replace(
            self._plan,
            executions=(HostExecution.GRAPH_LOOP,),
            sequential=frozenset(),
            opening=frozenset(),
        )
        found = HostCallable(plan, self._step, self._device, plainly=True)
        found._variables = self._variables
        with tf.device(self._device.name):
            found._function = found._build()
        return found

    def _operations(self) -> set[str]:
        functions = [self._step.function, self._step.update]
        graphs = [graph_of(function) for function in functions if function is not None]
        return {op.name for graph in graphs for op in graph.walk()}

    def _written(self) -> list[Any]:
        """Returns the variables that step and weight update write; some may be there twice."""
        step, update, device = self._step.function, self._step.update, self._device.name
        written = written_variables(step, device)
        return written if update is None else written + written_variables(update, device)

    def _make_sure_of_function(self) -> None:
        if self._function is None:
            with tf.device(self._device.name):
                program = self._plan.program
                numerics = program.numerics.of_replicas(program.num_replicas)
                keys = self._device.engine.rounding_keys
                function = self._build()
                if program.numerics.stops_at:
                    self._watch = self._watch_of(lambda: self._as_a_loop()._function)
                    function = self._watch.watched(function, in_xla=not self._in_parts)
                self._function = with_halves(function, numerics, keys, program.pipeline)
                self._device.register_program(self._function.inference_fn.name.decode())

    @property
    def variables(self) -> ReplicaVariables | None:
        return self._variables

    @no_garbage_collection()
    def _build(self) -> Callable:
        program = self._plan.program
        if self._step.purpose.for_xla and not self.execution.is_compiled:
            self._leave_xla()
        if self._variables is None:
            own = [self._step.function]
            if program.own_updates:
                own.append(self._step.update)
            self._variables = ReplicaVariables(own, program.num_replicas, self._device)
        return self._function_of(self._variables.captures_of)

    def _function_of(
        self, captures_of: Callable[[int], Captures], *, apart: bool = False
    ) -> Callable:
        program, step = self._plan.program, self._step
        graphs = StepGraphs(
            self._plan,
            step.function,
            step.update,
            self.execution,
            captures_of,
            apart=apart,
            plainly=self._plainly,
            for_executor=step.for_executor,
        )

        def run(*given):
            return graphs(*given)

        run.__name__ = program.name
        self._in_parts = not graphs.is_one_program
        function = tf.function(run, autograph=False, jit_compile=graphs.is_one_program)
        batches = program.repeat_count * program.num_replicas
        specs = [tf.TensorSpec((batches, *s.shape), s.dtype) for s in program.infeed]
        carried = program.carried * program.num_replicas
        specs += [tf.TensorSpec(s.shape, s.dtype) for s in carried]
        concrete = function.get_concrete_function(*specs)
        return concrete

    def _leave_xla(self) -> None:
        """Turns the step, which was traced for XLA, into one for TensorFlow's executor."""
        program, onednn = self._plan.program, self._plan.onednn
        # Tracing takes long, and most that was traced for XLA serves TensorFlow too. But loops
        # and branches are one kernel each there, which blocks a thread.
        may_stay = not (self._step.could_fuse or CONTROL_FLOW & self._plan.graph.kinds)
        if may_stay or not self._step.can_be_traced_again:
            step = self._step.for_tensorflow()
            if step is not None:
                self._step = step
                return
        with traced_for(self._device):
            self._step = trace(program, for_xla=False, onednn=onednn)
        graph = graph_of(self._step.function)
        self._plan = plan_host(program, graph, onednn=onednn)
        executions = self._plan.executions
        self._executions = [each for each in executions if not each.is_compiled]


def _checksum(value: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
