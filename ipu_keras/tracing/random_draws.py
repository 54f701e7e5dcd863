"""Random draws as one operation each, as the hardware has them.

XLA has no random number generator of the IPU's kind: it spells a draw out as
hundreds of integer instructions. What they compute on an IPU is one vertex per
tile, so they are one operation of kind "random" here.
"""

import heapq
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ipu_keras.ir import Op
from ipu_keras.tracing.layers import operation_of_reference

RANDOM = "random"

# The scopes of TensorFlow's sampling functions.
_SAMPLER = re.compile(
    r"(?:(?:stateless|stateful|parameterized)_)?"
    r"(?:(?:random|truncated)_)?"
    r"(?:uniform|normal|binomial|categorical|gamma|multinomial|poisson|shuffle)"
    r"(?:_full_int)?(?:_\d+)?"
)
# TensorFlow's operations that draw, and those that derive the state they draw from.
_KIND = re.compile(
    r"(?:Stateless|Stateful)?(?:Random|TruncatedNormal|ParameterizedTruncatedNormal|"
    r"StandardNormal|Uniform(?:FullInt|Int)?$|Multinomial).*|Rng.*"
)
_GENERATORS = frozenset({"rng", "rng-bit-generator", "rng-get-and-update-state"})
_DISTRIBUTIONS = (
    "truncated_normal",
    "normal",
    "uniform",
    "binomial",
    "categorical",
    "gamma",
    "multinomial",
    "poisson",
    "shuffle",
)


@dataclass(frozen=True)
class Origin:
    """What the trace says of where an operation comes from.

    Args:
        path: Of the TensorFlow operation; empty if there is none.
        kind: Type of the TensorFlow operation.
    """

    path: str = ""
    kind: str = ""


def draw_of(origin: Origin) -> str:
    """The scope of the random draw that an operation is a part of, or "".

    Example:
        >>> draw_of(Origin("model/dropout/stateless_random_uniform/mul", "Mul"))
        'model/dropout/stateless_random_uniform'
    """
    parts = origin.path.split("/")
    for index, part in enumerate(parts):
        if _SAMPLER.fullmatch(part):
            return "/".join(parts[: index + 1])
    return origin.path if _KIND.fullmatch(origin.kind) else ""


def with_random_draws(
    ops: Sequence[Op], results: Sequence[str], origins: Mapping[str, Origin]
) -> tuple[tuple[Op, ...], tuple[str, ...]]:
    """Replaces the operations of each random draw by one of kind "random".

    Its inputs are what the draw took from outside: a seed. Its outputs are what
    is used outside. A draw that other operations take part in stays as it is.

    Args:
        ops: Of a graph, each after those whose results it takes.
        results: What the graph returns.
        origins: By the names of the operations.

    Returns:
        The operations, in such an order again, and the results.
    """
    draws = _draws(ops, origins)
    while draws:
        members = {name: draw for draw, names in draws.items() for name in names}
        cyclic = _cyclic(ops, members)
        if not cyclic:
            return _collapsed(ops, results, members)
        draws = {draw: names for draw, names in draws.items() if draw not in cyclic}
    return tuple(ops), tuple(results)


def _draws(ops: Sequence[Op], origins: Mapping[str, Origin]) -> dict[str, list[str]]:
    """Names of operations by the scope of their draw."""
    scopes = {origin: draw_of(origin) for origin in set(origins.values()) if origin.path}
    found: dict[str, list[str]] = {}
    drawing = set()
    for op in ops:
        origin = origins[op.name]
        draw = scopes.get(origin, "")
        if draw and op.kind != "parameter":
            found.setdefault(draw, []).append(op.name)
            if op.kind in _GENERATORS or _KIND.fullmatch(origin.kind):
                drawing.add(draw)
    # A layer may be called "normal" and draw nothing.
    return {draw: names for draw, names in found.items() if draw in drawing}


def _units(ops: Sequence[Op], members: Mapping[str, str]) -> Iterator[tuple[str, set[str]]]:
    """Each operation or draw with those whose results it takes, the draw's as one."""
    for op in ops:
        unit = members.get(op.name, op.name)
        producers = {operation_of_reference(value) for value in op.inputs}
        yield unit, {members.get(name, name) for name in producers} - {unit}


def _order(ops: Sequence[Op], members: Mapping[str, str]) -> list[str]:
    """Operations and draws in order; those on a cycle, or after one, are left out."""
    # Scopes and names of operations cannot be equal: the latter end in an opcode.
    producers: dict[str, set[str]] = {}
    for unit, names in _units(ops, members):
        producers.setdefault(unit, set()).update(names)
    users: dict[str, list[str]] = {unit: [] for unit in producers}
    for unit, names in producers.items():
        for name in names:
            users[name].append(unit)
    position = {unit: index for index, unit in enumerate(producers)}
    waits = {unit: len(names) for unit, names in producers.items()}
    ready = [(position[unit], unit) for unit, count in waits.items() if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, unit = heapq.heappop(ready)
        order.append(unit)
        for user in users[unit]:
            waits[user] -= 1
            if waits[user] == 0:
                heapq.heappush(ready, (position[user], user))
    return order


def _cyclic(ops: Sequence[Op], members: Mapping[str, str]) -> set[str]:
    """Draws that take something which depends on what they give."""
    return set(members.values()) - set(_order(ops, members))


def _collapsed(
    ops: Sequence[Op], results: Sequence[str], members: Mapping[str, str]
) -> tuple[tuple[Op, ...], tuple[str, ...]]:
    by_name = {op.name: op for op in ops}
    draws: dict[str, list[Op]] = {}
    for name, draw in members.items():
        draws.setdefault(draw, []).append(by_name[name])
    used = _used_outside(ops, results, members)
    renamed: dict[str, str] = {}
    for draw in draws:
        values = used.get(draw, [])
        for index, value in enumerate(values):
            renamed[value] = _name(draw) if len(values) == 1 else f"{_name(draw)}:{index}"
    made = []
    for unit in _order(ops, members):
        if unit in by_name:
            op = by_name[unit]
        elif unit in used:
            op = _draw(unit, draws[unit], used[unit], by_name)
        else:
            continue
        made.append(replace(op, inputs=tuple(renamed.get(value, value) for value in op.inputs)))
    return tuple(made), tuple(renamed.get(value, value) for value in results)


def _used_outside(
    ops: Sequence[Op], results: Sequence[str], members: Mapping[str, str]
) -> dict[str, list[str]]:
    """What each draw gives to others, in the order of use."""
    used: dict[str, dict[str, None]] = {}
    takers = [(members.get(op.name), op.inputs) for op in ops]
    for taker, values in [*takers, (None, tuple(results))]:
        for value in values:
            draw = members.get(operation_of_reference(value))
            if draw is not None and draw != taker:
                used.setdefault(draw, {})[value] = None
    return {draw: list(values) for draw, values in used.items()}


def _draw(scope: str, parts: Sequence[Op], used: Sequence[str], by_name: Mapping[str, Op]) -> Op:
    inside = {op.name for op in parts}
    taken = dict.fromkeys(
        value for op in parts for value in op.inputs if operation_of_reference(value) not in inside
    )
    outputs = []
    for value in used:
        name, _, index = value.partition(":")
        outputs.append(by_name[name].outputs[int(index or 0)])
    return Op(
        name=_name(scope),
        kind=RANDOM,
        outputs=tuple(outputs),
        inputs=tuple(taken),
        attributes={"distribution": _distribution(scope)},
        layer=parts[0].layer,
        backward=parts[0].backward,
        stage=parts[0].stage,
        weight_update=parts[0].weight_update,
        stateful=any(op.stateful for op in parts),
    )


def _name(scope: str) -> str:
    return f"{scope}/{RANDOM}"


def _distribution(scope: str) -> str:
    """Named after the sampling function, or the operation, at the end of the scope."""
    sampler = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", scope.rpartition("/")[2]).lower()
    return next((name for name in _DISTRIBUTIONS if name in sampler), "other")
