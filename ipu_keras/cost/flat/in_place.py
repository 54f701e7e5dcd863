"""Decides which values take over the memory of one that is not needed any more."""

from collections.abc import Iterable
from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import (
    ComputeSet,
    FlatProgram,
    Value,
    is_carry,
    is_sum_of_replicas,
    is_update,
)
from ipu_keras.cost.flat.control_flow import are_alternatives, bodies_of, innermost_body
from ipu_keras.cost.flat.liveness import last_reads
from ipu_keras.ir import num_elements

# Vertices of these families can write into any operand of the result's size. TensorFlow for IPUs
# writes over operand 0 alone, but swaps operands of commutative operations first.
_ELEMENTWISE = frozenset({"elementwise", "cast", "norm", "softmax"})


def share_memory(program: FlatProgram) -> FlatProgram:
    """Lets values take over memory, as the operations of poplibs do that work in place.

    - What a loop carries starts where its first value was, and is written where it was read, if
      nobody needs those any more; otherwise it stays a copy.
    - A slice that is updated, a scatter, an elementwise operation and a sum over replicas overwrite
      an operand that nobody reads later.

    Copies that nothing needs then are gone.
    """
    return _Sharing(program).shared()


class _Sharing:
    def __init__(self, program: FlatProgram):
        sets = program.compute_sets
        self._program = program
        self._in_place = dict(program.in_place)
        self._made = {value.name: k for k, one in enumerate(sets) for value in one.writes}
        self._last = last_reads(sets)
        self._readers: dict[str, list[int]] = {}
        for position, one in enumerate(sets):
            for name in one.reads:
                self._readers.setdefault(name, []).append(position)
        # Values whose memory nobody else may have: results have to stay, and variables take
        # their new values.
        self._kept = {*program.results, *program.updates}
        self._same: dict[str, str] = {}  # by the name of a copy that nothing needs

    def shared(self) -> FlatProgram:
        program, sets = self._program, self._program.compute_sets
        for position, one in enumerate(sets):
            # Copies of loops come first: an elementwise operation that took a place before would
            # keep a value from being made where the loop carries it.
            if is_carry(one):
                self._drop_copy(position, one)
        for position, one in enumerate(sets):
            if one.name not in self._same:
                self._overwrite(position, one)
        in_place = {self._of(name): self._of(old) for name, old in self._in_place.items()}
        stashes: dict[str, int] = {}
        for name, count in program.stashes.items():
            stashes[self._of(name)] = max(count, stashes.get(self._of(name), 0))
        return replace(
            program,
            compute_sets=tuple(self._renamed(one) for one in sets if one.name not in self._same),
            values={name: v for name, v in program.values.items() if name not in self._same},
            results=tuple(map(self._of, program.results)),
            updates={self._of(name): variable for name, variable in program.updates.items()},
            in_place=in_place,
            stashes=stashes,
        )

    def _drop_copy(self, position: int, one: ComputeSet) -> None:
        (source,), (copy,) = one.reads, one.writes
        place = self._in_place.get(copy.name)
        if place is None:  # before the first trip
            if self._gives_up(source, position, one) or self._is_written_back(source, copy.name):
                self._same[copy.name] = source
        elif source not in self._in_place and self._can_be_at(place, source, one):
            self._in_place[source] = place
            self._same[copy.name] = source
            self._kept.add(source)  # for the next trip

    def _can_be_at(self, place: str, name: str, one: ComputeSet) -> bool:
        """Whether a result of a loop's trip can be made where the loop carries it."""
        made = self._made.get(name)
        if made is None or name in self._kept or not self._alike(place, name):
            return False
        maker, last = self._program.compute_sets[made], self._readers.get(place, [-1])[-1]
        if innermost_body(maker) != innermost_body(one):
            return False
        # The old value of this trip must not be read any more, but the vertex that makes the new
        # one may read it element by element.
        return last < made or (last == made and place in _overwritable(maker))

    def _is_written_back(self, name: str, copy: str) -> bool:
        """Whether a loop carries a variable that takes the loop's result."""
        updates, values = self._program.updates, self._program.values
        results = [result for result, place in self._in_place.items() if place == copy]
        return values[name].role == "variable" and [updates.get(r) for r in results] == [name]

    def _overwrite(self, position: int, one: ComputeSet) -> None:
        if not one.writes:  # such as a print
            return
        if is_sum_of_replicas(one):
            for value, name in zip(one.writes, one.reads, strict=True):
                self._write_over(value, (name,), position, one)
        else:
            self._write_over(one.writes[0], _overwritable(one), position, one)

    def _write_over(
        self, value: Value, names: Iterable[str], position: int, one: ComputeSet
    ) -> None:
        if value.name in self._in_place or value.name in self._program.updates:
            return
        for name in names:
            if self._alike(name, value.name) and self._gives_up(name, position, one):
                self._in_place[value.name] = name
                return

    def _gives_up(self, name: str, position: int, one: ComputeSet) -> bool:
        """Whether nobody needs a value after this compute set."""
        value, made = self._program.values[name], self._made.get(name)
        loops = () if made is None else bodies_of(self._program.compute_sets[made])
        return (
            # An accumulator is set to zero behind the update that reads it.
            (value.role in ("activation", "argument") or value.is_accumulator)
            and name not in self._kept
            and self._is_last(name, position, one)
            # Else the next trip reads it again.
            and innermost_body(one) in (None, *loops)
        )

    def _is_last(self, name: str, position: int, one: ComputeSet) -> bool:
        """Whether all that read a value later are in branches that run instead."""
        last = self._last[name]
        if last == position or one.repeat:
            return last == position
        # A loop around a branch needs a value until it ends.
        later = [k for k in self._readers[name] if k > position]
        return last in later and all(
            are_alternatives(one, self._program.compute_sets[k]) for k in later
        )

    def _alike(self, name: str, other: str) -> bool:
        first, second = self._program.values[name].spec, self._program.values[other].spec
        return first.dtype == second.dtype and num_elements(first) == num_elements(second)

    def _of(self, name: str) -> str:
        while name in self._same:
            name = self._same[name]
        return name

    def _renamed(self, one: ComputeSet) -> ComputeSet:
        if self._same.keys().isdisjoint(one.reads):
            return one
        return replace(one, reads=tuple(map(self._of, one.reads)))


def _overwritable(one: ComputeSet) -> tuple[str, ...]:
    """Returns the operands that a compute set's vertices can write to."""
    if is_update(one):
        return one.reads[:1]
    if one.family not in _ELEMENTWISE:
        return ()
    # Results are in the order of the first operand, so no other order can be written over.
    return tuple(name for k, name in enumerate(one.reads) if k == 0 or name not in one.viewed)
