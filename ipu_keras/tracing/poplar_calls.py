"""Turns each operation of Poplar's libraries into one operation, with its parts inside.

`poplar_operation` marks such operations in the trace. Here each marked scope, and each of its
gradient, becomes one operation of kind `"poplar-call"`.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ipu_keras.ir import CHECKPOINT, NOT_LOWERED, POPLAR_CALL, Graph, Op, TensorSpec, family_of
from ipu_keras.tracing.contraction import Group, Members, contract, cyclic_groups, generations
from ipu_keras.tracing.layers import LayerPlace, operation_of_reference, operation_path
from ipu_keras.tracing.poplar_operation import (
    RECOMPUTATION_CHECKPOINT,
    kind_of_poplar_operation,
    memory_proportion_of,
    without_marks,
)

# An operation of Poplar's libraries neither exchanges values with replicas nor talks to the
# host.
_OUTSIDE = frozenset({"collective", "stream copy"})
_NO_WORK = frozenset({"constant", "free"})

# A name without a scope is one that XLA made up. The tape's sums of gradients have none of a
# layer.
_UNNAMED = re.compile(r"[^/]+")
_SUM_OF_TAPE = re.compile(r"(?:(?:gradient_tape|gradients(?:_\d+)?)/)*AddN(?:_\d+)?/[^/]+")


def with_poplar_calls(graph: Graph) -> Graph:
    """Makes one operation of all operations that have the same `poplar_operation`.

    It has kind `"poplar-call"`, and the attribute `operation` says which one it is. Its `body`
    is the graph of what it computes, loops included; its inputs and outputs are what crosses
    the border. If a share of memory was chosen for its products, that is the attribute
    `memory_proportion`. Unnamed operations in between belong to it. Where the operation takes
    something that others make of its results, or replicas exchange values in between, it is
    divided into as many as it takes.

    A checkpoint of recomputation becomes an operation of kind `"recomputation-checkpoint"`,
    which passes its operand on; in the gradient it stays a `"reshape"`. Loops and branches
    outside of such operations have theirs inside.
    """
    calls = _Calls(graph)
    whole = calls.contracted(graph)
    pending = _called(whole.ops)
    done = set()
    while pending:
        name = pending.pop()
        if name not in done:
            done.add(name)
            calls.functions[name] = calls.contracted(calls.functions[name])
            pending += _called(calls.functions[name].ops)
    return replace(whole, functions=calls.functions)


def _called(ops: Sequence[Op]) -> list[str]:
    """Returns the graphs that operations call, except within operations of Poplar's libraries."""
    return [name for op in ops if op.kind != POPLAR_CALL for name in op.body]


class _Calls:
    """Makes the calls of a graph and its functions; `functions` gets the bodies."""

    def __init__(self, graph: Graph):
        self.functions = dict(graph.functions)
        self._counts: Counter[str] = Counter()

    def contracted(self, graph: Graph) -> Graph:
        ops = tuple(map(_checkpoint, graph.ops))
        members = self._members(ops, graph.results)
        if not members:
            return replace(graph, ops=ops)
        self._counts.clear()
        ops, results = contract(ops, graph.results, members, self._call)
        return replace(graph, ops=ops, results=results)

    def _members(self, ops: Sequence[Op], results: Sequence[str]) -> dict[str, str]:
        if not any(op.poplar_operation for op in ops):
            return {}
        inside = {
            op.name
            for op in ops
            if (op.outputs or NOT_LOWERED in op.attributes) and not self._reaches_outside(op)
        }
        members = {
            op.name: op.poplar_operation for op in ops if op.poplar_operation and op.name in inside
        }
        _add_nameless(ops, results, inside, members)
        # A scope left with only constants and reshapes computes nothing, so no operation is
        # shown for it.
        working = {members[op.name] for op in _working(ops) if op.name in members}
        members = {name: whole for name, whole in members.items() if whole in working}
        return _without_cycles(ops, members)

    def _reaches_outside(self, op: Op) -> bool:
        return family_of(op.kind) in _OUTSIDE or any(
            self._reaches_outside(inner) for name in op.body for inner in self.functions[name].ops
        )

    def _call(self, group: Group) -> Op:
        whole = next(op for op in group.ops if op.poplar_operation)
        name = self._unique(without_marks(operation_path(whole.poplar_operation)))
        body = _unused(name, self.functions)
        self.functions[body] = _body(body, name, group)
        attributes: dict[str, Any] = {"operation": kind_of_poplar_operation(whole.poplar_operation)}
        share = memory_proportion_of(whole.poplar_operation, backward=whole.backward)
        if share is not None:
            attributes["memory_proportion"] = share
        return Op(
            name=name,
            kind=POPLAR_CALL,
            outputs=group.outputs,
            body=(body,),
            inputs=group.inputs,
            attributes=attributes,
            **vars(replace(LayerPlace.of(whole), poplar_operation="")),
            stateful=any(op.stateful for op in group.ops),
        )

    def _unique(self, base: str) -> str:
        """Numbers calls of one path in a graph, as other calls of a function have the same path."""
        count = self._counts[base]
        self._counts[base] += 1
        return f"{base}.{count}" if count else base


def _checkpoint(op: Op) -> Op:
    if kind_of_poplar_operation(op.poplar_operation) != RECOMPUTATION_CHECKPOINT:
        return op
    marks = op.kind == "reshape" and not op.backward
    return replace(op, kind=CHECKPOINT if marks else op.kind, poplar_operation="")


def _working(ops: Sequence[Op]) -> Iterator[Op]:
    return (op for op in ops if family_of(op.kind) not in _NO_WORK)


def _add_nameless(
    ops: Sequence[Op], results: Sequence[str], inside: Collection[str], members: dict[str, str]
) -> None:
    """Adds unnamed operations that give to one Poplar operation alone, or take from one alone.

    A sum of gradients that come from elsewhere is no part of the operation that takes it. What
    is not `inside` can be a part of none.
    """
    users: dict[str, list[str]] = {op.name: [] for op in ops}
    for op in ops:
        for value in op.inputs:
            users[operation_of_reference(value)].append(op.name)
    for value in results:
        users[operation_of_reference(value)].append("")
    producers = {op.name: [operation_of_reference(value) for value in op.inputs] for op in ops}
    sums = {op.name for op in ops if _SUM_OF_TAPE.fullmatch(op.name)}
    nameless = [
        op.name
        for op in ops
        if op.name in inside
        and op.kind != "parameter"
        and (op.name in sums or _UNNAMED.fullmatch(op.name))
    ]
    # Backwards for users and forwards for producers, so that chains of unnamed operations join
    # in one pass.
    for name in reversed(nameless):
        whole = _common(users[name], members)
        taken = {members.get(producer) for producer in producers[name]}
        if whole is not None and (name not in sums or whole in taken):
            members[name] = whole
    for name in nameless:
        whole = _common(producers[name], members)
        if whole is not None:
            members.setdefault(name, whole)


def _common(names: Sequence[str], members: Members) -> str | None:
    """Returns the Poplar operation that all of these belong to, if there is one."""
    wholes = {members.get(name) for name in names}
    return wholes.pop() if len(wholes) == 1 else None


def _without_cycles(ops: Sequence[Op], members: dict[str, str]) -> dict[str, str]:
    """Divides operations that others come between, and gives up those that stay cyclic."""
    for whole in cyclic_groups(ops, members):
        names = {name for name, other in members.items() if other == whole}
        for name, number in generations(ops, names).items():
            members[name] = f"{whole}#{number}" if number else whole
    while cyclic := cyclic_groups(ops, members):
        first = next(members[op.name] for op in ops if members.get(op.name) in cyclic)
        members = {name: whole for name, whole in members.items() if whole != first}
    return members


def _unused(base: str, taken: Collection[str]) -> str:
    name, count = base, 1
    while name in taken:
        name, count = f"{base}.{count}", count + 1
    return name


def _body(function: str, call: str, group: Group) -> Graph:
    names = {value: f"{call}/parameter.{k}" for k, value in enumerate(group.inputs)}
    parameters = (
        _parameter(name, k, spec)
        for k, (name, spec) in enumerate(zip(names.values(), group.input_specs, strict=True))
    )
    ops = (
        replace(op, inputs=tuple(names.get(v, v) for v in op.inputs), poplar_operation="")
        for op in group.ops
    )
    return Graph(function, (*parameters, *ops), results=group.used, form="hlo")


def _parameter(name: str, number: int, spec: TensorSpec) -> Op:
    attributes = {"number": number, "first_leaf": number}
    return Op(name, "parameter", (spec,), attributes=attributes)
