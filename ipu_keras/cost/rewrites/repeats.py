"""Makes loops that run a known number of times what an IPU repeats.

TensorFlow for IPUs lowers such a loop to a `repeat` (WhileLoopToRepeatSimplify): the control
program counts its turns, so that no vertex computes the condition. XLA's clean-ups around that
leave little of the integers that TensorFlow carries through a loop, one for each of its lists.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ipu_keras.cost.rewrites.constants import numbers_of
from ipu_keras.ir import CHECKPOINT, NOT_LOWERED, Graph, Op, TensorSpec

# Operations that hand a value on as it is, in another shape at most.
_SAME_VALUE = frozenset({"bitcast", "copy", "opt-barrier", "reshape"})


def with_repeats(graph: Graph) -> Graph:
    """Leaves in loops with known trip counts what their results depend on.

    - Integers that count turns alike are one, and constants after the loop.
    - Constants that a loop carries are constants in its body.
    - What nothing needs besides its own next value is not carried.
    - A list to which each turn adds the same value is that value, also for a loop that takes the
      list apart; one to which each adds its row of another list is that list.
    - Slices of the whole, or at constant places, are no dynamic ones, anywhere.
    """
    return _Repeats(graph).rewritten()


class _Repeats:
    """Rewrites a graph; its functions are rewritten when they are first asked for."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._functions: dict[str, Graph] = {}

    def rewritten(self) -> Graph:
        for name in self._graph.functions:
            self._function(name)
        made = self._of(self._graph)
        return replace(made, functions=self._functions)

    def _function(self, name: str) -> Graph:
        if name not in self._functions:
            self._functions[name] = self._of(self._graph.functions[name])
        return self._functions[name]

    def _of(self, graph: Graph) -> Graph:
        graph = replace(graph, ops=_with_fixed_slices(graph.ops))
        if all(op.kind != "while" for op in graph.ops):
            return graph
        users = {_reference(name) for op in graph.ops for name in op.inputs}
        users.update(map(_reference, graph.results))
        ops: list[Op] = []
        renamed: dict[str, str] = {}
        lists: dict[str, str] = {}  # by the name of a list, the value that all its elements have
        for op in graph.ops:
            inputs = tuple(renamed.get(_reference(name), name) for name in op.inputs)
            op = replace(op, inputs=inputs)
            if op.kind == "while" and op.attributes.get("trip_count") is not None:
                used = {k for k in range(len(op.outputs)) if f"{op.name}:{k}" in users}
                ops += self._repeat(
                    _CountedLoop(op, self._function(op.body[1])), used, ops, lists, renamed
                )
            else:
                ops.append(op)
        results = tuple(renamed.get(_reference(name), name) for name in graph.results)
        needed = _needed(ops, results, self._has_effects)
        # The roles of a step's parameters are known by what has them.
        kept = [op for op in ops if op.name in needed or op.kind == "parameter"]
        return replace(graph, ops=tuple(kept), results=results)

    def _repeat(
        self,
        loop: "_CountedLoop",
        used: set[int],
        before: Sequence[Op],
        lists: dict[str, str],
        renamed: dict[str, str],
    ) -> list[Op]:
        """Returns a loop's operations; adds what they make, and by which names it is known."""
        op = loop.op
        loop = loop.with_one_counter_each().with_constants(numbers_of(before)).with_elements(lists)
        after: list[Op] = []
        for leaf in sorted(used):
            made = loop.result_without_loop(leaf)
            if made is not None:
                after += made[1]
                renamed[f"{op.name}:{leaf}"] = made[0]
                lists.update((one.name, one.inputs[0]) for one in made[1] if one.inputs)
                used = used - {leaf}
        loop, places = loop.trimmed(used, self._has_effects)
        renamed.update((f"{op.name}:{old}", f"{op.name}:{new}") for old, new in places.items())
        name = f"{op.body[1]}/{op.name}"
        self._functions[name] = loop.body
        attributes = {key: value for key, value in op.attributes.items() if key != "counters"}
        # A condition that is not computed may take what is not carried any more.
        return [replace(loop.op, body=(op.body[0], name), attributes=attributes), *after]

    def _has_effects(self, op: Op) -> bool:
        ops = replace(self._graph, functions=self._functions).of_op(op).walk()
        return any(
            one.stateful
            or not one.outputs
            or one.kind in (CHECKPOINT, "infeed")
            or NOT_LOWERED in one.attributes
            for one in ops
        )


@dataclass(frozen=True)
class _CountedLoop:
    """A loop that runs a known number of times, and its body."""

    op: Op
    body: Graph

    @cached_property
    def _counters(self) -> Mapping[int, tuple[int, int]]:
        """The first value and the step of integers that change by a constant, by position."""
        return {leaf: (start, step) for leaf, start, step in self.op.attributes.get("counters", ())}

    @cached_property
    def _made_by(self) -> Mapping[str, Op]:
        return {op.name: op for op in self.body.ops}

    @cached_property
    def _parameters(self) -> Mapping[str, int]:
        """Positions of what the loop carries, by the body's references."""
        return {
            f"{op.name}:{k}": op.attributes["first_leaf"] + k
            for op in self.body.ops
            if _is_parameter(op)
            for k in range(len(op.outputs))
        }

    def _source(self, name: str) -> str:
        """Returns what a value of the body is, through operations that hand it on."""
        while True:
            op = self._made_by[_operation(name)]
            if op.kind not in _SAME_VALUE or len(op.outputs) != 1:
                return _reference(name)
            name = op.inputs[0]

    def _is_kept(self, leaf: int) -> bool:
        """Whether each turn hands on what the one before did."""
        return self._parameters.get(self._source(self.body.results[leaf])) == leaf

    def with_one_counter_each(self) -> "_CountedLoop":
        """Lets all of the body take one of the integers that are equal in each turn."""
        firsts: dict[tuple[int, int, TensorSpec], int] = {}
        same = {
            leaf: firsts.setdefault((*counter, self.op.outputs[leaf]), leaf)
            for leaf, counter in self._counters.items()
        }
        references = {leaf: name for name, leaf in self._parameters.items()}
        return self._reading(
            {references[leaf]: references[first] for leaf, first in same.items() if leaf != first}
        )

    def with_constants(self, numbers: Mapping[str, float]) -> "_CountedLoop":
        """Lets the body have constants of its own in place of those that it is given."""
        made, renamed = [], {}
        for name, leaf in self._parameters.items():
            (spec, source) = self.op.outputs[leaf], self.op.inputs[leaf]
            if source in numbers and not spec.shape and self._is_kept(leaf):
                attributes = {"value": numbers[source]}
                constant = Op(f"constant{leaf}", "constant", (spec,), attributes=attributes)
                made.append(constant)
                renamed[name] = constant.name
        body = self._reading(renamed).body
        ops = [*(op for op in body.ops if _is_parameter(op)), *made]
        ops += [op for op in body.ops if not _is_parameter(op)]
        return replace(self, body=replace(body, ops=_with_fixed_slices(ops)))

    def with_elements(self, lists: Mapping[str, str]) -> "_CountedLoop":
        """Takes the one value of a list's elements, where the body looks one up in the list."""
        loop = self
        for name, leaf in self._parameters.items():
            source = lists.get(self.op.inputs[leaf])
            if source is not None and self._is_kept(leaf):
                loop = loop._with_element(name, leaf, source)
        return loop

    def _with_element(self, name: str, leaf: int, source: str) -> "_CountedLoop":
        spec = self.op.outputs[leaf]
        element = TensorSpec(spec.shape[1:], spec.dtype)
        count = len(self.op.outputs)
        given = Op(
            f"element{leaf}",
            "parameter",
            (element,),
            attributes={"number": 0, "first_leaf": count},
        )
        ops = [
            replace(op, kind="reshape", inputs=(given.name,), attributes={})
            if op.kind == "dynamic-slice"
            and self._source(op.inputs[0]) == name
            and op.attributes["slice_sizes"] == (1, *element.shape)
            else op
            for op in self.body.ops
        ]
        body = replace(
            self.body, ops=(given, *ops), results=(*self.body.results, f"{given.name}:0")
        )
        op = replace(self.op, outputs=(*self.op.outputs, element), inputs=(*self.op.inputs, source))
        return _CountedLoop(op, body)

    def result_without_loop(self, leaf: int) -> tuple[str, list[Op]] | None:
        """Returns the name of a result that no turn computes, and what makes it."""
        spec, trips = self.op.outputs[leaf], self.op.attributes["trip_count"]
        if leaf in self._counters:
            start, step = self._counters[leaf]
            attributes = {"value": start + trips * step}
            end = replace(_like(self.op, f"end{leaf}", "constant", spec), attributes=attributes)
            return end.name, [end]
        if self._is_kept(leaf):
            return self.op.inputs[leaf], []
        whole = self._whole_of(leaf)
        if whole is not None:
            return self.op.inputs[whole], []
        element = self._element_of(leaf)
        if element is None:
            return None
        made = replace(
            _like(self.op, f"list{leaf}", "broadcast", spec),
            inputs=(self.op.inputs[element],),
            attributes={"dimensions": tuple(range(1, len(spec.shape)))},
        )
        return made.name, [made]

    def _element_of(self, leaf: int) -> int | None:
        """Returns the position of what the loop is given, and writes to each row of a result."""
        value = self._written_to_rows(leaf)
        element = None if value is None else self._parameters.get(value)
        if element is None or not self._is_kept(element):
            return None
        same = self.op.outputs[element].shape == self.op.outputs[leaf].shape[1:]
        return element if same else None

    def _whole_of(self, leaf: int) -> int | None:
        """Returns the position of what the loop is given, and copies to a result row by row.

        TensorFlow keeps what a turn takes for the gradient; TensorFlow for IPUs stores no slices
        that another loop can take, too.
        """
        value = self._written_to_rows(leaf)
        taken = None if value is None else self._made_by[_operation(value)]
        if taken is None or taken.kind != "dynamic-slice":
            return None
        whole = self._parameters.get(self._source(taken.inputs[0]))
        spec = self.op.outputs[leaf]
        is_same = (
            whole is not None
            and self._is_kept(whole)
            and self.op.outputs[whole] == spec
            and taken.attributes["slice_sizes"] == (1, *spec.shape[1:])
            and self._is_row_of_turn(taken.inputs[1:])
        )
        return whole if is_same else None

    def _written_to_rows(self, leaf: int) -> str | None:
        """Returns what each turn writes to the row of its own, if that makes all of a result."""
        spec = self.op.outputs[leaf]
        update = self._made_by[_operation(self._source(self.body.results[leaf]))]
        if update.kind != "dynamic-update-slice" or not spec.shape:
            return None
        before, value, *row = update.inputs
        is_whole = (
            self._parameters.get(self._source(before)) == leaf
            and self.op.attributes["trip_count"] == spec.shape[0]
            and self._is_row_of_turn(row)
        )
        return self._source(value) if is_whole else None

    def _is_row_of_turn(self, place: Sequence[str]) -> bool:
        """Whether a place is the start of the row with the number of the turn."""
        row, *others = map(self._source, place)
        numbers = numbers_of(self.body.ops)
        counts_turns = self._counters.get(self._parameters.get(row, -1)) == (0, 1)
        return counts_turns and all(numbers.get(_operation(name)) == 0 for name in others)

    def trimmed(
        self, used: Iterable[int], has_effects: Callable[[Op], bool]
    ) -> tuple["_CountedLoop", Mapping[int, int]]:
        """Leaves out what no result that is used depends on; returns the results' new places."""
        kept, grown = None, set(used)
        while grown != kept:
            kept = grown
            results = [self.body.results[leaf] for leaf in kept]
            needed = _needed(self.body.ops, results, has_effects)
            read = {name for op in self.body.ops if op.name in needed for name in op.inputs}
            read = set(map(_reference, read.union(results)))
            grown = kept | {leaf for name, leaf in self._parameters.items() if name in read}
        places = {old: new for new, old in enumerate(sorted(kept))}
        return self._with_leaves(places, needed), places

    def _with_leaves(self, places: Mapping[int, int], needed: Collection[str]) -> "_CountedLoop":
        """Keeps what the loop carries at some positions, and the body's operations of a name."""
        renamed: dict[str, str] = {}
        ops = []
        for op in self.body.ops:
            if _is_parameter(op):
                first = op.attributes["first_leaf"]
                leaves = [k for k in range(len(op.outputs)) if first + k in places]
                renamed.update((f"{op.name}:{k}", f"{op.name}:{n}") for n, k in enumerate(leaves))
                if leaves:
                    attributes = {**op.attributes, "first_leaf": places[first + leaves[0]]}
                    outputs = tuple(op.outputs[k] for k in leaves)
                    ops.append(replace(op, outputs=outputs, attributes=attributes))
            elif op.name in needed:
                ops.append(op)
        results = tuple(self.body.results[old] for old in places)
        body = replace(self.body, ops=tuple(ops), results=results)
        op = replace(
            self.op,
            outputs=tuple(self.op.outputs[old] for old in places),
            inputs=tuple(self.op.inputs[old] for old in places),
        )
        return _CountedLoop(op, body)._reading(renamed)

    def _reading(self, renamed: Mapping[str, str]) -> "_CountedLoop":
        """Lets the body read other values in place of some, and result in the same."""

        def known(names: Iterable[str]) -> tuple[str, ...]:
            return tuple(renamed.get(_reference(name), name) for name in names)

        ops = tuple(replace(op, inputs=known(op.inputs)) for op in self.body.ops)
        return replace(self, body=replace(self.body, ops=ops, results=known(self.body.results)))


def _with_fixed_slices(ops: Iterable[Op]) -> tuple[Op, ...]:
    """Makes a slice's place a part of it where it is constant, as XLA's simplifier does."""
    ops = tuple(ops)
    numbers = numbers_of(ops)
    shapes = {_reference(op.name): op.outputs[0].shape for op in ops if op.outputs}
    shapes.update((f"{op.name}:{k}", spec.shape) for op in ops for k, spec in enumerate(op.outputs))
    return tuple(_with_fixed_slice(op, numbers, shapes) for op in ops)


def _with_fixed_slice(
    op: Op, numbers: Mapping[str, float], shapes: Mapping[str, tuple[int, ...]]
) -> Op:
    if op.kind not in ("dynamic-slice", "dynamic-update-slice"):
        return op
    whole = shapes[_reference(op.inputs[0])]
    if op.kind == "dynamic-update-slice":
        # An update of all that there is leaves nothing of what was there.
        if shapes[_reference(op.inputs[1])] != whole:
            return op
        return replace(op, kind="reshape", inputs=op.inputs[1:2], attributes={})
    sizes = op.attributes["slice_sizes"]
    if sizes == whole:
        return replace(op, kind="reshape", inputs=op.inputs[:1], attributes={})
    places = [numbers.get(_operation(name)) for name in op.inputs[1:]]
    known = [place for place in places if place is not None]
    if len(known) < len(places):
        return op
    # XLA moves a slice that would end outside to where it ends with its operand.
    start = tuple(
        max(0, min(int(place), length - size))
        for place, length, size in zip(known, whole, sizes, strict=True)
    )
    limit = tuple(first + size for first, size in zip(start, sizes, strict=True))
    attributes = {"start": start, "limit": limit, "stride": (1,) * len(start)}
    return replace(op, kind="slice", inputs=op.inputs[:1], attributes=attributes)


def _like(loop: Op, name: str, kind: str, spec: TensorSpec) -> Op:
    """Returns an operation at a loop's place in the program."""
    return replace(
        loop,
        name=f"{loop.name}/{name}",
        kind=kind,
        outputs=(spec,),
        inputs=(),
        body=(),
        attributes={},
    )


def _needed(
    ops: Sequence[Op], results: Iterable[str], has_effects: Callable[[Op], bool]
) -> frozenset[str]:
    """Returns the names of operations that results depend on, or that do something besides."""
    needed = set(map(_operation, results))
    for op in reversed(ops):
        if op.name in needed or has_effects(op):
            needed.add(op.name)
            needed.update(map(_operation, op.inputs))
    return frozenset(needed)


def _is_parameter(op: Op) -> bool:
    return op.kind == "parameter" and "role" not in op.attributes


def _reference(name: str) -> str:
    """Returns how an operation's first result is called like all others of it."""
    return name if ":" in name else f"{name}:0"


def _operation(name: str) -> str:
    """Returns the name of the operation that a reference is to a result of."""
    return name.partition(":")[0]
