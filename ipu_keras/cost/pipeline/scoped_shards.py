"""Finds which of several IPUs each compute set is on, where scopes say it of some."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram
from ipu_keras.ir import Graph


@dataclass(frozen=True)
class Parts:
    """The part, by its index, of every compute set and of every value: a layer, or several."""

    by_position: Sequence[int]
    by_value: Mapping[str, int]


def num_ipus_of_shards(graph: Graph) -> int:
    """Returns how many IPUs a step needs for its shards: systems hand out 1, 2, 4, ...

    Example:

    >>> from ipu_keras.ir import Op
    >>> num_ipus_of_shards(Graph("step", (Op("x", "add", shard=2), Op("y", "add"))))
    4
    """
    last = max((op.shard for op in graph.walk() if op.shard is not None), default=0)
    return 1 << last.bit_length()


def with_shards(program: FlatProgram) -> FlatProgram:
    """Gives every compute set a shard, if any has one."""
    if not has_shards(program):
        return program
    parts = parts_of_shards(program)
    compute_sets = (
        replace(one, shard=part)
        for one, part in zip(program.compute_sets, parts.by_position, strict=True)
    )
    return replace(program, compute_sets=tuple(compute_sets))


def without_shards(program: FlatProgram) -> FlatProgram:
    if not has_shards(program):
        return program
    compute_sets = (replace(one, shard=None) for one in program.compute_sets)
    return replace(program, compute_sets=tuple(compute_sets))


def has_shards(program: FlatProgram) -> bool:
    """Whether a scope says where some compute set is."""
    return any(one.shard is not None for one in program.compute_sets)


def parts_of_shards(program: FlatProgram) -> Parts:
    """Finds where compute sets and values are: as scopes say, else with their neighbours.

    Variables are on the first IPU that a scope brings them to. What updates one is where it is;
    other work, where its largest operand is, or if that may be anywhere, where its result is
    used.
    """
    shards = [one.shard for one in program.compute_sets]
    made = {value.name for one in program.compute_sets for value in one.writes}
    homes: dict[str, int] = {}
    for one, shard in zip(program.compute_sets, shards, strict=True):
        if shard is not None:
            for name in one.reads:
                if name not in made:
                    homes.setdefault(name, shard)
    for position, one in enumerate(program.compute_sets):
        if shards[position] is None:
            shards[position] = _where_it_belongs(program, one, homes)
        if (shard := shards[position]) is not None:
            homes.update((value.name, shard) for value in one.writes)
    users: dict[str, int] = {}
    for position in reversed(range(len(shards))):
        one = program.compute_sets[position]
        if (shard := shards[position]) is None:
            found = (users[value.name] for value in one.writes if value.name in users)
            shard = shards[position] = next(found, 0)
            homes.update((value.name, shard) for value in one.writes)
        users.update(dict.fromkeys(one.reads, shard))
    # Values that no scope brings anywhere are where their first user is.
    rest = {name: users.get(name, 0) for name in program.values}
    return Parts([shard or 0 for shard in shards], {**rest, **homes})


def _where_it_belongs(
    program: FlatProgram, one: ComputeSet, homes: Mapping[str, int]
) -> int | None:
    updated = [program.updates[v.name] for v in one.writes if v.name in program.updates]
    owners = [homes[name] for name in updated if name in homes]
    if owners:
        return owners[0]
    values = program.values
    known = [n for n in one.reads if n in homes and values[n].role != "constant"]
    return homes[max(known, key=lambda name: values[name].spec.nbytes)] if known else None
