"""Surrounds operations that sessions of TensorFlow 1 run.

An IPU device of TensorFlow executes eagerly only, so a session runs on the host what a graph
has. What the package has to do before and after is noted with the operations of the graph.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ipu_keras.device import DRIVER
from ipu_keras.device.placement import ordinal_of_placement
from ipu_keras.functions.seeded_draws import start_in_session
from ipu_keras.hooks.tensorflow.legacy import replace_session_runs
from ipu_keras.tracing.concrete import called_functions, names_called

# The attribute of a graph that holds its `_Marks`. Collections are written into checkpoints with
# their graph, and can hold nothing there that has no name.
_MARKS = "_ipu_session_marks"
# The attribute of a session that holds its `_Placements`.
_PLACEMENTS = "_ipu_placements"


def _nothing() -> None:
    pass


def _unchecked(session: tf.compat.v1.Session) -> None:
    pass


def _no_better(error: Exception) -> None:
    """Leaves it at TensorFlow's own words."""


@dataclass(frozen=True, kw_only=True)
class SessionStep:
    """What happens when a session runs an operation.

    Args:
        before: Called with the session before it runs; what it raises is raised by the session.
        check: Called with the session when it has run, within the context of `during`; what it
            raises is raised by the session.
        explain: Called with the error of a run; raises one that says more, if it can.
        during: Makes a context that is open while it runs.
        feeds: Called within that context; returns what is fed besides what the user feeds, by
            reference of a tensor.
    """

    before: Callable[[tf.compat.v1.Session], None] = _unchecked
    check: Callable[[tf.compat.v1.Session], None] = _unchecked
    after: Callable[[], None] = _nothing
    explain: Callable[[Exception], None] = _no_better
    during: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    feeds: Callable[[], Mapping[Any, Any]] = dict


class _Marks:
    """What is noted with the operations of a graph.

    Args:
        preparations: What is called before anything of the graph is run.
    """

    def __init__(self) -> None:
        self.preparations: list[Callable[[], None]] = []
        self._steps: list[tuple[tf.Operation, SessionStep]] = []
        # By what is run, as sessions run the same again and again.
        self._found: dict[tuple[tf.Operation, ...], list[SessionStep]] = {}

    def add(self, operation: tf.Operation, step: SessionStep) -> None:
        self._steps.append((operation, step))
        self._found.clear()

    def steps_of(self, operations: Sequence[tf.Operation]) -> list[SessionStep]:
        """Returns what is noted with operations, and with all that they need."""
        key = tuple(operations)
        if key not in self._found:
            needed = set(_needed(operations))
            self._found[key] = [step for operation, step in self._steps if operation in needed]
        return self._found[key]


def mark(operation: tf.Operation, step: SessionStep) -> None:
    """Says what happens when a session runs an operation of a graph."""
    _marks_of(operation.graph).add(operation, step)


def before_runs(graph: tf.Graph, prepare: Callable[[], None]) -> None:
    """Says what happens whenever a session is about to run anything of a graph.

    It may change the graph, as far as sessions have not seen yet what it changes.
    """
    _marks_of(graph).preparations.append(prepare)


def _marks_of(graph: tf.Graph) -> _Marks:
    # The graph may be a proxy of one, which has no `__dict__`.
    if not hasattr(graph, _MARKS):
        setattr(graph, _MARKS, _Marks())
    return getattr(graph, _MARKS)


class _Placements:
    """The IPU devices on which a session's operations are placed."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._uses_ipus = False
        # By what is run.
        self._found: dict[tuple[tf.Operation, ...], frozenset[int]] = {}

    def of(self, operations: Sequence[tf.Operation]) -> frozenset[int]:
        """Returns the ordinals of the devices of operations, and of all that they need."""
        graph = operations[0].graph
        if graph.version != self._version:
            self._version = graph.version
            self._uses_ipus = _uses_ipus(graph)
        if not self._uses_ipus:
            return frozenset()
        key = tuple(operations)
        if key not in self._found:
            found = (ordinal_of_placement(one.device) for one in _with_bodies(_needed(operations)))
            self._found[key] = frozenset(ordinal for ordinal in found if ordinal is not None)
        return self._found[key]


def placements_in(graph: tf.Graph) -> frozenset[int]:
    """Returns the ordinals of the IPU devices on which operations of a graph are placed."""
    placed = {operation.device for operation in _with_bodies(graph.get_operations())}
    found = map(ordinal_of_placement, placed)
    return frozenset(ordinal for ordinal in found if ordinal is not None)


def _uses_ipus(graph: tf.Graph) -> bool:
    return bool(placements_in(graph))


def _is_concerned(graph: tf.Graph) -> bool:
    return hasattr(graph, _MARKS) or _uses_ipus(graph)


def serve_sessions(configure: Callable[[], None]) -> None:
    """Has sessions do what is noted with operations, and refuse IPU devices that do not exist.

    Before anything on an IPU runs, `configure` configures a system if there is none.
    """

    def run_checked(
        session: tf.compat.v1.Session,
        operations: Sequence[tf.Operation],
        run: Callable[[dict], Any],
    ) -> Any:
        for prepare in _marks_of(session.graph).preparations:
            prepare()
        for ordinal in _ordinals(session, operations):
            configure()
            DRIVER.device_for(ordinal)
        start_in_session(session)
        return _run(session, operations, run)

    replace_session_runs(run_checked, _is_concerned)


def _ordinals(session: tf.compat.v1.Session, operations: Sequence[tf.Operation]) -> frozenset[int]:
    if not operations:
        return frozenset()
    if _PLACEMENTS not in vars(session):
        setattr(session, _PLACEMENTS, _Placements())
    return getattr(session, _PLACEMENTS).of(operations)


def _run(
    session: tf.compat.v1.Session, operations: Sequence[tf.Operation], run: Callable[[dict], Any]
) -> Any:
    """Runs what a session was asked for, with what is noted for its operations around it."""
    steps = _marks_of(operations[0].graph).steps_of(operations) if operations else ()
    if not steps:
        return run({})
    with contextlib.ExitStack() as opened:
        for step in steps:
            step.before(session)
        for step in steps:
            opened.enter_context(step.during())
        fed: dict[Any, Any] = {}
        for step in steps:
            fed.update(step.feeds())
        try:
            found = run(fed)
        except tf.errors.OpError as error:
            for step in steps:
                step.explain(error)
            raise
        for step in steps:
            step.check(session)
    for step in steps:
        step.after()
    return found


def _needed(operations: Sequence[tf.Operation]) -> Iterator[tf.Operation]:
    seen = set(operations)
    pending = list(seen)
    while pending:
        operation = pending.pop()
        yield operation
        before = {*operation.control_inputs, *(tensor.op for tensor in operation.inputs)} - seen
        seen |= before
        pending.extend(before)


def _with_bodies(operations: Iterable[tf.Operation]) -> Iterator[tf.Operation]:
    """Yields operations, and those of the functions that they call: loops, branches, datasets."""
    pending, seen = list(operations), set()
    while pending:
        operation = pending.pop()
        yield operation
        for name in names_called(operation):
            function = called_functions(operation.graph).get(name)
            if function is not None and name not in seen:
                seen.add(name)
                pending.extend(function.graph.get_operations())
