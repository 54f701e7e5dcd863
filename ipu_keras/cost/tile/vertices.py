"""Costs the vertices of one tile, for all but matrix products and convolutions.

Every function takes the target and what lies on that tile, and returns the tile's cycles. No
elements cost nothing; a negative number of them, or an unknown dtype or operation, is a
ValueError. The start of the compute set (`target.launch_cycles`) is the caller's to add.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ipu_keras.cost.tile.vertex_rates import (
    Element,
    Rate,
    access_cycles,
    element_named,
    extra_operands,
    rate_of,
)
from ipu_keras.machine.target import Confidence, Target

# The elements are split evenly over the workers, each worker gets one cycle in
# `target.num_workers`, and the slowest counts. The formulas are those of poplibs' cycle
# estimators, where it has some; they do not depend on the data, and stand for an average where
# the hardware does.


@dataclass(frozen=True, slots=True)
class VertexCycles:
    """Cycles of one tile until the last of its vertices ends, and how sure they are."""

    cycles: int
    confidence: Confidence = Confidence.DERIVED


# Operations whose vertices keep constants in registers, which they load before their loop.
_WITH_PROLOGUE = frozenset(
    ("exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "tanh")
)
# The reducer of an argmax or argmin, which XLA writes as a computation of its own.
_CUSTOM_REDUCER = ("compare", "select")
_LARGEST = frozenset({"maximum", "minimum"})
# An instruction for the load, one to compute and one for the store of each vector: what
# poplibs' own addition takes over what the data path could do. Other code does no better.
_UNSCHEDULED = 3

# What the first value that goes with a sort's keys adds to a pair of integers.
_FURTHER_VALUE = 17 - 12

# Release whose estimators of lookups ask which rows a tile has.
_FIRST_WITH_RANGES = 3.0

_NOTHING = VertexCycles(0)
_CERTAINTY = {Confidence.GUESSED: 0, Confidence.DERIVED: 1, Confidence.CALIBRATED: 2}


def elementwise(
    target: Target, *, operation: str, dtype: str, num_elements: int, num_operands: int
) -> VertexCycles:
    """Cycles of one operation on each element.

    Source: poplibs, popopsCycleEstimators and PerformanceEstimation: the one-dimensional unary
    and binary vertices, not in place. The dtype is that of operands: a comparison of floats is
    `"float32"`.

    Example:

    1024 additions are 171 for a worker, 86 vectors at 3 cycles, and
    11 + 6 * (29 + 86 * 3) = 1733:

    >>> from ipu_keras.machine.target import target_named
    >>> elementwise(
    ...     target_named("bow"),
    ...     operation="add",
    ...     dtype="float32",
    ...     num_elements=1024,
    ...     num_operands=2,
    ... ).cycles
    1733
    """
    element, rate = rate_of(operation, dtype)
    if num_operands < 1:
        raise ValueError(
            "`num_operands` of an elementwise operation must be positive. "
            f"Received: num_operands={num_operands} for {operation!r}"
        )
    if num_elements < 1:
        return _nothing(num_elements=num_elements)
    per_vector = rate.cycles + access_cycles(target, operation, dtype, num_operands)
    loop = per_vector * _split(num_elements, target.num_workers * rate.vector) * element.num_words
    if num_operands == 1:
        supervisor, base = 20, 33 if operation in _WITH_PROLOGUE else 17
    else:
        supervisor, base = 11, 29 if element.kind == "float32" else 26
    # Operands beyond those of the rate cost a further load for each vector, which is a guess.
    guessed = extra_operands(operation, num_operands) > 0
    confidence = Confidence.GUESSED if guessed else rate.confidence
    return _cycles(supervisor + target.num_workers * (base + loop), confidence, element)


def fused(
    target: Target,
    *,
    operations: Sequence[tuple[str, int]],
    dtype: str,
    num_elements: int,
    num_inputs: int,
) -> VertexCycles:
    """Cycles of a chain of elementwise operations in one vertex.

    Results in between stay in registers: each vector of an input is loaded once, two inputs with
    one instruction, and the result is stored once. Source: the expressions of popops::map in
    poplibs; it generates and compiles them, so that no number of them is published, and all of
    this is a guess. Operations are opcodes with their numbers of operands.

    Example:

    A chain of one addition is the addition:

    >>> from ipu_keras.machine.target import target_named
    >>> fused(
    ...     target_named("bow"),
    ...     operations=[("add", 2)],
    ...     dtype="float32",
    ...     num_elements=1024,
    ...     num_inputs=2,
    ... ).cycles
    1733
    """
    if not operations:
        raise ValueError(f"`operations` must name at least one. Received: {operations!r}")
    element = element_named(dtype)
    if num_elements < 1 or num_inputs < 0:
        return _nothing(num_elements=num_elements, num_inputs=num_inputs)
    workers, natural = target.num_workers, element.natural_vector(target)
    rates = [(rate_of(name, dtype)[1], extra_operands(name, n)) for name, n in operations]
    loop = sum(
        (rate.cycles + extra) * _split(num_elements, workers * rate.vector) for rate, extra in rates
    )
    # The rates of other vectors have loads and stores in them.
    if all(rate.vector == natural for rate, _ in rates):
        loop += (_split(num_inputs, 2) + 1) * _split(num_elements, workers * natural)
    base = 29 if element.kind == "float32" else 26
    return _cycles(11 + workers * (base + loop * element.num_words), Confidence.GUESSED, element)


def cast(target: Target, *, from_dtype: str, to_dtype: str, num_elements: int) -> VertexCycles:
    """Cycles of a conversion of each element.

    Source: poplibs, popopsCycleEstimators, Cast1D: 12 + 6 * (37 + loop). The loop is published
    between bytes and halves; between others it is guessed as the loads and stores of four
    elements, and a conversion of each if an integer takes part.
    """
    source, result = element_named(from_dtype), element_named(to_dtype)
    if num_elements < 1:
        return _nothing(num_elements=num_elements)
    confidence = Confidence.DERIVED
    if (source.kind, source.num_bytes, result.kind) == ("int", 1, "float16"):
        per_four = 9
    elif (source.kind, result.kind, result.num_bytes) == ("float16", "int", 1):
        per_four = 16
    else:
        confidence = Confidence.GUESSED
        per_four = sum(_split(4 * side.num_bytes, target.vector_bytes) for side in (source, result))
        per_four += 4 if "int" in (source.kind, result.kind) else 0
    loop = per_four * _split(num_elements, 4 * target.num_workers)
    return _cycles(12 + target.num_workers * (37 + loop), confidence, source, result)


def fill(target: Target, *, dtype: str, num_elements: int) -> VertexCycles:
    """Cycles of writing one value to each element.

    Source: poplibs, popopsCycleEstimators, Fill: a worker takes 23 cycles and one for each
    vector, 26 if the elements are halves; bytes are guessed to be like halves.
    """
    element = element_named(dtype)
    if num_elements < 1:
        return _nothing(num_elements=num_elements)
    per_worker = _split(num_elements, target.num_workers)
    loop = _split(per_worker * element.num_bytes, target.vector_bytes)
    base = 23 if element.num_bytes >= 4 else 26
    confidence = Confidence.GUESSED if element.num_bytes == 1 else Confidence.DERIVED
    return _cycles(target.num_workers * (base + loop), confidence, element)


def copy(target: Target, *, num_bytes: int, atom_bytes: int) -> VertexCycles:
    """Cycles of a copy on the tile that keeps the order, where one instruction moves an atom.

    Source: the call of six workers as measured by ipu-stack, the rate of the target.
    """
    _check_atom(atom_bytes)
    if num_bytes < 1:
        return _nothing(num_bytes=num_bytes)
    return VertexCycles(288 + _split(num_bytes, min(atom_bytes, target.memcpy_bytes)))


def rearrange(target: Target, *, num_bytes: int, atom_bytes: int) -> VertexCycles:
    """Cycles of a copy on the tile that changes the order, where atoms stay together.

    Source: poplibs, ConvModel: 587 + k * bytes, which it fitted to ten thousand random tests
    with atoms of two, four and eight bytes. Single bytes are guessed to take twice as long as
    pairs.

    Example:

    >>> from ipu_keras.machine.target import target_named
    >>> rearrange(target_named("gc200"), num_bytes=1000, atom_bytes=4).cycles
    3712
    """
    _check_atom(atom_bytes)
    if num_bytes < 1:
        return _nothing(num_bytes=num_bytes)
    per_byte = {1: 10.296, 2: 5.148, 4: 3.125}.get(1 << min(3, atom_bytes.bit_length() - 1), 0.44)
    confidence = Confidence.GUESSED if atom_bytes == 1 else Confidence.DERIVED
    return VertexCycles(587 + _split(round(per_byte * num_bytes * 1000), 1000), confidence)


def reduce(
    target: Target,
    *,
    operation: str,
    dtype: str,
    num_outputs: int,
    num_partials: int,
    strided: bool = False,
) -> VertexCycles:
    """Cycles of combining several values to one, many times.

    Source: poplibs, popopsCycleEstimators: a worker's 33 cycles and 24 for each reduction. Each
    vector takes a load and the operation: with that, the published bandwidths of reductions
    (microbenchmarks) on 1 and 16 IPUs are met within 5 %. A `"custom"` operation is a
    computation of its own, counted as a comparison and a selection.

    `strided` says that neighbours belong to different outputs, so that a vector has partials of
    several (popops' strided reduction); without, partials of one output are neighbours.

    Example:

    Four values for each of 12 results: 33 + 24 + 4 vectors of 2 results at 2 cycles. One behind
    the other, they are two vectors for each of a worker's two results, 33 + 2 * (24 + 2 * 2).

    >>> from functools import partial
    >>> from ipu_keras.machine.target import target_named
    >>> four_of_12 = partial(
    ...     reduce, target_named("gc200"), operation="add", dtype="float32", num_partials=4
    ... )
    >>> four_of_12(num_outputs=12, strided=True).cycles, four_of_12(num_outputs=12).cycles
    (401, 545)
    """
    element, rates = element_named(dtype), _reducer(operation, dtype)
    if min(num_outputs, num_partials) < 1:
        return _nothing(num_outputs=num_outputs, num_partials=num_partials)
    work = _ReducingWork(target, element, rates, strided)
    workers = target.num_workers
    cycles = work.cycles(_split(num_outputs, workers), num_partials)
    # popops splits few reductions over the workers in two passes: the cheapest counts. Workers
    # share the vectors of strided ones.
    units = _split(num_outputs, element.natural_vector(target)) if strided else num_outputs
    workers_each = min(num_partials, workers // units)
    if workers_each > 1:
        each = _split(num_outputs, units)
        first = work.cycles(each, _split(num_partials, workers_each))
        cycles = min(cycles, first + target.launch_cycles + work.cycles(each, workers_each))
    return _cycles(cycles, least(rate.confidence for rate in rates), element)


def dynamic_slice(
    target: Target, *, dtype: str, num_slices: int, slice_elements: int
) -> VertexCycles:
    """Cycles of reading, or overwriting, regions whose place the program computes.

    Source: poplibs, popopsCycleEstimators, DynamicSlice1D: the workers share each region.
    """
    element = element_named(dtype)
    if min(num_slices, slice_elements) < 1:
        return _nothing(num_slices=num_slices, slice_elements=slice_elements)
    row_bytes = slice_elements * element.num_bytes
    vectors = _split(row_bytes, target.num_workers * target.vector_bytes)
    worker = 27 + num_slices * (29 + vectors) + 13
    return _cycles(target.num_workers * worker, Confidence.DERIVED, element)


def multi_slice(
    target: Target, *, dtype: str, num_indices: int, row_elements: int, share: float = 1
) -> VertexCycles:
    """Cycles of gathering rows of a table, of which the tile has a share: an embedding lookup.

    Source: poplibs, popopsCycleEstimators, MultiSlice. The workers share the indices: 19 cycles
    for one whose row is here and 2 for each pair of elements, 8 for one whose row is not.

    Example:

    Two indices for a worker, rows of eight numbers: 6 * (30 + 2 * (19 + 4 * 2)).

    >>> from ipu_keras.machine.target import target_named
    >>> gc200 = target_named("gc200")
    >>> multi_slice(gc200, dtype="float32", num_indices=12, row_elements=8).cycles
    504
    """
    element = element_named(dtype)
    if min(num_indices, row_elements) < 1:
        return _nothing(num_indices=num_indices, row_elements=row_elements)
    # Of bytes, four take three cycles.
    pairs = 2 * _split(row_elements * element.num_words, 2)
    moved = pairs if element.num_bytes > 1 else 3 * _split(row_elements, 4)
    each = _split(num_indices, target.num_workers)
    found = _found(target, each, share)
    worker = 30 + found * (19 + moved) + (each - found) * 8
    return _cycles(target.num_workers * worker, Confidence.DERIVED, element)


def multi_update_add(
    target: Target, *, dtype: str, num_indices: int, row_elements: int, share: float = 1
) -> VertexCycles:
    """Cycles of adding to rows of a table, of which the tile has a share: an embedding's gradient.

    Source: poplibs, popopsCycleEstimators, MultiUpdateAdd. The workers share the rows, and each
    sees all indices: 5 cycles for one whose row is another's. It stores words of 32 bits, the
    smallest that no other worker's store can tear.

    Example:

    Two of 12 rows are a worker's, with eight words each: 6 * (38 + 2 * (11 + 7 * 3) + 10 * 5).

    >>> from ipu_keras.machine.target import target_named
    >>> gc200 = target_named("gc200")
    >>> multi_update_add(gc200, dtype="float32", num_indices=12, row_elements=8).cycles
    912
    """
    element = element_named(dtype)
    if min(num_indices, row_elements) < 1:
        return _nothing(num_indices=num_indices, row_elements=row_elements)
    atoms = _split(row_elements * element.num_bytes, 4)
    start, first = (38, 11) if element.num_bytes >= 4 else (37, 13)
    found = _found(target, num_indices, share / target.num_workers)
    worker = start + found * (first + 3 * (atoms - 1)) + (num_indices - found) * 5
    return _cycles(target.num_workers * worker, Confidence.DERIVED, element)


def _found(target: Target, num_indices: int, share: float) -> int:
    """Returns how many indices count as those of rows in so large a share of a table."""
    # Estimators of release 2.0 take all for such: what its tests expect of lookups grows by 99
    # cycles an index in large tables, of which 2 + 13 workers' cycles times 6 are 99.
    if target.sdk < _FIRST_WITH_RANGES:
        return num_indices
    return min(math.ceil(num_indices * share), num_indices)


@dataclass(frozen=True, slots=True)
class PooledRun:
    """Results next to each other that one worker pools.

    Args:
        num_outputs: How many they are.
        window_elements: Elements of each one's window.
    """

    num_outputs: int
    window_elements: int


def pooling(
    target: Target,
    *,
    dtype: str,
    vectors: int,
    runs: Sequence[Sequence[PooledRun]],
    backward: bool = False,
) -> VertexCycles:
    """Cycles of pooling over windows, of which each worker has some runs.

    Source: poplibs, popnnCycleEstimators, MaxPooling: 13 + 6 * slowest worker. Its work list has
    runs, 13 cycles each (30 backward), and in each the elements of the window, which are taken
    one after the other for all of the run: 20 cycles, and for each vector of channels 8 and 3 (5
    backward) a result.

    Example:

    A worker with a run of 4 windows of 9 elements, of one vector: 13 + 9 * (20 + 8 + 4 * 3).

    >>> from ipu_keras.machine.target import target_named
    >>> run = PooledRun(num_outputs=4, window_elements=9)
    >>> pooling(target_named("gc200"), dtype="float16", vectors=1, runs=[[run]]).cycles
    2251
    """
    if vectors < 1 or not any(run.num_outputs for worker in runs for run in worker):
        return _nothing(vectors=vectors)
    row, per_result = (30, 5) if backward else (13, 3)
    slowest = max(
        sum(
            row + run.window_elements * (20 + vectors * (8 + per_result * run.num_outputs))
            for run in worker
        )
        for worker in runs
    )
    return _cycles(13 + target.num_workers * slowest, Confidence.DERIVED, element_named(dtype))


def random_uniform(target: Target, *, dtype: str, num_elements: int) -> VertexCycles:
    """Cycles of drawing from the tile's random number generator.

    Source: poplibs, poprandCycleEstimators: 4 cycles for a vector of uniform or normal samples.
    The published 944 thousand million samples a second (microbenchmarks) are 3 % slower.
    """
    element = element_named(dtype)
    if num_elements < 1:
        return _nothing(num_elements=num_elements)
    vectors = _vectors_each(target, element, num_elements)
    return _cycles(4 + target.num_workers * (22 + 4 * vectors), Confidence.DERIVED, element)


def scan(
    target: Target, *, operations: Sequence[str], dtype: str, num_scans: int, num_elements: int
) -> VertexCycles:
    """Cycles of combining each element with all before it, several times: a guess.

    No estimator of a scan is published. Counted is that a worker takes one element after the
    other, as each needs the result before: a load, the operation and a store.

    Example:

    100 additions for each of 12 workers' scans, two for a worker: 33 + 2 * 100 * (1 + 2).

    >>> from ipu_keras.machine.target import target_named
    >>> scan(
    ...     target_named("gc200"),
    ...     operations=["add"],
    ...     dtype="float32",
    ...     num_scans=12,
    ...     num_elements=100,
    ... ).cycles
    3809
    """
    element = element_named(dtype)
    rates = [rate_of(name, dtype)[1] for name in operations]
    if min(num_scans, num_elements) < 1:
        return _nothing(num_scans=num_scans, num_elements=num_elements)
    workers = target.num_workers
    each = (2 + sum(rate.cycles for rate in rates)) * element.num_words
    cycles = 11 + workers * (33 + each * _split(num_scans, workers) * num_elements)
    # Of few scans, each worker has a part, and all elements are combined with what came before
    # their part: the cheapest counts.
    workers_each = min(num_elements, workers // num_scans)
    if workers_each > 1:
        parts = 11 + workers * (33 + each * _split(num_elements, workers_each))
        rest = fused(
            target,
            operations=[(name, 2) for name in operations],
            dtype=dtype,
            num_elements=num_scans * num_elements,
            num_inputs=2,
        )
        cycles = min(cycles, parts + target.launch_cycles + rest.cycles)
    return VertexCycles(cycles, Confidence.GUESSED)


def compare_and_swap(
    target: Target, *, dtype: str, num_pairs: int, num_runs: int, num_values: int
) -> VertexCycles:
    """Cycles of one step of a sort: pairs of keys, and of what goes with them, change places.

    Source: poplibs, popopsCycleEstimators, CompareAndSwapAtDistance. Floats with a value are
    written by hand, the rest is compiled; that a further value takes as long as the first is
    guessed. A worker has so many runs of pairs that lie next to each other, and its work list one
    entry.

    Example:

    Of 12 pairs, a worker has 2: 19 + 6 * (23 + 4 + 8 + 11 * (2 - 1) + 11).

    >>> from ipu_keras.machine.target import target_named
    >>> compare_and_swap(
    ...     target_named("gc200"), dtype="float32", num_pairs=12, num_runs=1, num_values=1
    ... ).cycles
    361
    """
    element = element_named(dtype)
    if min(num_pairs, num_runs) < 1:
        return _nothing(num_pairs=num_pairs, num_runs=num_runs)
    pairs = _split(num_pairs, target.num_workers)
    is_float = element.kind != "int"
    if is_float and num_values:
        worker = 23 + 4 + 8 + 11 * (pairs - 1) + 11 * min(num_runs, pairs)
    else:
        alone = 13 if is_float else 12
        worker = 40 + 17 + (17 if num_values else alone) * pairs
    worker += _FURTHER_VALUE * max(num_values - 1, 0) * pairs
    confidence = Confidence.DERIVED if num_values < 2 else Confidence.GUESSED
    return _cycles(19 + target.num_workers * worker * element.num_words, confidence, element)


def unknown(
    target: Target, *, bytes_read: int, bytes_written: int, flops: int, dtype: str
) -> VertexCycles:
    """Cycles of a vertex of which only the work is known: a guess.

    The widest loads, the stores or the arithmetic, whichever takes longest, and three times
    that: poplibs' hand-written addition takes three times what the data path could do, since
    load, addition and store of a vector take an instruction each.

    Example:

    1024 additions as if nothing was known of them:

    >>> from ipu_keras.machine.target import target_named
    >>> unknown(
    ...     target_named("bow"), bytes_read=8192, bytes_written=4096, flops=1024, dtype="float32"
    ... ).cycles
    1536
    """
    element = element_named(dtype)
    if min(bytes_read, bytes_written, flops) < 0:
        return _nothing(bytes_read=bytes_read, bytes_written=bytes_written, flops=flops)
    busiest = max(
        _split(bytes_read, 2 * target.vector_bytes),
        _split(bytes_written, target.vector_bytes),
        _split(flops * element.num_words, element.natural_vector(target)),
    )
    return VertexCycles(_UNSCHEDULED * busiest, Confidence.GUESSED)


def _split(amount: int, parts: int) -> int:
    return -(-amount // parts)


def _vectors_each(target: Target, element: Element, num_elements: int) -> int:
    words = num_elements * element.num_words
    return _split(words, target.num_workers * element.natural_vector(target))


def _reducer(operation: str, dtype: str) -> tuple[Rate, ...]:
    if operation == "custom":
        return tuple(rate_of(name, dtype)[1] for name in _CUSTOM_REDUCER)
    element, rate = rate_of(operation, dtype)
    # Elementwise, these have the rate of compiled code; as reducers of floats, popops has them as
    # one instruction of a vector.
    if operation in _LARGEST and element.kind != "int":
        return (replace(rate, cycles=1, confidence=Confidence.DERIVED),)
    return (rate,)


@dataclass(frozen=True, slots=True)
class _ReducingWork:
    """What each worker does in a compute set of reductions."""

    target: Target
    element: Element
    rates: tuple[Rate, ...]
    strided: bool

    def cycles(self, num_outputs: int, num_partials: int) -> int:
        """Returns the cycles of the compute set if each worker makes that many outputs."""
        if self.strided:
            worker = 24 + num_partials * self._loop(num_outputs)
        else:
            worker = num_outputs * (24 + self._loop(num_partials))
        return 11 + self.target.num_workers * (33 + worker)

    def _loop(self, num_elements: int) -> int:
        loads = _split(num_elements, self.element.natural_vector(self.target))
        computed = sum(rate.cycles * _split(num_elements, rate.vector) for rate in self.rates)
        return (loads + computed) * self.element.num_words


def least(confidences: Iterable[Confidence]) -> Confidence:
    return min(confidences, key=_CERTAINTY.__getitem__)


def _cycles(cycles: int, confidence: Confidence, *elements: Element) -> VertexCycles:
    """Returns the cycles, as a guess if an element is none that the hardware has."""
    for element in elements:
        if not element.is_native:
            return VertexCycles(cycles, Confidence.GUESSED)
    return VertexCycles(cycles, confidence)


def _nothing(**counts: int) -> VertexCycles:
    """Returns the cost of no elements, unless a count is negative."""
    for name, count in counts.items():
        if count < 0:
            raise ValueError(f"`{name}` must not be negative. Received: {name}={count}")
    return _NOTHING


def _check_atom(atom_bytes: int) -> None:
    if atom_bytes < 1:
        raise ValueError(f"`atom_bytes` must be positive. Received: atom_bytes={atom_bytes}")
