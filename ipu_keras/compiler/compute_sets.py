"""From an HLO graph to the list of what an IPU executes one after the other.

Calls and loops are written out, operations that only rename a value disappear,
and chains of elementwise operations become one vertex, as poplibs' map
expressions do.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ipu_keras.ir import (
    CHECKPOINT,
    POPLAR_CALL,
    Graph,
    Op,
    family_of,
    family_of_op,
    num_elements,
    work_of,
)
from ipu_keras.program import TensorSpec

# A loop whose trip count tracing could not find, nor a bound of it, counts as one
# trip. Reports say how many loops are not counted exactly.
UNKNOWN_TRIPS = 1

# They join a chain of elementwise operations without a vertex of their own.
_FUSES = frozenset({"elementwise", "cast", "broadcast"})

# Families whose results depend on nothing but what they read.
DETERMINISTIC = frozenset({*_FUSES, "copy", "dot", "convolution", "reduce", "transpose"})


@dataclass(frozen=True)
class Value:
    """A tensor in the memory of the IPU.

    Args:
        name: Unique in the program.
        spec: Shape and dtype.
        role: `"variable"`, `"argument"` (of the infeed), `"constant"`,
            `"activation"`, or `"remote"`: a variable that is not on tiles.
        ipu: Where it lies.
    """

    name: str
    spec: TensorSpec
    role: str = "activation"
    ipu: int = 0


@dataclass(frozen=True, kw_only=True)
class ComputeSet:
    """Vertices that run at the same time, and the exchange before them.

    Args:
        name: Of its last operation.
        family: As `ir.family_of_op` has it; an operation of Poplar's libraries is one of its own,
            called as the operation.
        ops: Its operations; several if they were fused.
        operands: The tensors that its last operation takes, in its own shapes.
        reads: Names of the values that it reads.
        writes: The values that it makes.
        repeat: How often it runs in one run of the graph; 0 in a branch that another one takes
            longer than, of which only the memory counts.
        layer: Path of the layer that it belongs to.
        backward: Whether it is part of the gradient.
        stage: The stage of a pipeline that it is in, if there is one.
        weight_update: Whether it runs once for each weight update, not for each batch.
        recomputed: Whether a backward part of a stage repeats it from the forward one.
        body: Of an operation of Poplar's libraries, what it does: a program that takes what
            it reads as variables, and results in what it writes.
        flops: Floating point operations of one run.
        bytes_read: Bytes that one run reads.
        bytes_written: Bytes that one run writes.
        ipu: Where it runs.
    """

    name: str
    family: str
    ops: tuple[Op, ...]
    operands: tuple[TensorSpec, ...]
    reads: tuple[str, ...]
    writes: tuple[Value, ...]
    repeat: int = 1
    layer: str = ""
    backward: bool = False
    flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    ipu: int = 0
    stage: int | None = None
    weight_update: bool = False
    recomputed: bool = False
    body: "FlatProgram | None" = None

    @property
    def part(self) -> tuple[int | None, bool, bool]:
        """What all have in common that run at the same time in a pipeline, or as often.

        Without a stage, forward and backward are one.
        """
        return self.stage, self.backward and self.stage is not None, self.weight_update


@dataclass(frozen=True, kw_only=True)
class FlatProgram:
    """One step of a program, written out.

    Args:
        compute_sets: In the order of tracing.
        values: Every value by name.
        results: Names of the values that the step returns.
        updates: Names of variables by names of the results that are their new
            values, which are written in place.
        in_place: Names of values by names of those that take over their memory.
        stashes: Of a pipeline, how many more batches a value is kept of, by its name.
        checkpoints: Names of values that recomputation keeps.
        remote_bytes: What lies in the memory of the machine, not on tiles, in bytes.
        num_unknown_loops: Loops whose trips depend on data: they were counted with
            their bound, or as one trip.
    """

    compute_sets: tuple[ComputeSet, ...] = ()
    values: Mapping[str, Value] = field(default_factory=dict)
    results: tuple[str, ...] = ()
    updates: Mapping[str, str] = field(default_factory=dict)
    in_place: Mapping[str, str] = field(default_factory=dict)
    stashes: Mapping[str, int] = field(default_factory=dict)
    checkpoints: tuple[str, ...] = ()
    remote_bytes: int = 0
    num_unknown_loops: int = 0


class _Flattener:
    """Writes out one graph; `values` and `compute_sets` grow as it goes.

    Args:
        work_of_branch: As `flatten` takes it.
    """

    def __init__(self, work_of_branch: Callable[[FlatProgram], int]) -> None:
        self._work_of_branch = work_of_branch
        self.values: dict[str, Value] = {}
        self.compute_sets: list[ComputeSet] = []
        self.in_place: dict[str, str] = {}
        self.checkpoints: list[str] = []
        # By results of branches that others take longer than, what that branch has instead.
        self.alternatives: dict[str, str] = {}
        self.num_unknown_loops = 0

    def run(
        self,
        graph: Graph,
        functions: Mapping[str, Graph],
        arguments: Sequence[str],
        prefix: str,
        repeat: int,
    ) -> tuple[str, ...]:
        """Writes out a graph whose parameters are given values; returns those it results in."""
        names: dict[str, str] = {}
        specs: dict[str, TensorSpec] = {}
        for op in graph.ops:
            reads = tuple(names[reference] for reference in op.inputs)
            operands = tuple(specs[reference] for reference in op.inputs)
            results = self._op(op, reads, operands, functions, arguments, prefix, repeat)
            for position, (name, spec) in enumerate(zip(results, op.outputs, strict=True)):
                names[f"{op.name}:{position}"] = name
                specs[f"{op.name}:{position}"] = spec
            if results:
                names[op.name], specs[op.name] = results[0], op.outputs[0]
        return tuple(names[reference] for reference in graph.results)

    def _op(self, op, reads, operands, functions, arguments, prefix, repeat) -> Sequence[str]:
        if op.kind == "parameter" and "role" not in op.attributes:
            first = op.attributes["first_leaf"]
            return arguments[first : first + len(op.outputs)]
        if op.kind in ("parameter", "constant", "iota"):
            # What a function captured besides variables does not change either.
            role = op.attributes.get("role", "constant")
            return self._add(op, prefix, "constant" if role == "capture" else role)
        if op.kind == "while":
            return self._loop(op, reads, functions, prefix, repeat)
        if op.kind == "conditional":
            return self._conditional(op, reads, functions, prefix, repeat)
        if op.body and op.kind == "call":
            body = functions[op.body[0]]
            return self.run(body, functions, reads, f"{prefix}{op.name}/", repeat)
        if op.kind == POPLAR_CALL:
            return self._poplar_call(op, reads, operands, functions, prefix, repeat)
        if op.kind == CHECKPOINT:
            self.checkpoints += reads
        if family_of(op.kind) == "free" or _moves_nothing(op, operands):
            return self._renamed(op, reads, prefix)
        if op.outputs and not any(map(num_elements, op.outputs)):
            return self._add(op, prefix, "constant")  # of no bytes: no vertex computes it
        results = self._add(op, prefix, "activation")
        work = work_of(op, operands)
        self.compute_sets.append(
            ComputeSet(
                name=f"{prefix}{op.name}",
                family=family_of_op(op),
                ops=(op,),
                operands=operands,
                reads=reads,
                writes=tuple(self.values[name] for name in results),
                repeat=repeat,
                **_place_of(op),
                flops=work.flops,
                bytes_read=work.bytes_read,
                bytes_written=work.bytes_written,
            )
        )
        return results

    def _add(self, op: Op, prefix: str, role: str) -> list[str]:
        if "value" in op.attributes:  # of a scalar constant: equal ones are one
            (spec,) = op.outputs
            name = f"{spec.dtype}({op.attributes['value']})"
            self.values[name] = Value(name, spec, role)
            return [name]
        names = _names_of(op, prefix)
        for name, spec in zip(names, op.outputs, strict=True):
            self.values[name] = Value(name, spec, role)
        return names

    def _renamed(self, op: Op, reads: Sequence[str], prefix: str) -> Sequence[str]:
        """A view of its operand; of the same memory, so of the same name."""
        if not reads:
            return self._add(op, prefix, "constant")
        return reads

    def _poplar_call(self, op, reads, operands, functions, prefix, repeat) -> Sequence[str]:
        """One compute set; what it passes on, or has as a constant, keeps its name."""
        inner = _Flattener(self._work_of_branch)
        for name in reads:
            role = "constant" if self.values[name].role == "constant" else "variable"
            inner.values[name] = replace(self.values[name], role=role)
        results = inner.run(functions[op.body[0]], functions, reads, f"{prefix}{op.name}/", 1)
        self.num_unknown_loops += inner.num_unknown_loops
        sets = tuple(replace(one, **_place_of(op)) for one in inner.compute_sets)
        used = dict.fromkeys([*(name for one in sets for name in one.reads), *results])
        constants = [name for name in used if inner.values[name].role == "constant"]
        self.values.update((name, inner.values[name]) for name in constants)
        made = {value.name for one in sets for value in one.writes}
        written: dict[str, str] = {}
        for name, result in zip(_names_of(op, prefix), results, strict=True):
            if result in made:
                written.setdefault(result, name)
        writes = tuple(Value(name, inner.values[result].spec) for result, name in written.items())
        self.values.update((value.name, value) for value in writes)
        if writes:
            self.compute_sets.append(
                ComputeSet(
                    name=f"{prefix}{op.name}",
                    family=op.attributes["operation"],
                    ops=(op,),
                    operands=operands,
                    reads=tuple(dict.fromkeys((*reads, *constants))),
                    writes=writes,
                    repeat=repeat,
                    **_place_of(op),
                    bytes_read=sum(spec.nbytes for spec in operands),
                    bytes_written=sum(value.spec.nbytes for value in writes),
                    body=FlatProgram(
                        compute_sets=sets,
                        values=inner.values,
                        results=tuple(written),
                        in_place=inner.in_place,
                    ),
                )
            )
        return [written.get(result, result) for result in results]

    def _loop(self, op, reads, functions, prefix, repeat) -> Sequence[str]:
        trips = op.attributes.get("trip_count")
        if trips is None:
            self.num_unknown_loops += 1
            trips = op.attributes.get("max_trip_count") or UNKNOWN_TRIPS
        condition, body = (functions[name] for name in op.body)
        start, scope = len(self.compute_sets), f"{prefix}{op.name}/"
        carried = [
            self._carry(f"{prefix}{op.name}:{k}", name, repeat, op) for k, name in enumerate(reads)
        ]
        self.run(condition, functions, carried, f"{scope}condition/", repeat * trips)
        results = self.run(body, functions, carried, f"{scope}body/", repeat * trips)
        kept = {
            mine: name
            for mine, name, result in zip(carried, reads, results, strict=True)
            if mine == result
        }
        self._forget(kept, start)
        after = list(reads)
        for k, (mine, result) in enumerate(zip(carried, results, strict=True)):
            if mine not in kept:
                result = kept.get(result, result)
                after[k] = self._carry(f"{scope}body/carried:{k}", result, repeat * trips, op)
                self.in_place[after[k]] = mine
        return after

    def _carry(self, name: str, source: str, repeat: int, op: Op) -> str:
        """Copies a value to where a loop keeps it from one trip to the next."""
        value = Value(name, self.values[source].spec)
        self.values[name] = value
        # The name as an attribute keeps copies of the same value apart.
        copy = Op(name, "copy", (value.spec,), attributes={"carried": name})
        self.compute_sets.append(
            ComputeSet(
                name=name,
                family="copy",
                ops=(copy,),
                operands=(value.spec,),
                reads=(source,),
                writes=(value,),
                repeat=repeat,
                **_place_of(op),
                bytes_read=value.spec.nbytes,
                bytes_written=value.spec.nbytes,
            )
        )
        return name

    def _forget(self, kept: Mapping[str, str], start: int) -> None:
        """What a loop carries and never changes is read where it was."""
        self.compute_sets[start:] = [
            replace(one, reads=tuple(kept.get(name, name) for name in one.reads))
            for one in self.compute_sets[start:]
            if one.name not in kept
        ]
        for name in kept:
            del self.values[name]

    def _conditional(self, op, reads, functions, prefix, repeat) -> Sequence[str]:
        """Counts the branch that takes longest, which is what an IPU waits for at worst.

        Memory has to be enough for any of them, and has the code of all: others are written out
        before it, as what runs 0 times.
        """
        branches = []
        counts = op.attributes["num_branch_inputs"]
        first = 1
        for position, (name, count) in enumerate(zip(op.body, counts, strict=True)):
            branch = _Flattener(self._work_of_branch)
            branch.values = dict(self.values)
            arguments = reads[first : first + count]
            first += count
            scope = f"{prefix}{op.name}/branch{position}/"
            results = branch.run(functions[name], functions, arguments, scope, repeat)
            work = self._work_of_branch(
                FlatProgram(
                    compute_sets=tuple(branch.compute_sets),
                    values=branch.values,
                    results=results,
                    in_place=branch.in_place,
                )
            )
            branches.append((work, -position, branch, results))
        longest = max(branches, key=lambda found: found[:2])
        _, _, branch, results = longest
        for found in branches:
            if found is not longest:
                self._untaken(op, f"{prefix}{op.name}/branch{-found[1]}/", *found[2:], results)
        self.values.update(branch.values)
        self.compute_sets += branch.compute_sets
        self.in_place.update(branch.in_place)
        self.alternatives.update(branch.alternatives)
        self.checkpoints += branch.checkpoints
        self.num_unknown_loops += branch.num_unknown_loops
        return results

    def _untaken(
        self,
        op: Op,
        scope: str,
        branch: "_Flattener",
        results: Sequence[str],
        taken: Sequence[str],
    ) -> None:
        """A branch that takes memory and no time; at its end, it has all of its results."""
        self.values.update(branch.values)
        self.compute_sets += [replace(one, repeat=0) for one in branch.compute_sets]
        self.in_place.update(branch.in_place)
        self.alternatives.update(branch.alternatives)
        made = {value.name for one in branch.compute_sets for value in one.writes}
        pairs = zip(results, taken, strict=True)
        self.alternatives.update((name, other) for name, other in pairs if name in made)
        reads = tuple(dict.fromkeys(name for name in results if name in made))
        if reads:
            self.compute_sets.append(
                ComputeSet(
                    name=f"{scope}end",
                    family="control flow",
                    ops=(Op(f"{scope}end", "tuple", inputs=reads),),
                    operands=tuple(self.values[name].spec for name in reads),
                    reads=reads,
                    writes=(),
                    repeat=0,
                    **_place_of(op),
                )
            )


def flops_of(program: FlatProgram) -> int:
    """The floating point operations of a program."""
    return sum(one.flops * one.repeat for one in program.compute_sets)


def flatten(
    graph: Graph, *, work_of_branch: Callable[[FlatProgram], int] = flops_of
) -> FlatProgram:
    """Writes out an HLO graph.

    Args:
        graph: Its `form` is `"hlo"`.
        work_of_branch: How much a branch has to do; of each conditional, the one with the most
            counts.

    Returns:
        Its compute sets, one for each operation that does something.
    """
    flattener = _Flattener(work_of_branch)
    results = flattener.run(graph, graph.functions, (), "", 1)
    updates = _updates(graph, results)
    # A new value of a variable is written in place by whichever branch runs.
    read = {name for one in flattener.compute_sets for name in one.reads}
    written = {
        name: updates[taken]
        for name, taken in flattener.alternatives.items()
        if updates.get(taken) in read
    }
    return FlatProgram(
        compute_sets=tuple(flattener.compute_sets),
        values=flattener.values,
        results=results,
        updates=updates,
        in_place={**flattener.in_place, **written},
        checkpoints=tuple(dict.fromkeys(flattener.checkpoints)),
        num_unknown_loops=flattener.num_unknown_loops,
    )


def _names_of(op: Op, prefix: str) -> list[str]:
    """The names of its results as values."""
    several = len(op.outputs) > 1
    name = f"{prefix}{op.name}"
    return [f"{name}:{k}" if several else name for k in range(len(op.outputs))]


def _place_of(op: Op) -> dict[str, Any]:
    """Where in the model it belongs."""
    return {
        "layer": op.layer,
        "backward": op.backward,
        "stage": op.stage,
        "weight_update": op.weight_update,
    }


def _moves_nothing(op: Op, operands: Sequence[TensorSpec]) -> bool:
    """Whether a conversion keeps the type, or a transpose the order of the elements."""
    if op.kind == "convert":
        return operands[0].dtype == op.outputs[0].dtype
    if op.kind != "transpose":
        return False
    shape = operands[0].shape
    moved = [axis for axis in op.attributes["dimensions"] if shape[axis] != 1]
    return moved == sorted(moved)


def _updates(graph: Graph, results: Sequence[str]) -> dict[str, str]:
    written = {op.name: op.attributes["result"] for op in graph.ops if "result" in op.attributes}
    return {results[result]: name for name, result in written.items() if results[result] != name}


def deduplicate(program: FlatProgram) -> FlatProgram:
    """Computes once what several ask for, such as Adam's powers of its rates.

    What is in different parts of a pipeline, or runs not as often, does not share it.

    Args:
        program: Compute sets of one operation each.

    Returns:
        A program in which no two compute sets do the same with the same values.
    """
    same: dict[str, str] = {}
    found: dict[tuple, ComputeSet] = {}
    kept = []
    for one in program.compute_sets:
        one = replace(one, reads=tuple(same.get(name, name) for name in one.reads))
        (op,) = one.ops
        key = (op.kind, one.reads, op.outputs, repr(op.attributes), one.repeat, one.part)
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
    """Joins chains of elementwise operations.

    An operation joins the one that uses its result if nobody else does, both
    have as many elements, and both run as often. A broadcast joins everyone
    who uses it: it costs nothing within another vertex. Nothing else joins what runs in
    another part of a pipeline, or not as often. Before all, reductions that are the only ones to
    use halves converted to float32 take the halves, which popops' vertices add up in float32.

    Args:
        program: Compute sets of one operation each.

    Returns:
        A program without the values that never reach memory.
    """
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
        if times_joined[one.name] < max(1, sum(uses[value.name] for value in one.writes))
    )
    alive = set(program.results) | {v.name for one in compute_sets for v in one.writes}
    alive.update(name for one in compute_sets for name in one.reads)
    values = {name: value for name, value in program.values.items() if name in alive}
    return replace(program, compute_sets=compute_sets, values=values)


def _uses(program: FlatProgram) -> Counter[str]:
    """By how many compute sets a value is read, and as how many results it is returned."""
    uses = Counter(name for one in program.compute_sets for name in dict.fromkeys(one.reads))
    uses.update(program.results)
    uses.update(program.checkpoints)
    return uses


def _without_widening(program: FlatProgram) -> FlatProgram:
    """Conversions of halves to float32 that only reductions read become part of these."""
    wide = {one.writes[0].name: one for one in program.compute_sets if widens_halves(one)}
    reduced = Counter(
        one.reads[0]
        for one in program.compute_sets
        if one.reads and one.reads[0] in wide and _takes_halves(one, wide[one.reads[0]])
    )
    uses = _uses(program)
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


def widens_halves(one: ComputeSet) -> bool:
    """Whether all that it does is to convert float16 to float32.

    Args:
        one: Of a program that was written out.
    """
    specs = (*one.operands, *(value.spec for value in one.writes))
    return one.family == "cast" and [spec.dtype for spec in specs] == ["float16", "float32"]


def _takes_halves(one: ComputeSet, conversion: ComputeSet) -> bool:
    """Whether it is a reduction of one tensor, which a conversion makes when and as often."""
    return (
        one.family == "reduce"
        and len(one.writes) == 1
        and conversion.writes[0].name not in one.reads[1:]
        and (conversion.repeat, conversion.part) == (one.repeat, one.part)
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
    broadcasts = producer.ops[-1].kind == "broadcast"
    return (
        producer.family in _FUSES
        and (consumer.family in _FUSES or (broadcasts and is_carry(consumer)))
        and len(producer.writes) == 1
        and (uses == 1 or broadcasts)
        and producer.repeat == consumer.repeat
        and (broadcasts or producer.part == consumer.part)
        and _size(producer) == _size(consumer)
    )


def is_carry(one: ComputeSet) -> bool:
    """Whether all that it does is to copy a value to where a loop keeps it.

    Args:
        one: Of a program that was written out.
    """
    return one.family == "copy" and one.ops[-1].kind == "copy"


def _size(one: ComputeSet) -> int:
    return num_elements(one.writes[0].spec)


def _merged(chain: list[ComputeSet]) -> ComputeSet:
    last = chain[-1]
    if len(chain) == 1:
        return last
    inside = {value.name for one in chain[:-1] for value in one.writes}
    reads = tuple(dict.fromkeys(r for one in chain for r in one.reads if r not in inside))
    families = {one.family for one in chain}
    family = next((name for name in ("elementwise", "cast") if name in families), chain[0].family)
    read = sum(one.bytes_read for one in chain) - sum(
        v.spec.nbytes for one in chain[:-1] for v in one.writes
    )
    return replace(
        last,
        family=family,
        ops=tuple(op for one in chain for op in one.ops),
        reads=reads,
        layer=last.layer or next((one.layer for one in chain if one.layer), ""),
        flops=sum(one.flops for one in chain),
        bytes_read=read,
    )
