"""Contracts groups of a graph's operations, so that one operation stands for each group."""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ipu_keras.ir import Op, TensorSpec
from ipu_keras.tracing.layers import operation_of_reference

# The group of each operation, by name. The names of groups and operations must be distinct,
# because both are nodes when the contracted graph is put in order.
Members = Mapping[str, str]


@dataclass(frozen=True)
class Group:
    """Operations that become one.

    Args:
        ops: The members in the order of the graph; they wait only for other members.
        inputs: What the members take from outside, as `Op.inputs` names it.
        used: Results of members that others, or the graph's results, take.
    """

    name: str
    ops: tuple[Op, ...]
    inputs: tuple[str, ...]
    input_specs: tuple[TensorSpec, ...]
    used: tuple[str, ...]
    outputs: tuple[TensorSpec, ...]


def contract(
    ops: Sequence[Op], results: Sequence[str], members: Members, make: Callable[[Group], Op]
) -> tuple[tuple[Op, ...], tuple[str, ...]]:
    """Replaces the operations of each group by the one that `make` returns for it.

    Operations come after those whose results they take, before and after this. No group may be
    among `cyclic_groups`. A group whose results nobody uses is left out, unless it has an
    effect: then one of its operations has no results.
    """
    by_name = {op.name: op for op in ops}
    made: dict[str, Op] = {}
    renamed: dict[str, str] = {}
    for group in _groups(ops, results, members):
        op = made[group.name] = make(group)
        several = len(group.used) > 1
        for index, value in enumerate(group.used):
            renamed[value] = f"{op.name}:{index}" if several else op.name
    units = ((unit, by_name.get(unit) or made.get(unit)) for unit in _order(ops, members))
    waits = _waits(ops, members)
    final = {unit: op.name for unit, op in (by_name | made).items()}
    contracted = tuple(
        replace(
            op,
            inputs=tuple(renamed.get(value, value) for value in op.inputs),
            after=tuple(final[name] for name in waits[unit] if name in final),
        )
        for unit, op in units
        if op is not None
    )
    return contracted, tuple(renamed.get(value, value) for value in results)


def cyclic_groups(ops: Sequence[Op], members: Members) -> set[str]:
    """Finds groups that take something which depends on what they give, and those behind such.

    As one operation, such a group would have to wait for itself.
    """
    return set(members.values()) - set(_order(ops, members))


def generations(ops: Sequence[Op], names: set[str]) -> dict[str, int]:
    """Numbers the operations of a group by how often others come between its beginning and them.

    No other operation lies between two of one number, so a cyclic group can be divided by them.
    """
    behind: dict[str, int] = {}
    for op in ops:
        is_member = op.name in names
        producers = _producers(op)
        behind[op.name] = max(
            (behind[name] + (name in names and not is_member) for name in producers), default=0
        )
    return {name: behind[name] for name in behind if name in names}


def _groups(ops: Sequence[Op], results: Sequence[str], members: Members) -> Iterator[Group]:
    """Yields the groups that are used, or that have an effect."""
    specs = _specs(ops)
    parts: dict[str, list[Op]] = {}
    for op in ops:
        if op.name in members:
            parts.setdefault(members[op.name], []).append(op)
    used_outside = _used_outside(ops, results, members)
    used_outside.update(
        (name, [])
        for name, group in parts.items()
        if name not in used_outside and not all(op.outputs for op in group)
    )
    for name, used in used_outside.items():
        inside = {op.name for op in parts[name]}
        taken = dict.fromkeys(
            value
            for op in parts[name]
            for value in op.inputs
            if operation_of_reference(value) not in inside
        )
        yield Group(
            name,
            tuple(
                replace(op, after=tuple(other for other in op.after if other in inside))
                for op in parts[name]
            ),
            tuple(taken),
            tuple(specs[value] for value in taken),
            tuple(used),
            tuple(specs[value] for value in used),
        )


def _specs(ops: Sequence[Op]) -> dict[str, TensorSpec]:
    found = {f"{op.name}:{k}": spec for op in ops for k, spec in enumerate(op.outputs)}
    found.update((op.name, op.outputs[0]) for op in ops if len(op.outputs) == 1)
    return found


def _used_outside(
    ops: Sequence[Op], results: Sequence[str], members: Members
) -> dict[str, list[str]]:
    """Returns what each group gives to others, in the order of use."""
    used: dict[str, dict[str, None]] = {}
    takers = [(members.get(op.name), op.inputs) for op in ops]
    for taker, values in [*takers, (None, tuple(results))]:
        for value in values:
            group = members.get(operation_of_reference(value))
            if group is not None and group != taker:
                used.setdefault(group, {})[value] = None
    return {group: list(values) for group, values in used.items()}


def _units(ops: Sequence[Op], members: Members) -> Iterator[tuple[str, set[str]]]:
    """Yields each operation, or the group that it is in, with the units that it comes after."""
    for op in ops:
        unit = members.get(op.name, op.name)
        yield unit, {members.get(name, name) for name in _producers(op)} - {unit}


def _producers(op: Op) -> set[str]:
    return {*map(operation_of_reference, op.inputs), *op.after}


def _waits(ops: Sequence[Op], members: Members) -> dict[str, dict[str, None]]:
    """Returns for each unit the units that it waits for without taking their results."""
    found: dict[str, dict[str, None]] = {}
    for op in ops:
        unit = members.get(op.name, op.name)
        others = (members.get(name, name) for name in op.after)
        found.setdefault(unit, {}).update((other, None) for other in others if other != unit)
    return found


def _order(ops: Sequence[Op], members: Members) -> list[str]:
    """Sorts operations and groups topologically; those on a cycle, or after one, are left out."""
    producers: dict[str, set[str]] = {}
    for unit, names in _units(ops, members):
        producers.setdefault(unit, set()).update(names)
    users: dict[str, list[str]] = {unit: [] for unit in producers}
    for unit, names in producers.items():
        for name in names:
            users[name].append(unit)
    # Of what is ready the earliest in the old order goes first, so that graphs, and with them
    # reports, keep the order of the trace wherever they can.
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
