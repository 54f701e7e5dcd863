"""Runs the graphs of traced functions operation by operation, and shows each to an observer."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from ipu_keras.host.half_operations import LEFT_ALONE
from ipu_keras.internals.tensorflow.functions import functions_in, graph_of_function

_LOOPS = frozenset({"While", "StatelessWhile"})
_BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})


@dataclass(frozen=True)
class RunningPlace:
    """Where in an execution an operation runs.

    Args:
        turns: The turn and the number of turns of each loop around it, the outermost first. The
            number is `None` if the loop has no limit.
        calls: How many calls of the same function came before each call around it, in the graph
            that calls.
        function: The name of the function that it is in; empty for the one that is run.
    """

    turns: tuple[tuple[int, int | None], ...] = ()
    calls: tuple[int, ...] = ()
    function: str = ""


# Takes an operation, its place, its inputs, and what runs it, which returns the outputs for
# inputs; returns what its outputs are to be.
Run = Callable[..., list[Any]]
Observer = Callable[[tf.Operation, RunningPlace, Sequence[Any], Run], list[Any]]

# Takes an operation and its place; returns its outputs if it is not to run, else `None`.
Substitute = Callable[[tf.Operation, RunningPlace], list[Any] | None]


def nothing_instead(op: tf.Operation, place: RunningPlace) -> list[Any] | None:
    """Has all operations run."""
    return None


class Interpreter:
    """Runs a traced function eagerly, one operation after the other, as its graphs say.

    It is for finding out what happened in an execution: it takes many times as long.

    Args:
        captures: What it has instead of the function's own captures.
        instead: Asked for each operation whether it runs; nobody observes those that do not.
    """

    def __init__(
        self,
        concrete: Any,
        observe: Observer,
        *,
        captures: Sequence[Any] | None = None,
        instead: Substitute = nothing_instead,
    ):
        self._concrete = concrete
        self._captures = concrete.captured_inputs if captures is None else captures
        self._instead = instead
        self._graphs = {
            tf.compat.as_str(name): graph_of_function(function)
            for name, function in functions_in(concrete.graph).items()
        }
        self._observe = observe
        # Operations as functions of their own, which is a form that all of them have.
        self._single: dict[tf.Operation, Run] = {}
        # The operations of graphs, in an order in which they can run.
        self._orders: dict[Any, list[tf.Operation]] = {}

    def __call__(self, tensors: Sequence[Any]) -> list[Any]:
        """Runs the function with eager tensors."""
        given = [*tensors, *self._captures]
        return self._run(self._concrete.graph, given, RunningPlace())

    def _run(self, graph: Any, given: Sequence[Any], place: RunningPlace) -> list[Any]:
        values = {tensor.ref(): value for tensor, value in zip(graph.inputs, given, strict=True)}
        calls: Counter[str] = Counter()
        if graph not in self._orders:
            self._orders[graph] = _in_order(graph)
        for op in self._orders[graph]:
            if op.type == "Placeholder":
                continue
            inputs = [values[tensor.ref()] for tensor in op.inputs]
            outputs = self._outputs(op, inputs, place, calls)
            values.update((t.ref(), v) for t, v in zip(op.outputs, outputs, strict=True))
        return [values[tensor.ref()] for tensor in graph.outputs]

    def _outputs(
        self, op: tf.Operation, inputs: list[Any], place: RunningPlace, calls: Counter[str]
    ) -> list[Any]:
        if op.type in _LOOPS:
            return self._loop(op, inputs, place)
        if op.type in _BRANCHES:
            branch = _branch(op, inputs[0])
            return self._run(self._graphs[branch], inputs[1:], replace(place, function=branch))
        # The operation that calls a `Defun` of TensorFlow 1 has its name.
        if op.type in _CALLS or op.type in self._graphs:
            name = op.get_attr("f").name if op.type in _CALLS else op.type
            inside = replace(place, calls=(*place.calls, calls[name]), function=name)
            calls[name] += 1
            return self._run(self._graphs[name], inputs, inside)
        known = self._instead(op, place)
        if known is not None:
            return known
        if op not in self._single:
            self._single[op] = _function_of(op)
        return self._observe(op, place, inputs, self._single[op])

    def _loop(self, op: tf.Operation, inputs: list[Any], place: RunningPlace) -> list[Any]:
        condition, body = (op.get_attr(name).name for name in ("cond", "body"))
        # `tf.while_loop` keeps the most turns, or -1, as the second of what goes around.
        most = _limit(inputs)
        for turn in itertools.count():
            inside = replace(place, turns=(*place.turns, (turn, most)), function=body)
            asked = replace(inside, function=condition)
            [goes_on] = self._run(self._graphs[condition], inputs, asked)
            if not goes_on:
                return inputs
            inputs = self._run(self._graphs[body], inputs, inside)
        raise AssertionError("a count has no end")


def _in_order(graph: Any) -> list[tf.Operation]:
    """Returns the operations of a graph as they were made, but behind what they need.

    The gradient of a loop adds lists to what the loop takes, which are made after it.
    """
    found: dict[tf.Operation, None] = {}
    waiting = graph.get_operations()[::-1]
    while waiting:
        op = waiting[-1]
        needed = [*op.control_inputs, *(tensor.op for tensor in op.inputs)]
        missing = [] if op in found else [each for each in needed if each not in found]
        if missing:
            waiting.extend(missing[::-1])
        else:
            found[waiting.pop()] = None
    return [*found]


def _limit(inputs: Sequence[Any]) -> int | None:
    limit = inputs[1] if len(inputs) > 1 else None
    if limit is None or limit.dtype != tf.int32 or limit.shape.rank != 0:
        return None
    return int(limit) if int(limit) >= 0 else None


def _branch(op: tf.Operation, choice: Any) -> str:
    if op.type.endswith("If"):
        return op.get_attr("then_branch" if choice else "else_branch").name
    branches = op.get_attr("branches")
    index = int(choice)
    return branches[index if 0 <= index < len(branches) else -1].name


def _function_of(op: tf.Operation) -> Run:
    """Returns a function of the inputs of one operation, which returns a list of its outputs."""
    attributes = {name: value for name, value in op.node_def.attr.items() if name[0] != "_"}
    # Whoever looks for infinities has to see those of halves.
    attributes[LEFT_ALONE] = tf.compat.v1.AttrValue(b=True)

    # Shapes have to be known statically here where they were when the function was traced.
    known = {
        k: tensor.op.node_def.attr["value"].tensor
        for k, tensor in enumerate(op.inputs)
        if tensor.op.type == "Const"
    }

    def run(*given: Any) -> list[Any]:
        inputs = list(given)
        for k, value in known.items():
            inputs[k] = tf.constant(tf.make_ndarray(value))
        made = tf.compat.v1.get_default_graph().create_op(
            op.type, inputs, [t.dtype for t in op.outputs], attrs=attributes, name=op.type
        )
        return list(made.outputs)

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in op.inputs]
    concrete = tf.function(run, autograph=False).get_concrete_function(*specs)
    return lambda *inputs: list(concrete(*inputs))


def positions_of(place: RunningPlace) -> Iterator[tuple[int, int]]:
    """Yields the turn and the number of turns of the loops around an operation, joined.

    The first is that of no loop, the second that of the outermost one, and so on; loops without
    limit, and what is in them, are not among them.
    """
    turn, total = 0, 1
    yield turn, total
    for inner, count in place.turns:
        if not count:
            return
        turn, total = turn * count + inner, total * count
        yield turn, total
