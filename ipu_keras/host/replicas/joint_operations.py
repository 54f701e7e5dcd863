"""Does what all replicas of a function do together: exchanges, branches and loops.

What XLA lacks is done here as well, by each replica for itself, if XLA computes the rest.
"""

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from ipu_keras.host.operation_kinds import LOOPS
from ipu_keras.host.replicas.fed_loops import FedLoop
from ipu_keras.host.replicas.inlining import leads_to
from ipu_keras.host.replicas.replica_values import CONSTANT, ReplicaValues
from ipu_keras.host.replicas.together import Together, label_of
from ipu_keras.internals.tensorflow.functions import call_with_captures
from ipu_keras.machine.system import SYSTEM
from ipu_keras.processes.process_collectives import all_reduce, put_together
from ipu_keras.tracing.concrete import called_functions
from ipu_keras.tracing.extraction import extract
from ipu_keras.tracing.replication import (
    Collective,
    collective_of,
    is_assumed_equal,
    is_replica_index,
)

_BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})

_REDUCTIONS: Mapping[str, Callable[[Sequence[tf.Tensor]], tf.Tensor]] = {
    "add": tf.add_n,
    "and": functools.partial(functools.reduce, tf.logical_and),
    "maximum": functools.partial(functools.reduce, tf.maximum),
    "minimum": functools.partial(functools.reduce, tf.minimum),
    "multiply": functools.partial(functools.reduce, tf.multiply),
    "or": functools.partial(functools.reduce, tf.logical_or),
}

# Does an operation for all replicas, and sets its results in the values of each.
JointOperation = Callable[[Sequence[ReplicaValues]], None]
# `segments.replicate` for the function of a branch or a loop, and the positions of those of its
# inputs that are equal in all replicas. It is handed in because `segments` imports this module.
Replicate = Callable[[Any, Collection[int]], Callable[[Sequence[Sequence[tf.Tensor]]], list]]


def needs_all(op: tf.Operation) -> bool:
    """Whether an operation's result depends on which replica runs it, or on the other ones."""
    return collective_of(op) is not None or is_replica_index(op) or label_of(op) is not None


def joint_operation(
    op: tf.Operation,
    equal: Collection[tf.Operation],
    num_replicas: int,
    replicate: Replicate,
    *,
    for_xla: bool,
    labelled: Mapping[str, Together],
) -> JointOperation:
    """Returns what does an operation that is between segments.

    Replicas have the inputs `equal` in common. `labelled` does operations with labels.
    """
    if collective_of(op) is not None:
        return functools.partial(_exchange, op)
    label = label_of(op)
    if label is not None:
        return functools.partial(_do, op, labelled[label])
    # Replicas enter a branch or a loop as one only if all surely go the same way. Elsewhere
    # each goes for itself: `check_control_flow` has made sure that there is no collective on
    # such a way.
    if op.type in _BRANCHES and (num_replicas == 1 or is_equal(op.inputs[0], equal)):
        return _Branch(op, equal, replicate)
    if op.type in LOOPS:
        loop = _Loop(op, equal, replicate)
        if for_xla and num_replicas == 1:
            return loop.fed() or loop
        if num_replicas == 1 or loop.is_equal:
            return loop
    return _alone(op)


def check_control_flow(concrete: Any, equal: Collection[tf.Operation]) -> None:
    """Raises a `ValueError` for collectives in branches and loops that not all replicas may reach.

    An IPU would wait there for ever.
    """
    for op in concrete.graph.get_operations():
        if needs_all(op) or not leads_to(op, needs_all):
            continue
        is_branch = op.type in _BRANCHES and is_equal(op.inputs[0], equal)
        if not is_branch and not (op.type in LOOPS and _equal_in_loop(op, equal) is not None):
            raise ValueError(
                "A collective, a result for an outfeed, or a program of all replicas hangs an IPU "
                "when it is in a loop or a branch that not all replicas reach. "
                f"Received: one in {op.name!r}, of type {op.type}. Exchange the values before it "
                "or after it, let a loop have a known number of turns, as with `tf.range`, or "
                "promise that its condition is equal in all replicas, with "
                "`assume_equal_across_replicas`."
            )


def is_equal(tensor: tf.Tensor, equal: Collection[tf.Operation]) -> bool:
    """Whether a tensor is computed from nothing but what is known to be equal in all replicas.

    This is proven from the graph. A variable is not equal, as replicas may have copies of it.
    """
    pending, seen = [tensor.op], set()
    while pending:
        op = pending.pop()
        if op in seen or op in equal or is_assumed_equal(op) or op.type == "Const":
            continue
        # Reads of variables and draws are stateful. Another operation without inputs is a
        # placeholder.
        if not op.inputs or op.op_def.is_stateful:
            return False
        seen.add(op)
        pending += [given.op for given in op.inputs]
    return True


def _exchange(op: tf.Operation, replicas: Sequence[ReplicaValues]) -> None:
    """Computes a collective from the values of all replicas."""
    collective = collective_of(op)
    assert collective is not None
    values = [value for replica in replicas for value in replica.look_up(op.inputs)]
    with tf.name_scope(_scope(op)):
        results = _exchanged(collective, values)
    for replica, result in zip(replicas, results, strict=True):
        replica.set_value(op.outputs[0], result)


def _exchanged(collective: Collective, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns what each replica of this process gets, which have the values."""
    groups, count = collective.groups, len(values)
    if count % groups.size == 0:
        starts = range(0, count, groups.size)
        parts = [_results_of(collective, values[k : k + groups.size]) for k in starts]
        return list(itertools.chain(*parts))
    mine = range(SYSTEM.world.rank * count, (SYSTEM.world.rank + 1) * count)
    if collective.operation == "add" and groups.size == groups.num_replicas:
        (total,) = all_reduce([tf.add_n(values)])
        if collective.kind == "all-reduce":
            return [total] * count
        return tf.split(total, groups.size)[mine.start : mine.stop]
    everything = put_together(values)
    found: dict[int, tf.Tensor] = {}
    for group in groups:
        if set(group) & set(mine):
            results = _results_of(collective, [everything[k] for k in group])
            found.update(zip(group, results, strict=True))
    return [found[k] for k in mine]


def _results_of(collective: Collective, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns what each member of a group gets."""
    if collective.kind == "all-to-all":
        split, concat = collective.dimensions
        blocks = [tf.split(value, len(values), axis=split) for value in values]
        return [tf.concat(received, axis=concat) for received in zip(*blocks, strict=True)]
    if collective.kind == "all-gather":
        return [tf.stack(values)] * len(values)
    reduced = _REDUCTIONS[collective.operation](values)
    if collective.kind == "reduce-scatter":
        return tf.split(reduced, len(values))
    return [reduced] * len(values)


def _do(op: tf.Operation, instead: Together, replicas: Sequence[ReplicaValues]) -> None:
    """Does for all replicas what a labelled operation stands for."""
    with tf.control_dependencies(_before(op, replicas)), tf.name_scope(_scope(op)):
        by_replica = instead([replica.look_up(op.inputs) for replica in replicas])
    for replica, results in zip(replicas, by_replica, strict=True):
        if len(results) < len(op.outputs):
            # For gradients TensorFlow has a function return what is within it, too.
            raise NotImplementedError(
                "A loop that several replicas run together has no gradients, as each would need "
                "those of the others. Compute the gradients within the loop, run one replica, or "
                f"use `tf.while_loop`. Received: the gradients of {op.name!r}"
            )
        replica.note_call(results, waited=bool(op.control_inputs))
        for tensor, result in zip(op.outputs, results, strict=True):
            replica.set_value(tensor, result)


def _alone(op: tf.Operation) -> JointOperation:
    """Lets each replica do an operation by itself."""
    # Constants come along, as the shapes of results may depend on their values.
    constants = {tensor.op for tensor in op.inputs if tensor.op.type == CONSTANT}
    kept = {op, *constants}
    others = {other.name for other in op.graph.get_operations() if other not in kept}
    inputs = {tensor.ref(): tensor for tensor in op.inputs if tensor.op not in constants}
    outputs, given = list(op.outputs), list(inputs.values())
    whole = SimpleNamespace(graph=op.graph, inputs=op.graph.inputs)
    part = extract(whole, outputs, given=given, controls=[op], without=others).function

    def run(replicas: Sequence[ReplicaValues]) -> None:
        for replica in replicas:
            before = replica.ran if op.control_inputs else []
            with tf.control_dependencies(before):
                # Small integers from outside are constants, and yet captured.
                results = call_with_captures(part, replica.look_up(given), part.captured_inputs)
            replica.note_part(results, waited=bool(op.control_inputs))
            for tensor, result in zip(outputs, results, strict=True):
                replica.set_value(tensor, result)

    return run


class _Branch:
    """An operation of which all replicas take the same branch."""

    def __init__(self, op: tf.Operation, equal: Collection[tf.Operation], replicate: Replicate):
        self._op = op
        attributes = op.node_def.attr
        called = attributes["branches"].list.func or (
            attributes["then_branch"].func,
            attributes["else_branch"].func,
        )
        given = [k for k, tensor in enumerate(op.inputs[1:]) if is_equal(tensor, equal)]
        self._branches = [
            replicate(
                _with_constants(
                    _function_of(_graph_of(op, function.name)), dict(enumerate(op.inputs[1:]))
                ),
                given,
            )
            for function in called
        ]

    def __call__(self, replicas: Sequence[ReplicaValues]) -> None:
        op = self._op
        given = [replica.look_up(op.inputs) for replica in replicas]

        def take(branch: Callable) -> Callable:
            def taken() -> list:
                results = branch([values[1:] for values in given])
                # A branch for its effects alone would return nothing that could be waited for.
                return [*itertools.chain(*results), tf.constant(0)]

            return taken

        with tf.control_dependencies(_before(op, replicas)), tf.name_scope(_scope(op)):
            # The choice of replica 0 stands for those of all, which `is_equal` has shown to be
            # the same.
            choice, functions = given[0][0], [take(branch) for branch in self._branches]
            if op.type in ("Case", "StatelessCase"):
                *results, done = tf.switch_case(choice, functions)
            else:
                *results, done = tf.cond(choice, *functions)
        for replica in replicas:
            own, results = results[: len(op.outputs)], results[len(op.outputs) :]
            for tensor, value in zip(op.outputs, own, strict=True):
                replica.set_value(tensor, value)
            replica.note_call([done], waited=bool(op.control_inputs))


class _Loop:
    """A loop that all replicas go around equally often, as one loop.

    Its state is the varying values of replica 0, then those of replica 1, and so on.
    """

    def __init__(self, op: tf.Operation, equal: Collection[tf.Operation], replicate: Replicate):
        self._op = op
        found = _equal_in_loop(op, equal)
        self.is_equal = found is not None
        body = _graph_of(op, op.get_attr("body").name)
        # A body returns unchanged what it takes from outside, such as variables. That would be
        # copied around the loop for each replica.
        pairs = zip(body.inputs, body.outputs, strict=True)
        self._varying = [k for k, (before, after) in enumerate(pairs) if before is not after]
        self._condition = _function_of(_graph_of(op, op.get_attr("cond").name))
        self._turn = _with_constants(
            _function_of(body, [body.outputs[k] for k in self._varying]),
            {k: t for k, t in enumerate(op.inputs) if k not in self._varying},
        )
        self._body = replicate(self._turn, sorted(found or ()))
        self._shapes = [body.inputs[k].shape for k in self._varying]

    def fed(self) -> FedLoop | None:
        """Returns the loop as one XLA program that is fed with what it reads, or `None`."""
        return FedLoop.of(self._op, self._condition, self._turn, self._varying)

    def __call__(self, replicas: Sequence[ReplicaValues]) -> None:
        op, varying, width = self._op, self._varying, len(self._varying)
        given = [replica.look_up(op.inputs) for replica in replicas]

        def all_values(state: Sequence[tf.Tensor]) -> list[list[tf.Tensor]]:
            values = [list(each) for each in given]
            for number, own in enumerate(values):
                # The values of further replicas follow in the state.
                for k, value in zip(varying, state[number * width :], strict=False):
                    own[k] = value
            return values

        def is_going_on(*state: tf.Tensor) -> tf.Tensor:
            # The condition needs equal values alone, so that of replica 0 decides for all.
            first = all_values(state)[0]
            (goes_on,) = call_with_captures(self._condition, first, [])
            return goes_on

        def turn(*state: tf.Tensor) -> list[tf.Tensor]:
            results = self._body(all_values(state))
            return [result for own in results for result in own]

        with tf.control_dependencies(_before(op, replicas)), tf.name_scope(_scope(op)):
            results = tf.while_loop(
                is_going_on,
                turn,
                [own[k] for own in given for k in varying],
                shape_invariants=self._shapes * len(replicas),
                parallel_iterations=op.get_attr("parallel_iterations"),
            )
        for number, replica in enumerate(replicas):
            own = results[number * width : (number + 1) * width]
            for tensor, value in zip(op.outputs, given[number], strict=True):
                replica.set_value(tensor, value)
            for k, value in zip(varying, own, strict=True):
                replica.set_value(op.outputs[k], value)
            replica.note_call(results, waited=bool(op.control_inputs))


def _equal_in_loop(op: tf.Operation, equal: Collection[tf.Operation]) -> set[int] | None:
    """Returns the values of a loop that replicas have equal in every turn.

    The result is `None` if the loop may end in different turns.
    """
    body = _graph_of(op, op.get_attr("body").name)
    condition = _graph_of(op, op.get_attr("cond").name)
    found = {k for k, tensor in enumerate(op.inputs) if is_equal(tensor, equal)}
    # Values are taken to be equal until the body makes one from something unequal. To begin
    # with none would prove nothing: a counter is equal because it was equal in the turn before.
    while True:
        known = {body.inputs[k].op for k in found}
        still = {k for k in found if is_equal(body.outputs[k], known)}
        if still == found:
            break
        found = still
    # Replicas cannot exchange anything in the condition, as it is computed for one of them
    # only.
    if any(leads_to(inner, needs_all) for inner in condition.get_operations()):
        return None
    known = {condition.inputs[k].op for k in found}
    return found if is_equal(condition.outputs[0], known) else None


def _graph_of(op: tf.Operation, name: str) -> Any:
    return called_functions(op.graph)[name].graph


def _function_of(graph: Any, results: Sequence[tf.Tensor] | None = None) -> Any:
    """Makes a function of the graph of a branch or a loop, with inputs in place of captures."""
    whole = SimpleNamespace(graph=graph, inputs=graph.inputs)
    results = list(graph.outputs if results is None else results)
    return extract(whole, results, given=graph.inputs, controls=graph.control_outputs).function


def _with_constants(function: Any, outside: Mapping[int, tf.Tensor]) -> Any:
    """Gives a function constants of its own for inputs that are constants outside, by position.

    XLA has to know some values, such as shapes and axes, when it compiles.
    """
    values = {
        k: tf.make_ndarray(tensor.op.get_attr("value"))
        for k, tensor in outside.items()
        if tensor.op.type == CONSTANT
    }
    if not values:
        return function

    def with_values(*ipu_given: tf.Tensor) -> Any:
        own = [
            tf.constant(values[k], given.dtype) if k in values else given
            for k, given in enumerate(ipu_given)
        ]
        return call_with_captures(function, own, [])

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in function.inputs]
    return tf.function(with_values, autograph=False).get_concrete_function(*specs)


def _before(op: tf.Operation, replicas: Iterable[ReplicaValues]) -> set[tf.Operation]:
    return {call for replica in replicas for call in replica.ran} if op.control_inputs else set()


def _scope(op: tf.Operation) -> str:
    return op.name.rpartition("/")[2]
