"""Turns an HLO graph into the compute sets that an IPU executes one after the other.

Calls and loops are written out, and operations that only rename a value disappear.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ipu_keras.cost.flat.compute_sets import Branch, ComputeSet, FlatProgram, LoopPart, Value
from ipu_keras.ir import (
    CHECKPOINT,
    POPLAR_CALL,
    Graph,
    Op,
    TensorSpec,
    family_of,
    family_of_op,
    num_elements,
    work_of,
)

# A loop whose trip count tracing could not find, nor a bound of it, counts as one
# trip. Reports say how many loops are not counted exactly.
UNKNOWN_TRIPS = 1


@dataclass(frozen=True)
class _FlatGraph:
    """Where in the program a graph is written out, and how often it runs there."""

    prefix: str = ""
    repeat: int = 1
    loops: tuple[LoopPart, ...] = ()
    branches: tuple[Branch, ...] = ()

    def call(self, name: str) -> "_FlatGraph":
        return replace(self, prefix=f"{name}/")

    def loop(self, name: str, trips: int, *, is_condition: bool = False) -> "_FlatGraph":
        return _FlatGraph(
            prefix=f"{name}/{'condition' if is_condition else 'body'}/",
            repeat=self.repeat * trips,
            loops=(*self.loops, LoopPart(name, is_condition)),
            branches=self.branches,
        )

    def branch(self, name: str, index: int) -> "_FlatGraph":
        return replace(
            self, prefix=f"{name}/branch{index}/", branches=(*self.branches, Branch(name, index))
        )

    def place_of(self, op: Op) -> dict[str, Any]:
        """Returns the fields of a compute set that say where in program and model it belongs."""
        return {
            "repeat": self.repeat,
            "loops": self.loops,
            "branches": self.branches,
            **_place_of(op),
        }


class _Flattener:
    """Writes out one graph; `values`, `compute_sets` and taken names grow as it goes."""

    def __init__(
        self,
        functions: Mapping[str, Graph],
        work_of_branch: Callable[[FlatProgram], int],
        taken: set[str],
    ) -> None:
        self._functions = functions
        self._work_of_branch = work_of_branch
        self._taken = taken
        self.values: dict[str, Value] = {}
        self.compute_sets: list[ComputeSet] = []
        self.in_place: dict[str, str] = {}
        self.checkpoints: list[str] = []
        # Results of branches that only count as memory, each with the result in its place of the
        # branch that runs longest.
        self.alternatives: dict[str, str] = {}
        self.num_unknown_loops = 0

    def run(self, graph: Graph, arguments: Sequence[str], scope: _FlatGraph) -> tuple[str, ...]:
        """Writes out a graph whose parameters are the given values; returns its results."""
        names: dict[str, str] = {}
        specs: dict[str, TensorSpec] = {}
        for op in graph.ops:
            reads = tuple(names[reference] for reference in op.inputs)
            operands = tuple(specs[reference] for reference in op.inputs)
            results = self._op(op, reads, operands, arguments, scope)
            for position, (name, spec) in enumerate(zip(results, op.outputs, strict=True)):
                # References say `name:k`, and the name alone for the first result.
                names[f"{op.name}:{position}"] = name
                specs[f"{op.name}:{position}"] = spec
            if results:
                names[op.name], specs[op.name] = results[0], op.outputs[0]
        return tuple(names[reference] for reference in graph.results)

    def _inner(self) -> "_Flattener":
        return _Flattener(self._functions, self._work_of_branch, self._taken)

    def _op(self, op, reads, operands, arguments, scope) -> Sequence[str]:
        if op.kind == "parameter" and "role" not in op.attributes:
            first = op.attributes["first_leaf"]
            return arguments[first : first + len(op.outputs)]
        if op.kind in ("parameter", "constant", "iota", "get-dimension-size"):
            # What a function captured besides variables does not change either.
            role = op.attributes.get("role", "constant")
            return self._add(op, scope, "constant" if role == "capture" else role)
        if op.kind == "while":
            return self._loop(op, reads, scope)
        if op.kind == "conditional":
            return self._conditional(op, reads, scope)
        if op.body and op.kind == "call":
            return self.run(self._functions[op.body[0]], reads, scope.call(self._name(op, scope)))
        if op.kind == POPLAR_CALL:
            return self._poplar_call(op, reads, operands, scope)
        if op.kind == CHECKPOINT:
            self.checkpoints += reads
        if family_of(op.kind) == "free" or _moves_nothing(op, operands):
            # A view of its operand; of the same memory, so of the same name.
            return reads[: len(op.outputs)] or self._add(op, scope, "constant")
        if op.outputs and not any(map(num_elements, op.outputs)):
            return self._add(op, scope, "constant")  # of no bytes: no vertex computes it
        return self._compute(op, reads, operands, scope)

    def _compute(self, op, reads, operands, scope) -> Sequence[str]:
        name, work = self._name(op, scope), work_of(op, operands)
        results = self._made(op, name, "activation")
        self.compute_sets.append(
            ComputeSet(
                name=name,
                family=family_of_op(op),
                ops=(op,),
                operands=operands,
                reads=reads,
                writes=tuple(self.values[result] for result in results),
                **scope.place_of(op),
                flops=work.flops,
                bytes_read=work.bytes_read,
                bytes_written=work.bytes_written,
            )
        )
        return results

    def _name(self, op: Op, scope: _FlatGraph) -> str:
        return self._unique(f"{scope.prefix}{op.name}") if scope.prefix else op.name

    def _unique(self, name: str) -> str:
        """Returns the name, numbered if a layer is called as a scope of a loop or branch."""
        found, count = name, 0
        while found in self._taken:
            count += 1
            found = f"{name}_{count}"
        self._taken.add(found)
        return found

    def _add(self, op: Op, scope: _FlatGraph, role: str) -> list[str]:
        if "value" in op.attributes:  # of a scalar constant: equal ones are one
            (spec,) = op.outputs
            name = f"{spec.dtype}({op.attributes['value']})"
            self.values[name] = Value(name, spec, role)
            return [name]
        return self._made(op, self._name(op, scope), role)

    def _made(self, op: Op, name: str, role: str) -> list[str]:
        names = _names_of(op, name)
        for each, spec in zip(names, op.outputs, strict=True):
            self.values[each] = Value(each, spec, role)
        return names

    def _poplar_call(self, op, reads, operands, scope) -> Sequence[str]:
        """Writes an operation of Poplar's libraries as one compute set with a body."""
        inner, name = self._inner(), self._name(op, scope)
        for read in reads:
            # What it is given takes memory of the program around it, and must not be
            # overwritten: in a body, both hold for variables.
            role = "constant" if self.values[read].role == "constant" else "variable"
            inner.values[read] = replace(self.values[read], role=role)
        results = inner.run(self._functions[op.body[0]], reads, _FlatGraph(prefix=f"{name}/"))
        self.num_unknown_loops += inner.num_unknown_loops
        sets = tuple(replace(one, **_place_of(op)) for one in inner.compute_sets)
        # What the operation passes on, or has as a constant, keeps its name around it.
        used = dict.fromkeys([*(read for one in sets for read in one.reads), *results])
        constants = [each for each in used if inner.values[each].role == "constant"]
        self.values.update((each, inner.values[each]) for each in constants)
        made = {value.name for one in sets for value in one.writes}
        written: dict[str, str] = {}
        for mine, result in zip(_names_of(op, name), results, strict=True):
            if result in made:
                written.setdefault(result, mine)
        writes = tuple(Value(mine, inner.values[result].spec) for result, mine in written.items())
        self.values.update((value.name, value) for value in writes)
        # What has no result does something besides, such as to print.
        if writes or not all(one.writes for one in sets):
            self.compute_sets.append(
                ComputeSet(
                    name=name,
                    family=op.attributes["operation"],
                    ops=(op,),
                    operands=operands,
                    reads=tuple(dict.fromkeys((*reads, *constants))),
                    writes=writes,
                    **scope.place_of(op),
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

    def _loop(self, op, reads, scope) -> Sequence[str]:
        trips = op.attributes.get("trip_count")
        is_counted = trips is not None
        if not is_counted:
            self.num_unknown_loops += 1
            trips = op.attributes.get("max_trip_count") or UNKNOWN_TRIPS
        # Each carried value is copied before the first trip and after each trip. TensorFlow for
        # IPUs lowers loops in place, with copies only where a value is not written where it was
        # read; `in_place.share_memory` drops the copies that are not needed, once the order is
        # known.
        condition, body = (self._functions[name] for name in op.body)
        start, name = len(self.compute_sets), self._name(op, scope)
        carried = [self._carry(f"{name}:{k}", read, op, scope) for k, read in enumerate(reads)]
        # A repeat with a count has no condition: the control program counts.
        if not is_counted:
            self.run(condition, carried, scope.loop(name, trips, is_condition=True))
        within = scope.loop(name, trips)
        results = self.run(body, carried, within)
        kept = {
            mine: read
            for mine, read, result in zip(carried, reads, results, strict=True)
            if mine == result
        }
        self._forget(kept, start)
        self._read_first(dict(zip(results, carried, strict=True)), start, within)
        unread = self._forget_unread(carried, results, start) if is_counted else frozenset()
        after, place = list(reads), self._unique(f"{within.prefix}carried")
        for k, (mine, result) in enumerate(zip(carried, results, strict=True)):
            if mine in unread:
                after[k] = kept.get(result, result)
            elif mine not in kept:
                after[k] = self._carry(f"{place}:{k}", kept.get(result, result), op, within)
                self.in_place[after[k]] = mine
        return after

    def _carry(self, name: str, source: str, op: Op, scope: _FlatGraph) -> str:
        """Adds a copy of a value to where a loop keeps it from one trip to the next."""
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
                **scope.place_of(op),
                bytes_read=value.spec.nbytes,
                bytes_written=value.spec.nbytes,
            )
        )
        return name

    def _forget(self, kept: Mapping[str, str], start: int) -> None:
        """Lets readers take what a loop carries and never changes from its place before."""
        self.compute_sets[start:] = [
            replace(one, reads=tuple(kept.get(name, name) for name in one.reads))
            for one in self.compute_sets[start:]
            if one.name not in kept
        ]
        for name in kept:
            del self.values[name]

    def _read_first(self, places: Mapping[str, str], start: int, within: _FlatGraph) -> None:
        """Puts what reads a loop's old values before what makes the new ones, where it can be.

        Then the new value can be written where the old one was, as InplaceFinder of TensorFlow
        for IPUs has it by control dependencies. Inner loops and branches stay as they are.
        """
        body = self.compute_sets[start:]
        made_by = {value.name: one.name for one in body for value in one.writes}
        for result, place in places.items():
            maker = next((k for k, one in enumerate(body) if one.name == made_by.get(result)), None)
            if maker is None or not _is_directly_in(within, body[maker]):
                continue
            later = {value.name for value in body[maker].writes}  # and what depends on these
            free = []
            for one in body[maker + 1 :]:
                if _is_directly_in(within, one) and later.isdisjoint(one.reads):
                    free.append(one)
                else:
                    later.update(value.name for value in one.writes)
            first = _readers_of(place, free)
            names = {one.name for one in first}
            rest = [one for one in body[maker + 1 :] if one.name not in names]
            body[maker:] = [*first, body[maker], *rest]
        self.compute_sets[start:] = body

    def _forget_unread(
        self, carried: Sequence[str], results: Sequence[str], start: int
    ) -> frozenset[str]:
        """Drops the places of what no trip reads; returns their names.

        What is needed of it is what the last trip made.
        """
        read = {name for one in self.compute_sets[start:] for name in one.reads}
        unread = frozenset(carried).difference(read, results) & set(self.values)
        self.compute_sets[start:] = [
            one for one in self.compute_sets[start:] if one.name not in unread
        ]
        for name in unread:
            del self.values[name]
        return unread

    def _conditional(self, op, reads, scope) -> Sequence[str]:
        """Counts the branch that takes longest, which is what an IPU waits for at worst."""
        branches = []
        conditional, first = self._name(op, scope), 1
        counts = op.attributes["num_branch_inputs"]
        for index, (function, count) in enumerate(zip(op.body, counts, strict=True)):
            branch = self._inner()
            branch.values = dict(self.values)
            arguments = reads[first : first + count]
            first += count
            within = scope.branch(conditional, index)
            results = branch.run(self._functions[function], arguments, within)
            work = self._work_of_branch(
                FlatProgram(
                    compute_sets=tuple(branch.compute_sets),
                    values=branch.values,
                    results=results,
                    in_place=branch.in_place,
                )
            )
            # Of branches with equal work, the first one counts.
            branches.append((work, -index, branch, results, within))
        longest = max(branches, key=lambda found: found[:2])
        _, _, branch, results, _ = longest
        # Memory has to be enough for any branch, and has the code of all, so the others are
        # written out before it, as compute sets that run 0 times.
        for found in branches:
            if found is not longest:
                self._untaken(op, *found[2:], results)
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
        branch: "_Flattener",
        results: Sequence[str],
        scope: _FlatGraph,
        taken: Sequence[str],
    ) -> None:
        """Writes out a branch that takes memory and no time."""
        self.values.update(branch.values)
        self.compute_sets += [replace(one, repeat=0) for one in branch.compute_sets]
        self.in_place.update(branch.in_place)
        self.alternatives.update(branch.alternatives)
        made = {value.name for one in branch.compute_sets for value in one.writes}
        pairs = zip(results, taken, strict=True)
        self.alternatives.update((name, other) for name, other in pairs if name in made)
        reads = tuple(dict.fromkeys(name for name in results if name in made))
        if reads:
            # At its end, the branch has all of its results in memory: this reads them, and costs
            # nothing.
            end = self._unique(f"{scope.prefix}end")
            self.compute_sets.append(
                ComputeSet(
                    name=end,
                    family="control flow",
                    ops=(Op(end, "tuple", inputs=reads),),
                    operands=tuple(self.values[name].spec for name in reads),
                    reads=reads,
                    writes=(),
                    **{**scope.place_of(op), "repeat": 0},
                )
            )


def flops_of(program: FlatProgram) -> int:
    return sum(one.flops * one.repeat for one in program.compute_sets)


def flatten(
    graph: Graph, *, work_of_branch: Callable[[FlatProgram], int] = flops_of
) -> FlatProgram:
    """Writes out an HLO graph, with a compute set for each operation that does something.

    Of each conditional, the branch counts that has the most to do by `work_of_branch`.
    """
    taken = {op.name for op in graph.ops}
    flattener = _Flattener(graph.functions, work_of_branch, taken)
    results = flattener.run(graph, (), _FlatGraph())
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


def _is_directly_in(within: _FlatGraph, one: ComputeSet) -> bool:
    return (one.loops, one.branches) == (within.loops, within.branches)


def _readers_of(name: str, compute_sets: Sequence[ComputeSet]) -> list[ComputeSet]:
    """Returns, in their order, the compute sets that read a value, and those that they follow."""
    needed: set[str] = set()
    found = []
    for one in reversed(compute_sets):
        if name in one.reads or any(value.name in needed for value in one.writes):
            needed.update(one.reads)
            found.append(one)
    return found[::-1]


def _names_of(op: Op, name: str) -> list[str]:
    several = len(op.outputs) > 1
    return [f"{name}:{k}" if several else name for k in range(len(op.outputs))]


def _place_of(op: Op) -> dict[str, Any]:
    return {
        "layer": op.layer,
        "backward": op.backward,
        "stage": op.stage,
        "weight_update": op.weight_update,
        "shard": op.shard,
    }


# Operations that are their operand if they leave as many elements: parts that are the whole, and
# sums of one element each. XLA's simplifier drops these, with which TensorFlow adds and drops an
# axis of one element, such as that along which samples share a weight.
_PARTS = frozenset({"concatenate", "dynamic-slice", "pad", "reduce", "slice"})


def _moves_nothing(op: Op, operands: Sequence[TensorSpec]) -> bool:
    """Whether an operation keeps all elements, their type and their order."""
    if op.kind == "convert":
        return operands[0].dtype == op.outputs[0].dtype
    if op.kind in _PARTS:
        is_whole = num_elements(operands[0]) == num_elements(op.outputs[0])
        # Padding of less than nothing on one side moves elements.
        is_moved = any(op.attributes.get("edge_padding_low", ()))
        return len(op.outputs) == 1 and is_whole and not is_moved
    if op.kind == "transpose":
        sizes = operands[0].shape
    elif op.kind == "broadcast" and num_elements(operands[0]) == num_elements(op.outputs[0]):
        sizes = op.outputs[0].shape
    else:
        return False
    # Axes of one element may stand anywhere. Such operations only matter to XLA's own memory: in
    # Poplar, they are views.
    moved = [axis for axis in op.attributes["dimensions"] if sizes[axis] != 1]
    return moved == sorted(moved)


def _updates(graph: Graph, results: Sequence[str]) -> dict[str, str]:
    written = {op.name: op.attributes["result"] for op in graph.ops if "result" in op.attributes}
    return {results[result]: name for name, result in written.items() if results[result] != name}
