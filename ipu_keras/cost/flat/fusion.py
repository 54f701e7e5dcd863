"""Makes fewer compute sets that do the same, from compute sets of single operations.

Equal ones become one, and chains of elementwise operations one vertex, as in popops::map.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import (
    DETERMINISTIC,
    ComputeSet,
    FlatProgram,
    is_carry,
    widens_halves,
)
from ipu_keras.ir import num_elements

# They join a chain of elementwise operations without a vertex of their own.
_FUSES = frozenset({"elementwise", "cast", "broadcast"})


def deduplicate(program: FlatProgram) -> FlatProgram:
    """Computes once what several ask for, such as Adam's powers of its rates."""
    same: dict[str, str] = {}
    found: dict[tuple, ComputeSet] = {}
    kept = []
    for one in program.compute_sets:
        if not same.keys().isdisjoint(one.reads):
            one = replace(one, reads=tuple(same.get(name, name) for name in one.reads))
        (op,) = one.ops
        # Attributes are a dictionary, which has no hash; the text of equal ones is equal.
        key = (op.kind, one.reads, op.outputs, repr(op.attributes), one.repeat, _place(one))
        # Nothing is shared by parts of a pipeline, IPUs, or what runs not as often.
        first = found.setdefault(key, one) if one.family in DETERMINISTIC else one
        if first is one:
            kept.append(one)
        else:
            pairs = zip(one.writes, first.writes, strict=True)
            same.update((value.name, other.name) for value, other in pairs)
    return replace(
        program,
        compute_sets=tuple(kept),
        results=tuple(same.get(name, name) for name in program.results),
        updates={same.get(name, name): variable for name, variable in program.updates.items()},
        checkpoints=tuple(same.get(name, name) for name in program.checkpoints),
    )


def fuse(program: FlatProgram) -> FlatProgram:
    """Joins chains of elementwise operations, and drops the values that never reach memory.

    An operation joins the one that uses its result if nobody else does, both have as many
    elements, and both run as often. A broadcast joins everyone who uses it: it is a view, which
    costs nothing within another vertex, beside the values of a reduction, or in a further
    broadcast. Nothing else joins what runs in another part of a pipeline, or not as often.
    """
    # First of all, as a conversion that joined a chain could not join a reduction any more.
    program = _without_widening(program)
    uses = _uses(program)
    made_by = {value.name: one for one in program.compute_sets for value in one.writes}
    joined: dict[str, list[ComputeSet]] = {}  # by the name of the last of a chain
    times_joined: Counter[str] = Counter()
    for one in program.compute_sets:
        chain: dict[str, ComputeSet] = {}
        for name in dict.fromkeys(one.reads):
            producer = made_by.get(name)
            if producer is not None and _joins(producer, one, uses[name]):
                chain.update((member.name, member) for member in joined[producer.name])
                times_joined[producer.name] += 1
        joined[one.name] = [*chain.values(), one]
    compute_sets = tuple(
        _merged(joined[one.name])
        for one in program.compute_sets
        # What joined all of its readers is gone, and so is a view that nobody takes; anything
        # else that nobody reads, such as a print, stays.
        if times_joined[one.name] < max(not _broadcasts(one), _num_uses(one, uses))
    )
    alive = set(program.results) | {v.name for one in compute_sets for v in one.writes}
    alive.update(name for one in compute_sets for name in one.reads)
    values = {name: value for name, value in program.values.items() if name in alive}
    return replace(program, compute_sets=compute_sets, values=values)


def _uses(program: FlatProgram) -> Counter[str]:
    """Counts the compute sets that read each value, and the results that return it."""
    uses = Counter(name for one in program.compute_sets for name in dict.fromkeys(one.reads))
    uses.update(program.results)
    # A checkpoint is kept in memory, so it must not vanish into a chain.
    uses.update(program.checkpoints)
    return uses


def _num_uses(one: ComputeSet, uses: Mapping[str, int]) -> int:
    return sum(uses[value.name] for value in one.writes)


def _without_widening(program: FlatProgram) -> FlatProgram:
    """Joins conversions of halves to float32 with the reductions that alone read them."""
    wide = {one.writes[0].name: one for one in program.compute_sets if widens_halves(one)}
    reduced = Counter(
        one.reads[0]
        for one in program.compute_sets
        if one.reads and one.reads[0] in wide and _takes_halves(one, wide[one.reads[0]])
    )
    uses = _uses(program)
    # TensorFlow for IPUs drops the casts around a reduction (CastsElimination): popops reads
    # halves and sums in float32, so that half as many bytes move between tiles.
    joined = {name: one for name, one in wide.items() if 0 < uses[name] == reduced[name]}
    compute_sets = []
    for one in program.compute_sets:
        conversion = joined.get(one.reads[0]) if one.reads else None
        if conversion is not None:
            one = _reducing_halves(one, conversion)
        if not one.writes or one.writes[0].name not in joined:
            compute_sets.append(one)
    values = {name: value for name, value in program.values.items() if name not in joined}
    return replace(program, compute_sets=tuple(compute_sets), values=values)


def _takes_halves(one: ComputeSet, conversion: ComputeSet) -> bool:
    """Whether a compute set reduces one tensor, when and as often as a conversion makes it."""
    return (
        one.family == "reduce"
        and len(one.writes) == 1
        and conversion.writes[0].name not in one.reads[1:]
        and (conversion.repeat, _place(conversion)) == (one.repeat, _place(one))
    )


def _reducing_halves(one: ComputeSet, conversion: ComputeSet) -> ComputeSet:
    narrow = replace(one.operands[0], dtype=conversion.operands[0].dtype)
    return replace(
        one,
        ops=(*conversion.ops, *one.ops),
        operands=(narrow, *one.operands[1:]),
        reads=(*conversion.reads, *one.reads[1:]),
        flops=conversion.flops + one.flops,
        bytes_read=one.bytes_read - one.operands[0].nbytes + narrow.nbytes,
    )


def _joins(producer: ComputeSet, consumer: ComputeSet, uses: int) -> bool:
    # Broadcasts are free wherever they are, so several readers and other parts of a pipeline may
    # each have one. All else would be computed twice, or at another time.
    broadcasts = _broadcasts(producer)
    if broadcasts and (_is_further_operand(producer, consumer) or _broadcasts(consumer)):
        return producer.repeat == consumer.repeat
    return (
        producer.family in _FUSES
        and (consumer.family in _FUSES or (broadcasts and is_carry(consumer)))
        and len(producer.writes) == 1
        and (uses == 1 or broadcasts)
        and producer.repeat == consumer.repeat
        # The vertex of a chain meets all of its operands in one order.
        and (broadcasts or producer.writes[0].name not in consumer.viewed)
        and (broadcasts or _place(producer) == _place(consumer))
        and _size(producer) == _size(consumer)
    )


def _broadcasts(one: ComputeSet) -> bool:
    return one.ops[-1].kind == "broadcast"


def _is_further_operand(producer: ComputeSet, consumer: ComputeSet) -> bool:
    """Whether a reduction takes a value beside its values, as an arg max does an axis' numbers."""
    # Vertices of popops' arg max count by themselves.
    return consumer.family == "reduce" and producer.writes[0].name in consumer.reads[1:]


def _place(one: ComputeSet) -> tuple:
    return one.part, one.shard


def _size(one: ComputeSet) -> int:
    return num_elements(one.writes[0].spec)


def _merged(chain: list[ComputeSet]) -> ComputeSet:
    last = chain[-1]
    if len(chain) == 1:
        return last
    inside = {value.name for one in chain[:-1] for value in one.writes}
    reads = dict.fromkeys(
        (name, position in one.views)
        for one in chain
        for position, name in enumerate(one.reads)
        if name not in inside
    )
    families = {one.family for one in chain}
    # The first of these that is in the chain decides how the whole is costed.
    family = next(
        (name for name in ("reduce", "elementwise", "cast") if name in families), chain[0].family
    )
    read = sum(one.bytes_read for one in chain) - sum(
        v.spec.nbytes for one in chain[:-1] for v in one.writes
    )
    return replace(
        last,
        family=family,
        ops=tuple(op for one in chain for op in one.ops),
        reads=tuple(name for name, _ in reads),
        views=tuple(position for position, (_, is_view) in enumerate(reads) if is_view),
        layer=last.layer or next((one.layer for one in chain if one.layer), ""),
        flops=sum(one.flops for one in chain),
        bytes_read=read,
    )
