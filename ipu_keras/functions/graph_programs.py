"""Programs that are parts of a graph: what loops and pipelines within functions become.

Loops of a fixed number of steps, and pipelines, are programs as those of Keras models are. Users
build them while a function is traced, so each is put into that function's graph, as a call of what
the host runs for it, between what reads its infeed and what writes its outfeeds.
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
from ipu_keras.functions.place import Place
from ipu_keras.host.host_program import build_traced
from ipu_keras.host.rewrites.table import Purpose
from ipu_keras.host.step_in_a_graph import StepInAGraph
from ipu_keras.internals.tensorflow.functions import is_branch_or_loop, is_trace
from ipu_keras.internals.tensorflow.operations import uses_onednn
from ipu_keras.ir import TensorSpec
from ipu_keras.program import Accumulation, OutfeedMode, Pipeline, Program
from ipu_keras.program.executable import Executable
from ipu_keras.settings.counts import divisors
from ipu_keras.tracing.infeeds import is_traced_for_model
from ipu_keras.tracing.lowering import LoweringError
from ipu_keras.tracing.replication import current_replicas

# Of the steps of a loop, so many bytes of elements are read before they run, and results kept.
# MLP, 200 steps: more saves nothing.
_MAX_BYTES = 1 << 26

_COLLECTION = "ipu_graph_programs"
_INFEEDS = "ipu_graph_infeeds"


def _nothing() -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class GraphProgram:
    """A program in the graph of a function, or one that is the function.

    Args:
        executable: It, with all its steps.
        synchronize: To be called before the function runs.
        note_execution: To be called after that.
        check: Called before it is compiled; raises if it cannot run.
        is_named: As of `Work`.
    """

    executable: Executable
    is_named: bool = False
    check: Callable[[], None] = _nothing
    synchronize: Callable[[], None] = _nothing
    note_execution: Callable[[], None] = _nothing


@contextlib.contextmanager
def running(programs: Sequence[GraphProgram], device: IpuDevice) -> Iterator[None]:
    """While this is open, a function that has programs in its graph is run.

    Args:
        programs: Its programs.
        device: Which runs them, and counts the executions.
    """
    for program in programs:
        program.synchronize()
    with device.engine.running():
        yield
    for program in programs:
        program.note_execution()
        device.engine.note_execution(program.executable)


def explain_infeeds(error: tf.errors.OpError, infeeds: Sequence[DatasetIterator]) -> None:
    """Raises an error that names the infeed if one is behind an error of TensorFlow.

    Args:
        error: Of a function.
        infeeds: Those that it reads.
    """
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
    """The error for an infeed that is read before its initializer was run.

    Args:
        name: Of the infeed.
    """
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
        graph: Of the step.
        sums: As of `Work`.
        written: By queue, the tensors of what is written to it.
        own_updates: Whether each replica updates weights of its own.
    """

    graph: Any
    sums: Callable[[tf.Tensor], tf.DType] | None
    written: dict[ResultQueue, Sequence[tf.Tensor]] = field(default_factory=dict)
    own_updates: bool = False

    @property
    def num_replicas(self) -> int:
        """That run it together."""
        return current_replicas()


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is to become a program.

    Args:
        name: Of the program.
        is_named: Whether a user chose it; else a function that has one program lends its name.
        step: Takes the tensors of an element, then what was handed on; returns what it hands on.
            It writes outfeeds, and updates weights if `accumulation` is given.
        num_steps: How often it runs.
        infeed: Where elements are read from.
        carried: What the first step is handed.
        accumulation: As of `Program`.
        trains: Whether weights are updated with what was accumulated.
        pipeline: As of `Program`.
        sums: Gives the type in which results are added up over the accumulated steps, and sent
            once; `None` if all are sent.
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
    """Of the step that is being traced, if the graph that is being built is that step's own."""
    found = _step_results.get()
    graph = tf.compat.v1.get_default_graph()
    return found if found is not None and found.graph is graph else None


def outermost_graph() -> Any:
    """That of the outermost function that is being traced, or of the session around it."""
    graph = tf.compat.v1.get_default_graph()
    while is_trace(graph) and is_trace(graph.outer_graph):
        graph = graph.outer_graph
    return graph


def is_program_allowed() -> bool:
    """Whether a program can be put into the graph that is being built.

    That is the graph of a function, which runs once when it is called; a step of another program,
    a branch, and the body of a loop are not.
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
    """The programs of a traced function's graph, and of those that it calls.

    Args:
        graph: Of the function.
    """
    return list(graph.get_collection(_COLLECTION))


def note_infeed(infeed: DatasetIterator) -> None:
    """Remembers that the graph that is being built reads an infeed.

    Args:
        infeed: It.
    """
    outermost_graph().add_to_collection(_INFEEDS, infeed)


def infeeds_in(graph: Any) -> list[DatasetIterator]:
    """The infeeds that a traced function's graph reads, and those that it calls.

    Args:
        graph: Of the function.
    """
    return list(dict.fromkeys(graph.get_collection(_INFEEDS)))


def put_into_graph(work: Work, device: IpuDevice, num_replicas: int) -> list[tf.Tensor]:
    """Puts a program into the graph that is being built.

    Args:
        work: What it does.
        device: Which runs it.
        num_replicas: How many replicas it has, if its steps have no shards.

    Returns:
        What its last step hands on, of replica 0.
    """
    step, found = _traced(work, num_replicas)
    queues = list(found.written)
    if work.pipeline is None:
        num_replicas = Place(device).num_replicas_with_shards(step.num_shards)
    program = _program(work, step, found, num_replicas)
    num_steps = _steps_per_call(program, step)
    executable = build_traced(
        replace(program, repeat_count=num_steps), step, device, onednn=uses_onednn()
    )
    host: Any = executable.host
    call = host.in_a_graph()
    if work.infeed is not None:
        note_infeed(work.infeed)
    in_session = not tf.compat.v1.executing_eagerly_outside_functions()
    if in_session:
        host.synchronize()
    _note(
        GraphProgram(
            executable=replace(executable, program=program, host=None),
            synchronize=_nothing if in_session else host.synchronize,
            note_execution=_nothing if in_session else host.note_execution,
            check=work.check,
            is_named=work.is_named,
        )
    )

    def run(carried: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        feeds = [] if work.infeed is None else work.infeed.read_many(num_steps * num_replicas)
        found = call(*feeds, *carried)
        results, handed = found if work.carried else (found, [])
        for queue, tensors in zip(queues, results, strict=True):
            queue.write(_sent(tensors, program, work.sums))
        return list(handed)

    return _repeated(run, program.repeat_count // num_steps, work.carried)


def _traced(work: Work, num_replicas: int) -> tuple[StepInAGraph, StepResults]:
    """The trace of a step, and what it writes."""
    traces: list[StepResults] = []

    def step(*tensors: tf.Tensor) -> Any:
        found = StepResults(tf.compat.v1.get_default_graph(), work.sums)
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
        # The stages of a pipeline say where they are.
        shards="shared" if work.pipeline is None else "refused",
    )
    return traced, traces[-1]


def _program(work: Work, step: StepInAGraph, found: StepResults, num_replicas: int) -> Program:
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
        own_updates=found.own_updates,
        pipeline=work.pipeline,
        carried=tuple(map(_spec_of, work.carried)),
    )


def refuse_another_trace(given: Any) -> Any:
    """What traces a step of a program that is in a graph.

    Raises:
        LoweringError: Always.
    """
    raise LoweringError(
        "A program within a function is traced with it, once: it may make variables."
    )


def _steps_per_call(program: Program, step: StepInAGraph) -> int:
    """How many steps the host runs at once: all of them, if their elements are not too many."""
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
    """Results of a call as a queue takes them: those of a step, of all its replicas, together."""
    if program.outfeed_mode is OutfeedMode.LAST:
        return [tensor[None] for tensor in tensors]
    leading = () if program.num_replicas == 1 else (program.num_replicas,)
    by_step = [tf.reshape(t, (-1, *leading, *t.shape[1:])) for t in tensors]
    if sums is None:
        return by_step
    count = program.accumulation.count
    parted = [tf.reshape(t, (-1, count, *t.shape[1:])) for t in by_step]
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
    """Remembers a program with the graph that whoever runs it has."""
    outermost_graph().add_to_collection(_COLLECTION, program)


def _infeed_of(work: Work) -> tuple[TensorSpec, ...]:
    if work.infeed is None:
        return ()
    return tuple(map(_spec_of, tf.nest.flatten(work.infeed.element_spec)))


def _spec_of(tensor: Any) -> TensorSpec:
    # In TensorFlow 1 a shape is one of dimensions that are no integers.
    return TensorSpec(tuple(tensor.shape.as_list()), tensor.dtype.name)
