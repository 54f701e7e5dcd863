"""Makes computations that are compiled as a whole operations of the graph that is being built.

How many IPUs their device has is asked only when a session runs them: scripts compile first,
and configure the system afterwards.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.device import DRIVER, IpuDevice
from ipu_keras.device.connection import is_only_compiled_for, runs_programs
from ipu_keras.functions.function_programs import compiled_in_graph
from ipu_keras.functions.graph_programs import (
    GraphProgram,
    explain_infeeds,
    infeeds_in,
    programs_in,
    refuse_another_trace,
    running,
    skipped,
)
from ipu_keras.functions.loop_bodies import as_list, tensors_then_operations
from ipu_keras.functions.place import Place, placed_on
from ipu_keras.functions.replicas import run_by_all
from ipu_keras.functions.sessions import SessionStep, before_runs, mark
from ipu_keras.functions.traces_again import Traces
from ipu_keras.functions.watched_calls import operations_of, watched_program
from ipu_keras.functions.watched_sessions import WatchedInSession
from ipu_keras.host.halves import with_halves
from ipu_keras.host.traced_step import variables_of
from ipu_keras.host.zero_results import zero_results
from ipu_keras.internals.tensorflow.functions import (
    is_trace,
    make_functions_known,
    traced_where_variables_are_made,
)
from ipu_keras.internals.tensorflow.operations import set_control_input, set_input
from ipu_keras.internals.tensorflow.variable_scopes import changeable
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.numerics import Numerics
from ipu_keras.machine.system import SYSTEM
from ipu_keras.program import Program
from ipu_keras.program.compilation_history import CompilationHistory
from ipu_keras.program.executable import Executable
from ipu_keras.settings.arguments import converted
from ipu_keras.tracing import graph_of
from ipu_keras.tracing.accumulations import begun_accumulators, hide_accumulators
from ipu_keras.tracing.replication import Needs, needing, num_shards_of, replicated

_ORDER = "`computation` must return zero or more tensors followed by zero or more operations."


def call_in_graph(
    computation: Callable[..., Any],
    inputs: Sequence[Any],
    device: IpuDevice,
    *,
    compile_program: Callable[..., Executable],
    configure: Callable[[], None],
    check_placement: Callable[[tf.Graph, bool], None],
) -> Any:
    """Puts a computation into the graph that is being built, and returns its results.

    They have the structure in which they were returned, but one tensor, or a tuple, comes as a
    list. If there are none, an operation that runs the computation is returned.

    Args:
        computation: Takes `inputs`; returns tensors, and then operations.
        configure: Makes the device exist if nothing was configured.
        check_placement: Takes the graph of the computation, and whether it has results; raises
            if it is placed elsewhere.

    Raises:
        TypeError: `computation` cannot be called with `inputs`.
        ValueError: `computation` returns an operation before a tensor, or takes what is not in
            the graph.
    """
    given = converted(
        "inputs", lambda given: tf.nest.map_structure(tf.convert_to_tensor, given), list(inputs)
    )
    flat = tf.nest.flatten(given)
    graph = tf.compat.v1.get_default_graph()

    structure: list[Any] = []

    # Within a function the computation is a part of that function's program, and none of its
    # own.
    is_within = is_trace(graph)

    def run(*tensors: tf.Tensor) -> list[tf.Tensor]:
        if not is_within:
            hide_accumulators()
            traced = tf.compat.v1.get_default_graph()
            traced.seed = device.engine.seed if traced.seed is None else traced.seed
        # The device of the call decides for the whole function, so scopes around it must not.
        with tf.device(None):
            returned = computation(*tf.nest.pack_sequence_as(given, tensors))
            if not is_within:
                returned = tf.nest.map_structure(_as_before, returned)
            structure[:], results, operations = _taken_apart(returned)
            with tf.control_dependencies(operations):
                return [tf.identity(result) for result in results]

    if is_within:
        found = run(*flat)
        return _put_together(structure, found) if structure else graph.get_operations()[-1]
    name = getattr(computation, "__name__", "computation").strip("<>")
    made = _Computation(name, run, flat, device, compile_program, configure)
    results, operation = made.put_into_graph(check_placement)
    return _put_together(structure, results) if structure else operation


def _as_before(value: Any) -> Any:
    """Returns the value that a variable has before the computation, which may change it.

    What `assign` returns is a variable too, whose operation is the assignment, and has the value
    from behind that.
    """
    if not isinstance(value, tf.Variable) or value.op is not value.handle.op:
        return value
    with tf.init_scope():
        return value.read_value()


def _taken_apart(returned: Any) -> tuple[list[Any], list[tf.Tensor], list[tf.Operation]]:
    """Takes apart what a computation returned: its structure, tensors, and operations.

    The structure has a number for each tensor, in a list that is empty if there are none. A
    `ValueError` says that an operation comes before a tensor or is nested.
    """
    values = as_list(returned)
    is_flat = not any(value is None or tf.nest.is_nested(value) for value in values)
    if not isinstance(returned, Mapping) and is_flat:
        tensors, operations = tensors_then_operations(returned, _ORDER)
        return [list(range(len(tensors)))][: len(tensors)], tensors, operations
    leaves = tf.nest.flatten(returned)
    inside = [leaf for leaf in leaves if isinstance(leaf, tf.Operation)]
    if inside:
        raise ValueError(
            f"{_ORDER} It must not return operations in a nested structure: make tensors of it "
            f"depend on them, with `tf.control_dependencies`. Received: {returned!r}"
        )
    tensors, _ = tensors_then_operations([leaf for leaf in leaves if leaf is not None], _ORDER)
    numbers = itertools.count()
    kept = [None if leaf is None else next(numbers) for leaf in leaves]
    return [tf.nest.pack_sequence_as(returned, kept)][: len(tensors)], tensors, []


def _put_together(structure: Sequence[Any], tensors: Sequence[tf.Tensor]) -> Any:
    return tf.nest.map_structure(
        lambda number: None if number is None else tensors[number], structure[0]
    )


def _check_captures(concrete: Any) -> None:
    """Refuses captures of eager tensors, which are not in the graph of the session."""
    eager = [tensor for tensor in concrete.captured_inputs if hasattr(tensor, "numpy")]
    if eager:
        raise ValueError(
            "A graph of a session cannot take tensors or variables of eager execution. Make them "
            f"in the graph, or give NumPy's values as `inputs`. Received: {eager}"
        )


def _by_all(
    concrete: Any, specs: Sequence[tf.TensorSpec], place: Place
) -> tuple[Any, Sequence[Any]]:
    """Returns what a session runs for a computation that was traced for one replica.

    The copies of variables that it makes for the others are returned too.
    """
    found = run_by_all(concrete, graph_of(concrete), place, jit_compile=False)
    if found is None:
        return concrete, ()
    variables, together = found

    def run(*tensors: tf.Tensor) -> list[tf.Tensor]:
        variables.synchronize()
        return together(*tensors)

    return traced_where_variables_are_made(run, specs, concrete.graph.name), variables.copies


class _Computation:
    """A computation that sessions run.

    It is traced again if the device has another number of replicas when a session first runs
    anything of its graph. What others take of it stays, and gets what the new trace computes.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., list[tf.Tensor]],
        given: Sequence[tf.Tensor],
        device: IpuDevice,
        compile_program: Callable[..., Executable],
        configure: Callable[[], None],
    ):
        self._name = name
        self._function = function
        self._given = given
        self._device = device
        self._place = Place(device, is_final=False)
        self._compile = compile_program
        self._configure = configure
        self._graph = tf.compat.v1.get_default_graph()
        # A strategy that runs the computation does so in each trace, as optimizers ask it.
        self._context = (
            tf.distribute.get_replica_context() if tf.distribute.has_strategy() else None
        )
        self._traces = Traces()
        self._needs = Needs()
        self._programs: tuple[GraphProgram, ...] = ()
        self._concrete: Any = None
        self._shards = self._num_replicas = 1
        self._world = SYSTEM.joint_world
        self._norm_group_size = SYSTEM.norm_group_size
        # What it was put into the graph for.
        self._numerics = Numerics()
        self._has_halves = False
        self._watched: WatchedInSession | None = None
        self._results: list[tf.Tensor] = []
        self._operation: Any = None
        self._placement = ""
        self._is_settled = False
        # Whether sessions run zeros in its place.
        self._is_skipped = False

    def put_into_graph(
        self, check_placement: Callable[[tf.Graph, bool], None]
    ) -> tuple[list[tf.Tensor], tf.Operation]:
        """Puts the computation into the session's graph; returns its results, and what runs it."""
        with self._traces.first():
            self._trace(is_first=True)
            check_placement(self._concrete.graph, bool(self._concrete.outputs))
            with needing(self._needs):
                found, call = self._called()
        self._placement = call.device
        # Scripts use these and not the call's own results, so that another call can take its
        # place.
        self._results = list(map(tf.identity, found))
        with tf.control_dependencies([call]):
            self._operation = tf.no_op(name=f"{call.name}_done")
        before_runs(self._graph, self._settle)
        return self._results, self._operation

    def _trace(self, *, is_first: bool = False) -> None:
        """Traces it, again if a trace shows that it needs replicas of more IPUs, or more of them.

        Args:
            is_first: Whether no trace has come to its end before.
        """
        before = dataclasses.replace(self._needs)
        try:
            with needing(self._needs):
                self._trace_once()
        except Exception:
            needs, has_ipus = self._needs, bool(self._device.ipus)
            if needs.ipus_each == before.ipus_each and (
                has_ipus or needs.num_ipus == before.num_ipus
            ):
                raise
            with self._traces.again(may_make_more=is_first):
                self._trace(is_first=is_first)

    def _trace_once(self) -> None:
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in self._given]
        # Variables have to be made in this graph, also after eager execution was disabled.
        place = placed_on(self._device, is_final=False)
        num_ipus = len(self._device.ipus) or self._needs.num_ipus
        replicas = replicated(num_ipus, shards="shared")
        with self._graph.as_default(), self._context or contextlib.nullcontext(), place, replicas:
            concrete = traced_where_variables_are_made(self._function, specs, self._name)
        make_functions_known(concrete.graph)
        self._concrete, self._world = concrete, SYSTEM.joint_world
        self._norm_group_size = SYSTEM.norm_group_size
        self._shards = num_shards_of(concrete.graph)
        self._num_replicas = self._place.num_replicas_with_shards(self._shards)

    def _called(self) -> tuple[list[tf.Tensor], tf.Operation]:
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in self._given]
        _check_captures(self._concrete)
        with self._graph.as_default(), placed_on(self._device, is_final=False), tf.device(None):
            whole, copies = _by_all(self._concrete, specs, self._place)
            inside = [one.variables for one in programs_in(self._concrete.graph) if one.variables]
            self._numerics = SYSTEM.numerics
            self._watched = None
            if self._numerics.stops_at:
                copies = [*copies, *(copy for one in inside for copy in one.copies)]
                self._watched = WatchedInSession(whole, copies)
                whole = self._watched.function
            numerics = self._numerics.of_replicas(self._num_replicas)
            halved = with_halves(whole, numerics, self._device.engine.rounding_keys)
        self._has_halves = halved is not whole
        with tf.control_dependencies(begun_accumulators(self._concrete.graph)):
            if self._watched is None:
                found = list(halved(*self._given))
                operations = reversed(self._graph.get_operations())
                call = next(op for op in operations if "PartitionedCall" in op.type)
            else:
                found, call = self._watched.called(lambda: halved(*self._given), self._given)
        step = SessionStep(
            check=self._check,
            before=lambda _: self._prepare(),
            during=lambda: running(self._programs, self._device),
            explain=lambda error: explain_infeeds(error, infeeds_in(self._concrete.graph)),
            feeds=self._feeds,
        )
        mark(call, step)
        return found, call

    def _settle(self) -> None:
        """Traces again for what was configured meanwhile, before sessions have seen the graph."""
        if self._is_settled:
            return
        self._is_settled = True
        if not self._device.ipus:
            return
        try:
            num_replicas = Place(self._device).num_replicas_with_shards(self._shards)
        except ValueError:
            return  # the error is raised when it runs
        has_changed = (
            self._is_made_for_others_than(SYSTEM.numerics)
            or self._world != SYSTEM.joint_world
            or self._normalizes_in_other_groups()
        )
        if num_replicas != self._num_replicas or has_changed:
            with self._changing(), self._traces.again():
                self._trace()
                self._put_in_place(*self._called())
        if is_only_compiled_for(self._device):
            with self._changing():
                self._put_in_place(*self._zeros())

    def _is_made_for_others_than(self, numerics: Numerics) -> bool:
        """Whether something would be computed in another way, or stop elsewhere, than asked for."""
        if self._has_halves:
            return self._numerics != numerics
        return self._numerics.stops_at != numerics.stops_at

    def _normalizes_in_other_groups(self) -> bool:
        """Whether replicas would normalize their batches in other groups than are configured."""
        return self._needs.has_norms and self._norm_group_size != SYSTEM.norm_group_size

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Lets the session's graph change, as it may until a session has seen it."""
        with contextlib.ExitStack() as opened:
            opened.enter_context(changeable(self._graph))
            opened.enter_context(self._graph.as_default())
            opened.enter_context(tf.device(self._placement or None))
            opened.enter_context(tf.control_dependencies(None))
            yield

    def _put_in_place(self, found: Sequence[tf.Tensor], call: tf.Operation) -> None:
        for result, tensor in zip(self._results, found, strict=True):
            set_input(result.op, tensor)
        set_control_input(self._operation, call)

    def _zeros(self) -> tuple[list[tf.Tensor], tf.Operation]:
        """Puts what a computation does that is only compiled into the session's graph."""
        self._is_skipped = True
        written = skipped((), self._concrete.graph, self._device)
        with tf.control_dependencies(written):
            done = tf.no_op(name=f"{self._name}_compiled")
        mark(done, SessionStep(before=lambda _: self._prepare(), after=self._load))
        with tf.control_dependencies([done]):
            zeros = tf.nest.flatten(zero_results(self._concrete))
            return list(map(tf.identity, zeros)), done

    def _load(self) -> None:
        """Makes the programs the last ones of the device, without an execution."""
        for one in self._programs:
            self._device.engine.load(one.executable)

    def _feeds(self) -> dict[Any, Any]:
        begun = [one.begun for one in self._programs if one.begun is not None]
        return {key: value for one in begun for key, value in one.feeds().items()}

    def _check(self, session: tf.compat.v1.Session) -> None:
        """Raises an error if floating point exceptions were to stop what a session has run."""
        if self._watched is not None:
            program = watched_program(self._programs, self._name, self._numerics)
            self._watched.check(session, program, operations_of(self._programs))

    def _prepare(self) -> None:
        self._configure()
        if self._watched is not None:
            self._watched.begin()
        # TensorFlow does not check whether the devices in a session's graph exist.
        DRIVER.device_for(self._device.ordinal)
        num_replicas = Place(self._device).num_replicas_with_shards(self._shards)
        if num_replicas != self._num_replicas:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                "A computation is compiled for the replicas that its device has when a session "
                "first runs anything of its graph: configure the system before that. Received: "
                f"{num_replicas} replicas, for {self._name!r}, which was compiled for "
                f"{self._num_replicas}",
            )
        if num_replicas > 1 and self._normalizes_in_other_groups():
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                "Which replicas normalize their batches together is settled when a session first "
                "runs anything of its graph: configure "
                "`norms.experimental.distributed_batch_norm_replica_group_size` before that, or "
                f"build the graph again. Received: {SYSTEM.norm_group_size}, for {self._name!r}, "
                f"which was compiled for {self._norm_group_size}",
            )
        if self._is_made_for_others_than(SYSTEM.numerics):
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                "Which floating point exceptions stop a computation, and how it computes with "
                "halves, is settled when a session first runs anything of its graph: configure "
                "`floating_point_behaviour` and types of partial sums before that, or build the "
                f"graph again. Received: {SYSTEM.numerics}, for {self._name!r}, which was "
                f"compiled for {self._numerics}",
            )
        for infeed in infeeds_in(self._concrete.graph):
            infeed.read_by(num_replicas)
        if not self._programs:
            inside = programs_in(self._concrete.graph) or [self._whole()]
            name = self._name if len(inside) == 1 else None
            self._programs = tuple(
                # Each has a history of its own: it is compiled once, and two programs with one
                # name are not one that was compiled again.
                compiled_in_graph(one, self._device, CompilationHistory(), self._compile, name=name)
                for one in inside
            )
        if runs_programs(self._device) is self._is_skipped:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                "Whether a computation runs, or is compiled only, is settled when a session first "
                "runs anything of its graph: configure `device_connection.type` before that, or "
                f"build the graph again. Received: {SYSTEM.connection}, for {self._name!r}",
            )

    def _whole(self) -> GraphProgram:
        """Makes the program of a computation that has no programs in its graph."""
        concrete = self._concrete
        arguments = concrete.inputs[: len(concrete.inputs) - len(concrete.captured_inputs)]
        graph = graph_of(concrete)
        program = Program(
            name=self._name,
            step=refuse_another_trace,
            infeed=(),
            unflatten=tuple,
            repeat_count=1,
            carried=tuple(TensorSpec(tuple(a.shape.as_list()), a.dtype.name) for a in arguments),
            num_replicas=self._num_replicas,
        )
        executable = Executable(
            program=program,
            graph=graph,
            host=None,
            reason="a computation that a session runs",
            variables=variables_of([concrete]),
            as_written=lambda: concrete,
        )
        return GraphProgram(executable=executable)
