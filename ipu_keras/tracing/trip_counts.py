"""Counts how often a loop runs, where that is known before it runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ipu_keras.ir import Graph, Op

# Kinds of operations that hand an integer on as it is.
_COPIES = frozenset({"bitcast", "convert", "copy", "opt-barrier", "reshape"})

_MIRRORED: Mapping[str, str] = {
    "LT": "GT",
    "LE": "GE",
    "GT": "LT",
    "GE": "LE",
    "EQ": "EQ",
    "NE": "NE",
}


@dataclass(frozen=True)
class _Scope:
    """A graph's operations, and where its parameters come from.

    The tensors of parameters have the values `leaves` in the scope of the caller; a graph that
    is not called has neither.
    """

    ops: Mapping[str, Op]
    leaves: tuple[str, ...] | None = None
    caller: "_Scope | None" = None


@dataclass(frozen=True)
class _Value:
    """The result of an operation at which a chain of copies begins."""

    scope: _Scope
    op: Op
    result: int


def with_trip_counts(ops: Sequence[Op], functions: Mapping[str, Graph]) -> tuple[Op, ...]:
    """Adds the attributes `trip_count`, `max_trip_count` and `counters` to loops.

    A loop is counted if its condition compares an integer, which starts from a constant and
    changes by a constant in each iteration, with a constant. Of several such comparisons, as
    `maximum_iterations` of TensorFlow adds one, the first that fails ends the loop.

    `trip_count` is `None` if the loop may end earlier than can be told; `max_trip_count` is the
    bound that holds even then, or `None`. `counters` has, for each integer that starts from a
    constant and changes by another, its position among what the loop carries, its first value and
    by how much it changes.
    """
    counted: dict[str, Op] = {}
    scope = _Scope(counted)  # the gradient of a loop asks how often the loop ran
    for op in ops:
        if op.kind == "while":
            op = replace(op, attributes={**op.attributes, **_counts(scope, op, functions)})
        counted[op.name] = op
    return tuple(counted.values())


def _counts(scope: _Scope, loop: Op, functions: Mapping[str, Graph]) -> dict[str, Any]:
    condition, body = (functions[name] for name in loop.body)
    checks = _conjuncts(_scope_of(condition), condition.results[0], functions)
    counts = [_count(check, scope, loop, body, functions) for check in checks]
    known = [count for count in counts if count is not None]
    bound = min(known, default=None)
    # A loop that never starts needs no other comparison to end.
    is_exact = len(known) == len(counts) or bound == 0
    return {
        "trip_count": bound if is_exact else None,
        "max_trip_count": bound,
        "counters": tuple(_counters(scope, loop, body, functions)),
    }


def _counters(
    scope: _Scope, loop: Op, body: Graph, functions: Mapping[str, Graph]
) -> Iterator[tuple[int, int, int]]:
    """Yields the position, the first value and the step of integers that count turns."""
    for leaf, (source, spec) in enumerate(zip(loop.inputs, loop.outputs, strict=True)):
        if spec.shape or not spec.dtype.startswith(("int", "uint")):
            continue
        start = _known(_origin(scope, source, functions), functions)
        step = _step(body, leaf, functions)
        if start is not None and step:
            yield leaf, start, step


def _count(
    check: _Value, outside: _Scope, loop: Op, body: Graph, functions: Mapping[str, Graph]
) -> int | None:
    """Returns the iterations until a comparison fails; `None` if that cannot be told."""
    if check.op.kind != "compare":
        return None
    sides = [_origin(check.scope, value, functions) for value in check.op.inputs]
    direction = check.op.attributes["direction"]
    first, second = (_progress(side, outside, loop, body, functions) for side in sides)
    if first is None or second is None:
        return None
    if first[1] == 0:
        first, second, direction = second, first, _MIRRORED[direction]
    # What is left to compare is one integer that changes with one that does not.
    (start, step), (limit, change) = first, second
    return iterations(start, limit, step, direction) if change == 0 else None


def iterations(start: int, limit: int, step: int, direction: str) -> int | None:
    """Counts how often `start, start + step, ...` compares true with `limit` before it fails.

    It is `None` if the comparison never fails. The direction is XLA's: "LT", "LE", "GT", "GE",
    "EQ" or "NE".

    Example:

    >>> iterations(0, 7, 2, "LT")  # 0, 2, 4, 6
    4
    """
    distance = limit - start
    if direction in ("GT", "GE"):
        distance, step = -distance, -step
    if direction == "EQ":
        if distance != 0:
            return 0
        return 1 if step else None
    if direction == "NE":
        if distance == 0:
            return 0
        reaches = step != 0 and distance % step == 0 and distance // step > 0
        return distance // step if reaches else None
    if direction in ("LE", "GE"):
        distance += 1
    if distance <= 0:
        return 0
    return -(-distance // step) if step > 0 else None


def _conjuncts(scope: _Scope, value: str, functions: Mapping[str, Graph]) -> list[_Value]:
    """Returns the comparisons that all have to hold for a value to be true."""
    pending = [_origin(scope, value, functions)]
    found = []
    while pending:
        origin = pending.pop()
        if origin.op.kind == "and":
            pending += [_origin(origin.scope, part, functions) for part in origin.op.inputs]
        else:
            found.append(origin)
    return found


def _origin(scope: _Scope, value: str, functions: Mapping[str, Graph]) -> _Value:
    """Follows a value through copies, and into and out of called graphs, to where it comes from."""
    while True:
        name, _, result = value.partition(":")
        op, index = scope.ops[name], int(result or 0)
        if op.kind in _COPIES and len(op.outputs) == 1:
            value = op.inputs[0]
        elif op.kind == "call":
            called = functions[op.body[0]]
            scope = _scope_of(called, op.inputs, scope)
            value = called.results[index]
        elif op.kind == "parameter" and scope.leaves is not None and scope.caller is not None:
            value = scope.leaves[op.attributes["first_leaf"] + index]
            scope = scope.caller
        else:
            return _Value(scope, op, index)


def _scope_of(
    graph: Graph, leaves: tuple[str, ...] | None = None, caller: _Scope | None = None
) -> _Scope:
    return _Scope({op.name: op for op in graph.ops}, leaves, caller)


def _progress(
    value: _Value, outside: _Scope, loop: Op, body: Graph, functions: Mapping[str, Graph]
) -> tuple[int, int] | None:
    """Returns an integer's value before a loop, and by how much an iteration changes it."""
    leaf = _leaf(value)
    if leaf is None:
        constant = _constant(value)
        return None if constant is None else (constant, 0)
    start = _known(_origin(outside, loop.inputs[leaf], functions), functions)
    step = _step(body, leaf, functions)
    return None if start is None or step is None else (start, step)


def _known(value: _Value, functions: Mapping[str, Graph]) -> int | None:
    """Returns an integer that is a constant, or that a counted loop ends with."""
    loop = value.op
    if loop.kind != "while" or loop.attributes.get("trip_count") is None:
        return _constant(value)
    start = _known(_origin(value.scope, loop.inputs[value.result], functions), functions)
    step = _step(functions[loop.body[1]], value.result, functions)
    if start is None or step is None:
        return None
    return start + loop.attributes["trip_count"] * step


def _constant(value: _Value) -> int | None:
    found = value.op.attributes.get("value") if value.op.kind == "constant" else None
    return found if isinstance(found, int) else None


def _leaf(value: _Value) -> int | None:
    if value.op.kind != "parameter":
        return None
    return value.op.attributes["first_leaf"] + value.result


def _step(body: Graph, leaf: int, functions: Mapping[str, Graph]) -> int | None:
    """Returns by how much an iteration changes a loop's tensor; 0 if it only hands it on."""
    update = _origin(_scope_of(body), body.results[leaf], functions)
    if _leaf(update) == leaf:
        return 0
    if update.op.kind not in ("add", "subtract"):
        return None
    left, right = (_origin(update.scope, part, functions) for part in update.op.inputs)
    if update.op.kind == "add" and _constant(left) is not None:
        left, right = right, left
    step = _constant(right)
    if _leaf(left) != leaf or step is None:
        return None
    return step if update.op.kind == "add" else -step
