"""Makes programs of loops and pipelines within functions, as parts of the functions' graphs.

Loops of a fixed number of steps, and pipelines, are programs as those of Keras models are.
Users build them while a function is traced, so each is put into that function's graph, as a
call of what the host runs for it, between what reads its infeed and what writes its outfeeds.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf

from ipu_keras.device import IpuDevice
from ipu_keras.feeds.dataset_iterators import DatasetIterator
from ipu_keras.feeds.result_queues import ResultQueue
from ipu_keras.functions.begun_op_by_op import BegunOpByOp
from ipu_keras.functions.place import Place, outermost_graph
from ipu_keras.functions.program_gradients import ExecutionByXla, either
from ipu_keras.functions.update_results import UpdateResults
from ipu_keras.host.exceptions import TilesExceptedError
from ipu_keras.host.host_program import HostCallable, build_traced
from ipu_keras.host.partial_sums import in_stages
from ipu_keras.host.replicas.replica_values import Captures
from ipu_keras.host.replicas.replica_variables import ReplicaVariables
from ipu_keras.host.replicas.together import Together, by_all_replicas
from ipu_keras.host.rewrites.all_rewrites import Purpose
from ipu_keras.host.step_in_a_graph import StepInAGraph
from ipu_keras.internals.tensorflow.contexts import (
    has_deterministic_operations,
    is_within_xla,
    may_record,
)
from ipu_keras.internals.tensorflow.functions import is_branch_or_loop, is_trace
from ipu_keras.internals.tensorflow.operations import uses_onednn
from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.system import SYSTEM
from ipu_keras.program import Accumulation, OutfeedMode, Pipeline, Program
from ipu_keras.program.executable import Executable
from ipu_keras.settings.arguments import divisors
from ipu_keras.tracing import graph_of
from ipu_keras.tracing.accumulations import check_accumulations
from ipu_keras.tracing.infeeds import is_traced_for_model
from ipu_keras.tracing.lowering import LoweringError
from ipu_keras.tracing.replication import current_replicas, note_shards

# So many bytes of elements are read before steps run, and of results kept until they have run;
# a longer loop is a loop over such parts. MLP, 200 steps: more saves nothing.
_MAX_BYTES = 1 << 26

_COLLECTION = "ipu_graph_programs"
_INFEEDS = "ipu_graph_infeeds"
_OUTFEEDS = "ipu_graph_outfeeds"


def _nothing() -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class GraphProgram:
    """A program in the graph of a function, or one that is the function.

    `synchronize` is called before the function runs, and `note_execution` after it.

    Args:
        check: Called before it is compiled; raises if it cannot run.
        is_named: Whether a user chose the program's name.
        variables: Variables of the replicas, if the program is all that they do.
        begun: Runs it op by op until XLA pays; `None` if XLA compiles all executions, or none.
    """

    executable: Executable
    is_named: bool = False
    check: Callable[[], None] = _nothing
    synchronize: Callable[[], None] = _nothing
    note_execution: Callable[[], None] = _nothing
    variables: ReplicaVariables | None = None
    begun: BegunOpByOp | None = None

    @property
    def num_replicas(self) -> int:
        return self.executable.program.num_replicas


@contextlib.contextmanager
def running(programs: Sequence[GraphProgram], device: IpuDevice) -> Iterator[None]:
    """While this is open, a function with programs in its graph runs; `device` counts the runs."""
    for program in programs:
        program.synchronize()
        if program.begun is not None:
            program.begun.begin()
    with device.engine.running([program.executable for program in programs]):
        try:
            yield
        except TilesExceptedError:
            # All replicas have the values from before, which were synchronized.
            for program in programs:
                program.note_execution()
            raise
    for program in programs:
        program.note_execution()
        if program.begun is not None:
            program.begun.note_execution()
        device.engine.note_execution(program.executable)


def skipped(programs: Sequence[GraphProgram], graph: Any, device: IpuDevice) -> list[Any]:
    """Does for a function that is only compiled what is left of running it.

    Its outfeeds get zeros in place of results. Returns the operations that write them, in a
    graph of a session.
    """
    for program in programs:
        device.engine.load(program.executable)
    written = (queue.write_zeros(count) for queue, count in graph.get_collection(_OUTFEEDS))
    return [operation for operation in written if operation is not None]


def explain_infeeds(error: tf.errors.OpError, infeeds: Sequence[DatasetIterator]) -> None:
    """Raises an error that names the infeed if one of them is behind an error of TensorFlow."""
    for infeed in infeeds:
        if not infeed.is_behind(error):
            continue
        if isinstance(error, tf.errors.OutOfRangeError):
            raise tf.errors.OutOfRangeError(
                error.node_def,
                error.op,
                "Infeed dataset iterator out of range. Are you trying to dequeue more elements "
                f"than are in the dataset? Received: the end of {infeed.name!r}. Repeat the "
                "dataset, or run fewer steps.",
            ) from error
        if infeed.is_missing(error):
            raise not_initialized(infeed.name) from error


def not_initialized(name: str) -> tf.errors.OpError:
    """Returns the error for an infeed that is read before its initializer was run."""
    return tf.errors.FailedPreconditionError(
        None,
        None,
        "Trying to access an infeed dataset iterator which has not been created. Did you "
        "initialize the infeed_queue by running the infeed_queue.initializer? "
        f"Received: {name!r}",
    )


@dataclass
class StepResults:
    """What a step that is being traced writes to outfeeds.

    Args:
        sums: The same as in `GraphWork`.
        written: For each queue, the tensors that are written to it.
        own_updates: Whether each replica updates weights of its own.
        num_updates: How often weights are updated by all steps.
        gradients: While a weight update is traced, what it begins with; else empty.
        updates: What weight updates write.
    """

    graph: Any
    sums: Callable[[tf.Tensor], tf.DType] | None
    written: dict[ResultQueue, Sequence[tf.Tensor]] = field(default_factory=dict)
    own_updates: bool = False
    num_updates: int = 0
    gradients: Sequence[tf.Tensor] = ()
    updates: list[UpdateResults] = field(default_factory=list)

    def write(
        self, queue_for: Callable[..., ResultQueue], tensors: Sequence[tf.Tensor]
    ) -> Sequence[Any]:
        """Has a queue get a result of each step or, in a weight update, of each update.

        What is done before the result is written is returned. A `NotImplementedError` says that
        each replica has an update of its own.
        """
        if not self.gradients:
            self.written[queue_for(self.num_replicas, self.sums)] = tensors
            return tensors
        if self.own_updates:
            raise NotImplementedError(
                "What a weight update sends is the same for all replicas: wrap the optimizer in a "
                "CrossReplicaOptimizer, or send gradients from a stage. Received: an enqueue in "
                f"`apply_gradients`, by {self.num_replicas} replicas that exchange none"
            )
        queue = queue_for(self.num_replicas)
        found = UpdateResults.of(queue, tensors, self.num_updates, self.num_replicas)
        self.updates.append(found)
        return [found.write(tensors, self.gradients)]

    @property
    def num_replicas(self) -> int:
        return current_replicas()


@dataclass(frozen=True, kw_only=True)
class GraphWork:
    """What is to become a program.

    Args:
        is_named: Whether a user chose the name; else a function that has one program lends its
            name.
        step: Takes the tensors of an element, then what was handed on; returns what it hands
            on. It writes outfeeds, and updates weights if `accumulation` is given.
        infeed: Where elements are read from; `None` if steps are fed nothing.
        carried: What the first step is handed.
        trains: Whether weights are updated with what was accumulated.
        sums: Returns the type in which results are added up over the accumulated steps, and
            sent once; `None` if all are sent.
        check: Called before it runs for the first time; raises if it cannot.
    """

    name: str
    step: Callable[..., Sequence[Any]]
    num_steps: int
    infeed: DatasetIterator | None = None
    carried: Sequence[tf.Tensor] = ()
    accumulation: Accumulation = field(default_factory=Accumulation)
    trains: bool = False
    pipeline: Pipeline | None = None
    sums: Callable[[tf.Tensor], tf.DType] | None = None
    check: Callable[[], None] = _nothing
    is_named: bool = False


_step_results: ContextVar[StepResults | None] = ContextVar("step_results", default=None)


def current_step_results() -> StepResults | None:
    """Returns those of the step being traced, in that step's own graph only; else `None`."""
    found = _step_results.get()
    graph = tf.compat.v1.get_default_graph()
    return found if found is not None and found.graph is graph else None


def is_program_allowed() -> bool:
    """Whether a program can be put into the graph that is being built.

    That is the graph of a function, which runs once when it is called; a step of another
    program, a branch, and the body of a loop are not.
    """
    graph = tf.compat.v1.get_default_graph()
    return (
        _step_results.get() is None
        and not tf.executing_eagerly()
        and is_trace(graph)
        and not is_branch_or_loop(graph)
        and not is_traced_for_model()
    )


def programs_in(graph: Any) -> list[GraphProgram]:
    """Returns the programs of a traced function's graph, and of those that it calls."""
    return list(graph.get_collection(_COLLECTION))


def note_infeed(infeed: DatasetIterator) -> None:
    """Remembers that the graph that is being built reads an infeed."""
    outermost_graph().add_to_collection(_INFEEDS, infeed)


def note_outfeed(queue: ResultQueue, num_results: int) -> None:
    """Remembers how many results the graph that is being built writes to an outfeed."""
    outermost_graph().add_to_collection(_OUTFEEDS, (queue, num_results))


def infeeds_in(graph: Any) -> list[DatasetIterator]:
    """Returns the infeeds that a traced function's graph reads, and those that it calls."""
    return list(dict.fromkeys(graph.get_collection(_INFEEDS)))


def put_into_graph(work: GraphWork, place: Place, num_replicas: int) -> list[tf.Tensor]:
    """Puts a program into the graph that is being built; returns what replica 0 hands on at last.

    There are `num_replicas` if its steps have no shards.
    """
    step, found = _traced(work, num_replicas)
    if work.pipeline is None:
        num_replicas = place.num_replicas_with_shards(step.num_shards)
    # So that replicas of the function around it have as many IPUs.
    ipus_each = step.num_shards if work.pipeline is None else work.pipeline.num_ipus
    if ipus_each > 1:
        note_shards(tf.compat.v1.get_default_graph(), ipus_each)
    program = _program(work, step, found, num_replicas)
    num_steps = _steps_per_call(program, step)
    executable = build_traced(
        replace(program, repeat_count=num_steps), step, place.device, onednn=uses_onednn()
    )
    host: Any = executable.host
    call = host.in_a_graph()
    in_session = not tf.compat.v1.executing_eagerly_outside_functions()
    # A function that captures a variable of nobody's cannot be saved; with feeds, it cannot anyway.
    has_feeds = work.infeed is not None or found.written or found.updates
    begun = BegunOpByOp.of(host, program.repeat_count) if in_session or has_feeds else None
    # What replicas do together has no gradient: each would need those of the others.
    may_have_gradients = num_replicas == 1 and _is_function_of_carried(work, found)
    if may_have_gradients and host.execution.is_compiled and (in_session or may_record()):
        call = ExecutionByXla(call)
    if begun is not None:
        call = begun.either(host.op_by_op_in_a_graph(), call)
    elif isinstance(call, ExecutionByXla):
        call = either(tf.constant(True), host.op_by_op_in_a_graph(), call)
    if work.infeed is not None:
        note_infeed(work.infeed)
    for queue in found.written:
        note_outfeed(queue, work.num_steps // (work.accumulation.count if work.sums else 1))
    for update in found.updates:
        note_outfeed(update.queue, work.num_steps // work.accumulation.count)
    # In a session, an operation synchronizes the variables whenever the program runs.
    _note(
        GraphProgram(
            executable=replace(executable, program=program, host=None),
            synchronize=_nothing if in_session else host.synchronize,
            note_execution=_nothing if in_session else host.note_execution,
            begun=begun,
            check=lambda: _check(work, step),
            is_named=work.is_named,
            variables=host.variables,
        )
    )
    execution = _Execution(work, program, list(found.written), found.updates, num_steps, begun)
    if num_replicas == 1:
        return execution(call, work.carried)
    return _by_all(execution, host, call, step.whole.captured_inputs)


def _is_function_of_carried(work: GraphWork, found: StepResults) -> bool:
    """Whether a program returns what it makes of its inputs, and does nothing else."""
    has_feeds = work.infeed is not None or found.written or found.updates
    return bool(work.carried) and not has_feeds and not work.trains


def _check(work: GraphWork, step: StepInAGraph) -> None:
    work.check()
    check_accumulations(step.whole.graph, work.num_steps)


@dataclass(frozen=True)
class _Execution:
    """What a function does to execute a program: all that is around what the host runs.

    The host runs `num_steps` at once, and the program may have more.
    """

    work: GraphWork
    program: Program
    queues: Sequence[ResultQueue]
    updates: Sequence[UpdateResults]
    num_steps: int
    begun: BegunOpByOp | None

    def __call__(self, call: Callable, carried: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Puts an execution into the graph being built; what is handed on is ordered by replica."""

        def run(carried: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            elements = self._elements()
            with in_stages(tf.compat.v1.get_default_graph(), self.work.pipeline):
                found = call(*elements, *carried)
            results, handed = found if self.work.carried else (found, [])
            for queue, tensors in zip(self.queues, results, strict=True):
                queue.write(_sent(tensors, self.program, self.work.sums))
            for update in self.updates:
                update.send()
            return list(handed)

        return _repeated(run, self.program.repeat_count // self.num_steps, carried)

    def _elements(self) -> list[tf.Tensor]:
        count = self.num_steps * self.program.num_replicas
        return [] if self.work.infeed is None else self.work.infeed.read_many(count)


def _by_all(
    execution: _Execution, host: HostCallable, call: Callable, captured: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Puts an execution by several replicas into the graph that is being built.

    It is a call that does for all replicas what is right if the function does nothing else, and
    stands for what is right where each replica does something for itself beside it.
    """
    carried, num_replicas = execution.work.carried, execution.program.num_replicas

    def alone(*given: tf.Tensor) -> list[tf.Tensor]:
        if not tf.compat.v1.executing_eagerly_outside_functions():
            host.synchronize()
        # Captured here, each replica's own is handed to `_beside_others` with the inputs of the
        # call.
        for tensor in captured:
            tf.compat.v1.get_default_graph().capture(tensor)
        return execution(call, list(given) * num_replicas)[: len(given)]

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in carried]
    whole = tf.function(alone, autograph=False).get_concrete_function(*specs)
    with by_all_replicas(lambda variables: _beside_others(execution, host, whole, variables)):
        return list(whole(*carried))


def _beside_others(
    execution: _Execution, host: HostCallable, whole: Any, variables: ReplicaVariables
) -> Together:
    """Returns an execution by replicas with values of their own, in place of the call `whole`."""
    captured = [tensor.ref() for tensor in whole.captured_inputs]
    num_carried = len(execution.work.carried)

    def run(by_replica: Sequence[Sequence[tf.Tensor]]) -> list[list[tf.Tensor]]:
        def captures_of(replica: int) -> Captures:
            return dict(zip(captured, by_replica[replica][num_carried:], strict=True))

        def all_replicas() -> list[tf.Tensor]:
            call = host.in_a_graph_of_replicas(variables, captures_of)
            if execution.begun is not None:
                plain = host.in_a_graph_of_replicas(variables, captures_of, op_by_op=True)
                call = execution.begun.either(plain, call)
            return execution(call, [t for own in by_replica for t in own[:num_carried]])

        handed = list(tf.function(all_replicas, autograph=False).get_concrete_function()())
        return [handed[k * num_carried :][:num_carried] for k in range(len(by_replica))]

    return run


def _traced(work: GraphWork, num_replicas: int) -> tuple[StepInAGraph, StepResults]:
    """Traces a step; returns the trace and what it writes."""
    traces: list[StepResults] = []

    def step(*tensors: tf.Tensor) -> Any:
        num_updates = work.num_steps // work.accumulation.count
        graph = tf.compat.v1.get_default_graph()
        found = StepResults(graph, work.sums, num_updates=num_updates)
        traces.append(found)
        token = _step_results.set(found)
        try:
            handed = list(work.step(*tensors))
        finally:
            _step_results.reset(token)
        results = [list(tensors) for tensors in found.written.values()]
        return (results, handed) if work.carried else results

    purpose = Purpose(
        for_xla=True,
        onednn=uses_onednn(),
        fast_math=False,
        accumulates=work.trains,
    )
    given = [*_infeed_of(work), *map(_spec_of, work.carried)]
    traced = StepInAGraph.trace(
        work.name,
        step,
        given,
        purpose=purpose,
        num_replicas=num_replicas,
        # The stages of a pipeline say themselves on which IPUs they are.
        shards="shared" if work.pipeline is None else "refused",
    )
    return traced, traces[-1]


def _program(work: GraphWork, step: StepInAGraph, found: StepResults, num_replicas: int) -> Program:
    modes = {queue.mode for queue in found.written}
    keeps_all = num_replicas > 1 or OutfeedMode.ALL in modes
    return Program(
        name=work.name,
        step=refuse_another_trace,
        infeed=_infeed_of(work),
        unflatten=tuple,
        repeat_count=work.num_steps,
        outfeed_mode=OutfeedMode.ALL if keeps_all else OutfeedMode.LAST,
        update=None if step.update is None else refuse_another_trace,
        accumulation=work.accumulation,
        num_replicas=num_replicas,
        num_processes=1 if found.own_updates else SYSTEM.joint_world.size,
        own_updates=found.own_updates,
        pipeline=work.pipeline,
        carried=tuple(map(_spec_of, work.carried)),
        numerics=SYSTEM.numerics,
        first_steps=None if _may_begin_op_by_op(step) else 0,
    )


def _may_begin_op_by_op(step: StepInAGraph) -> bool:
    """Whether executions may round otherwise after the first ones, and should.

    What writes nothing has to give equal answers to equal feeds. XLA inside of what XLA compiles
    would compile both ways, and who asked for it, or for determinism, has it from the start.
    """
    asked_for = has_deterministic_operations() or is_within_xla()
    return graph_of(step.whole).writes_state and not asked_for


def refuse_another_trace(given: Any) -> Any:
    """Stands for the step of a program in a graph, which cannot be traced once more."""
    raise LoweringError(
        "A program within a function is traced with it, once: it may make variables."
    )


def _steps_per_call(program: Program, step: StepInAGraph) -> int:
    """Returns how many steps the host runs at once: all, if their elements are not too many."""
    fed = sum(spec.nbytes for spec in program.infeed)
    kept = 0
    if program.outfeed_mode is OutfeedMode.ALL:
        kept = sum(_spec_of(tensor).nbytes for tensor in tf.nest.flatten(step.results))
    most = max(1, _MAX_BYTES // max(1, (fed + kept) * program.num_replicas))
    total, unit = program.repeat_count, program.accumulation.count
    return unit * max((k for k in divisors(total // unit) if k * unit <= most), default=1)


def _sent(
    tensors: Sequence[tf.Tensor],
    program: Program,
    sums: Callable[[tf.Tensor], tf.DType] | None,
) -> list[tf.Tensor]:
    """Makes results of a call what a queue takes: those of one step by all replicas together."""
    if program.outfeed_mode is OutfeedMode.LAST:
        return [tensor[None] for tensor in tensors]
    leading = () if program.num_replicas == 1 else (program.num_replicas,)
    by_step = [tf.reshape(t, (-1, *leading, *static_sizes(t)[1:])) for t in tensors]
    if sums is None:
        return by_step
    count = program.accumulation.count
    parted = [tf.reshape(t, (-1, count, *static_sizes(t)[1:])) for t in by_step]
    return [tf.reduce_sum(tf.cast(t, sums(t)), axis=1) for t in parted]


def _repeated(
    run: Callable[[Sequence[tf.Tensor]], list[tf.Tensor]], count: int, carried: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    if count == 1:
        return run(carried)
    _, *handed = tf.while_loop(
        lambda index, *_: index < count,
        lambda index, *given: (index + 1, *run(given)),
        [tf.constant(0), *carried],
        parallel_iterations=1,
        maximum_iterations=count,
    )
    return handed


def _note(program: GraphProgram) -> None:
    """Notes a program in the graph that is run as a whole."""
    outermost_graph().add_to_collection(_COLLECTION, program)


def _infeed_of(work: GraphWork) -> tuple[TensorSpec, ...]:
    if work.infeed is None:
        return ()
    return tuple(map(_spec_of, tf.nest.flatten(work.infeed.element_spec)))


def _spec_of(tensor: Any) -> TensorSpec:
    # In TensorFlow 1's mode the dimensions of a shape are no integers.
    return TensorSpec(tuple(tensor.shape.as_list()), tensor.dtype.name)
