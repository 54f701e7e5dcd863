"""Merges collectives of several tensors, as the compiler for IPUs does if it may.

Each exchange between replicas waits for all of them, in each of its stages: many small ones take
far longer than one of all their bytes. What is merged needs its memory at the same time.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram
from ipu_keras.cost.flat.control_flow import is_in_loop
from ipu_keras.ir import Op


def merge_collectives(program: FlatProgram, buffer_bytes: Mapping[str, int]) -> FlatProgram:
    """Lets collectives wait for others of their kind, so that one does what all of them would.

    One waits, with all that needs its result, until another one that could join it would need
    its result too, or would have more bytes wait than `buffer_bytes` says for its kind, or until
    its part of the program ends. Those that join have the same kind, replicas and dtype, are on
    one IPU and in no loop or branch. Source:
    `optimizations.maximum_cross_replica_sum_buffer_size` in the API of TensorFlow for IPUs, "the
    maximum number of bytes that can be waiting before a cross replica sum op is scheduled".
    """
    if not any(buffer_bytes.values()):
        return program
    return replace(program, compute_sets=tuple(_Merging(buffer_bytes).run(program.compute_sets)))


class _Merging:
    """What waits while one goes through the compute sets of a program."""

    def __init__(self, buffer_bytes: Mapping[str, int]):
        self._buffer_bytes = buffer_bytes
        self._groups: dict[tuple, list[ComputeSet]] = {}
        # Compute sets that need the results of groups, in order, and the names of all values
        # that are not made yet.
        self._held: list[ComputeSet] = []
        self._late: set[str] = set()

    def run(self, compute_sets: Iterable[ComputeSet]) -> Iterator[ComputeSet]:
        """Yields the compute sets, merged, in an order in which each follows what it reads."""
        part = None
        for one in compute_sets:
            if one.part != part:
                part = one.part
                yield from self._finish_all()
            if self._may_wait(one):
                yield from self._join(one)
            elif self._late.isdisjoint(one.reads):
                yield one
            elif is_in_loop(one) or one.branches:  # which stay together
                yield from self._finish_all()
                yield one
            else:
                self._hold(one)
        yield from self._finish_all()

    def _may_wait(self, one: ComputeSet) -> bool:
        limit = self._buffer_bytes.get(one.ops[-1].kind, 0)
        return 0 < _size([one]) <= limit and not is_in_loop(one) and not one.branches

    def _join(self, one: ComputeSet) -> Iterator[ComputeSet]:
        key = _key(one)
        if not self._late.isdisjoint(one.reads):
            yield from self._finish_all()
        if _size([*self._groups.get(key, ()), one]) > self._buffer_bytes[one.ops[-1].kind]:
            yield from self._finish(key)
        self._groups.setdefault(key, []).append(one)
        self._late.update(value.name for value in one.writes)

    def _hold(self, one: ComputeSet) -> None:
        self._held.append(one)
        self._late.update(value.name for value in one.writes)

    def _finish_all(self) -> Iterator[ComputeSet]:
        for key in list(self._groups):
            yield from self._finish(key)

    def _finish(self, key: tuple) -> Iterator[ComputeSet]:
        """Yields a group as one, and what waited for no other one."""
        yield _merged(self._groups.pop(key))
        groups = self._groups.values()
        self._late = {value.name for group in groups for one in group for value in one.writes}
        held, self._held = self._held, []
        for one in held:
            if self._late.isdisjoint(one.reads):
                yield one
            else:
                self._hold(one)


def _key(one: ComputeSet) -> tuple:
    op = one.ops[-1]
    dtypes = {spec.dtype for spec in one.operands}
    return op.kind, repr(op.attributes), tuple(sorted(dtypes)), one.ipu, one.recomputed


def _size(members: Iterable[ComputeSet]) -> int:
    return sum(spec.nbytes for one in members for spec in one.operands)


def _merged(members: list[ComputeSet]) -> ComputeSet:
    first = members[0]
    if len(members) == 1:
        return first
    ops = [one.ops[-1] for one in members]
    outputs = tuple(spec for op in ops for spec in op.outputs)
    inputs = tuple(name for op in ops for name in op.inputs)
    name = f"{first.name}/and {len(members) - 1} more"
    layers = {one.layer for one in members}
    return replace(
        first,
        name=name,
        ops=(Op(name, ops[0].kind, outputs, inputs=inputs, attributes=ops[0].attributes),),
        operands=tuple(spec for one in members for spec in one.operands),
        reads=tuple(dict.fromkeys(name for one in members for name in one.reads)),
        writes=tuple(value for one in members for value in one.writes),
        layer=first.layer if len(layers) == 1 else "",
        backward=all(one.backward for one in members),
        flops=sum(one.flops for one in members),
        bytes_read=sum(one.bytes_read for one in members),
        bytes_written=sum(one.bytes_written for one in members),
    )
