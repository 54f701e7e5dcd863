"""Makes fewer compute sets that do the same, from compute sets of single operations.

Equal ones become one, and chains of elementwise operations one vertex, as in popops::map.
"""

from collections import Counter
from collections.abc import Callable, Mapping
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
    # First of all, as what joined a chain could not join a reduction any more. TensorFlow for IPUs
    # has popops square as it sums (FuseOpsLate), which an instruction does, and drops the casts
    # around a reduction (CastsElimination): popops reads halves and sums in float32.
    program = _within_reductions(program, _adds_squares)
    program = _within_reductions(program, _takes_halves)
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


def _within_reductions(
    program: FlatProgram, may: Callable[[ComputeSet, ComputeSet], bool]
) -> FlatProgram:
    """Joins what some compute sets make with the reductions that alone read it."""
    made = {one.writes[0].name: one for one in program.compute_sets if len(one.writes) == 1}
    reduced = Counter(
        one.reads[0]
        for one in program.compute_sets
        if one.reads and one.reads[0] in made and _reduces(one, made[one.reads[0]], may)
    )
    uses = _uses(program)
    joined = {name: made[name] for name, count in reduced.items() if uses[name] == count}
    compute_sets = []
    for one in program.compute_sets:
        producer = joined.get(one.reads[0]) if one.reads else None
        if producer is not None:
            one = _reducing(one, producer)
        if not one.writes or one.writes[0].name not in joined:
            compute_sets.append(one)
    values = {name: value for name, value in program.values.items() if name not in joined}
    return replace(program, compute_sets=tuple(compute_sets), values=values)


def _reduces(
    one: ComputeSet, producer: ComputeSet, may: Callable[[ComputeSet, ComputeSet], bool]
) -> bool:
    """Whether a compute set reduces one tensor, when and as often as another makes it."""
    return (
        one.family == "reduce"
        and may(one, producer)
        and len(one.writes) == 1
        and producer.writes[0].name not in one.reads[1:]
        and (producer.repeat, _place(producer)) == (one.repeat, _place(one))
    )


def _adds_squares(one: ComputeSet, producer: ComputeSet) -> bool:
    """Whether a reduction adds up what is a value times itself."""
    op = producer.ops[-1]
    is_square = len(producer.ops) == 1 and op.kind == "multiply" and len(set(op.inputs)) == 1
    return is_square and one.ops[-1].attributes["operation"] == "add"


def _takes_halves(one: ComputeSet, producer: ComputeSet) -> bool:
    return widens_halves(producer)


def _reducing(one: ComputeSet, producer: ComputeSet) -> ComputeSet:
    taken = replace(one.operands[0], dtype=producer.operands[0].dtype)
    return replace(
        one,
        ops=(*producer.ops, *one.ops),
        operands=(taken, *one.operands[1:]),
        reads=(producer.reads[0], *one.reads[1:]),
        views=tuple(sorted({*one.views, *(0 for _ in producer.views)})),
        flops=producer.flops + one.flops,
        bytes_read=one.bytes_read - one.operands[0].nbytes + taken.nbytes,
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
