"""Lets products sum over their batch, where that is what happens to them next.

The gradient of a weight that all samples share is a product for each sample, and the sum of them.
As one product whose rows are those of all samples, it needs no value of all samples' gradients.

    x (b, p, k) ─┐                                        x (b, p, k) ─┐
   dy (b, p, n) ─┴─ dot (b, k, n) ─ reduce (k, n)   ->   dy (b, p, n) ─┴─ dot (k, n)
"""

import itertools
import operator
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ipu_keras.cost.rewrites.constants import NUMBER_KINDS, numbers_of, sources_of, without_unused
from ipu_keras.ir import Graph, Op, TensorSpec


def with_summed_products(graph: Graph) -> Graph:
    """Contracts dimensions of a product's batch that a sum adds up next.

    Example:

    >>> def spec(*shape):
    ...     return (TensorSpec(shape, "float32"),)
    >>> ops = (
    ...     Op("x", "parameter", spec(8, 5, 2)),
    ...     Op("dy", "parameter", spec(8, 5, 3)),
    ...     Op("zero", "constant", spec(), attributes={"value": 0.0}),
    ...     Op("dot", "dot", spec(8, 2, 3), inputs=("x", "dy"), attributes={
    ...         "lhs_batch_dimensions": (0,), "rhs_batch_dimensions": (0,),
    ...         "lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (1,)}),
    ...     Op("dw", "reduce", spec(2, 3), inputs=("dot", "zero"), attributes={
    ...         "dimensions": (0,), "operation": "add"}),
    ... )
    >>> graph = with_summed_products(Graph("step", ops, results=("dw",)))
    >>> (graph.results, graph.ops[-1].name, graph.ops[-1].outputs[0].shape)
    (('dot',), 'dot', (2, 3))
    >>> graph.ops[-1].attributes["lhs_contracting_dimensions"]
    (0, 1)
    """
    # The simplifier of TensorFlow for IPUs, which changes dots alone: sums over dimensions that
    # are not all of the batch stay, as do those of products with other readers.
    functions = {name: with_summed_products(body) for name, body in graph.functions.items()}
    kinds = {op.kind for op in graph.ops}
    if not kinds >= {"dot", "reduce"}:
        return replace(graph, functions=functions)
    sums = _Sums(graph)
    for op in graph.ops:
        if op.kind == "reduce":
            sums.take(op)
    return replace(sums.graph(), functions=functions)


class _Sums:
    """The operations of a graph, as far as its sums have been taken into products."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._ops = {op.name: op for op in graph.ops}
        self._numbers = numbers_of(graph.ops)
        self._renamed: dict[str, str] = {}
        self._unused: set[str] = set()
        self._readers: dict[str, Op] = {}
        # Whoever waits for an operation counts as if it read it.
        self._num_readers = Counter(graph.results)
        for op in graph.ops:
            self._num_readers.update((*op.inputs, *op.after))
            self._readers.update((name, op) for name in op.inputs)

    def take(self, reduce: Op) -> None:
        """Replaces a sum by the product that it is of, if there is one."""
        source, *initial = map(self._now, reduce.inputs)
        is_sum = reduce.attributes["operation"] == "add" and len(reduce.outputs) == 1
        if not is_sum or self._numbers.get(initial[0]) != 0 or not self._spec(source).nbytes:
            return
        chain = self._chain(source)
        made = self._summed(chain, reduce.attributes["dimensions"]) if chain else []
        if not made:
            return
        end = self._converted_back(reduce, made[-1])
        # Of a sum in float32, products of halves would lose digits.
        if end.outputs[0].dtype != made[-1].outputs[0].dtype:
            return
        made[-1] = replace(made[-1], stateful=end.stateful)
        self._ops.update((op.name, op) for op in made)
        self._renamed.update(dict.fromkeys((reduce.name, end.name), made[-1].name))
        self._num_readers[made[-1].name] = self._num_readers[end.name]
        self._unused |= {op.name for op in (*chain, reduce, end)} - {op.name for op in made}
        self._unused |= sources_of(initial, self._ops, NUMBER_KINDS)

    def _now(self, name: str) -> str:
        return self._renamed.get(name, name)

    def _chain(self, name: str) -> list[Op]:
        """Lists what makes a value of a product, the last first; nothing if others read any."""
        chain: list[Op] = []
        while self._num_readers[name] == 1 and name in self._ops:
            chain.append(self._ops[name])
            if chain[-1].kind == "dot":
                return chain
            if chain[-1].kind not in _VIEWS and not self._widens(chain[-1]):
                return []
            name = self._now(chain[-1].inputs[0])
        return []

    def _widens(self, op: Op) -> bool:
        """Whether an operation makes float32 of halves, as TensorFlow does before it sums."""
        if op.kind != "convert":
            return False
        types = (self._spec(op.inputs[0]).dtype, op.outputs[0].dtype)
        return types == ("float16", "float32") or types[0] == types[1]

    def _spec(self, name: str) -> TensorSpec:
        op, _, index = self._now(name).partition(":")
        return self._ops[op].outputs[int(index or 0)]

    def _summed(self, chain: Sequence[Op], axes: Sequence[int]) -> list[Op]:
        """Returns the chain's operations, the first first, for the sum over axes of its result."""
        views = []
        for op in chain[:-1]:
            if op.kind == "convert":
                continue
            shape = _without(op.outputs[0].shape, axes)
            moved = _moved_before(op, axes, self._spec(op.inputs[0]).shape)
            if moved is None:
                return []
            axes, attributes = moved
            views.append((op, shape, attributes))
        dot = _summed_dot(chain[-1], axes)
        if dot is None:
            return []
        made, dtype = [dot], dot.outputs[0].dtype
        for op, shape, attributes in reversed(views):
            outputs = (TensorSpec(shape, dtype),)
            made.append(
                replace(op, inputs=(made[-1].name,), outputs=outputs, attributes=attributes)
            )
        return made

    def _converted_back(self, reduce: Op, product: Op) -> Op:
        """Returns what converts a sum to the product's own type, or the sum if nothing does."""
        reader = self._readers.get(reduce.name)
        if reader is None or reader.kind != "convert" or self._num_readers[reduce.name] > 1:
            return reduce
        return reader if reader.outputs[0].dtype == product.outputs[0].dtype else reduce

    def graph(self) -> Graph:
        if not self._renamed:
            return self._graph
        ops = [
            replace(
                self._ops[op.name],
                inputs=tuple(map(self._now, self._ops[op.name].inputs)),
                after=tuple(map(self._now, op.after)),
            )
            for op in self._graph.ops
        ]
        results = tuple(map(self._now, self._graph.results))
        return replace(self._graph, ops=without_unused(ops, self._unused, results), results=results)


def _without(values: Sequence[int], positions: Collection[int]) -> tuple[int, ...]:
    return tuple(value for k, value in enumerate(values) if k not in positions)


def _summed_dot(dot: Op, axes: Collection[int]) -> Op | None:
    """Returns the product that sums over those dimensions of its batch, if it has them."""
    attributes = dict(dot.attributes)
    # Results have the dimensions of the batch first, as they are listed.
    if any(axis >= len(attributes["lhs_batch_dimensions"]) for axis in axes):
        return None
    for side in ("lhs", "rhs"):
        batch, contracting = f"{side}_batch_dimensions", f"{side}_contracting_dimensions"
        summed = tuple(attributes[batch][axis] for axis in sorted(axes))
        attributes[contracting] = (*summed, *attributes[contracting])
        attributes[batch] = _without(attributes[batch], axes)
    (spec,) = dot.outputs
    outputs = (TensorSpec(_without(spec.shape, axes), spec.dtype),)
    return replace(dot, outputs=outputs, attributes=attributes)


_VIEWS = frozenset({"copy", "reshape", "transpose"})


def _moved_before(
    view: Op, axes: Sequence[int], shape: tuple[int, ...]
) -> tuple[list[int], Mapping[str, Any]] | None:
    """Returns which axes of a view's operand are those of its result, and its attributes then.

    Where these hold a part of such an axis, there are none.
    """
    if view.kind == "copy":
        return list(axes), view.attributes
    if view.kind == "transpose":
        order = view.attributes["dimensions"]
        before = [order[axis] for axis in axes]
        kept = [axis for axis in order if axis not in before]
        moved = tuple(sorted(kept).index(axis) for axis in kept)
        return before, {**view.attributes, "dimensions": moved}
    found: list[int] = []
    for ins, outs in _same_elements(shape, view.outputs[0].shape):
        summed = {axis in axes for axis in outs}
        if summed == {True, False}:
            return None
        found += ins if summed == {True} else ()
    return found, view.attributes


def _same_elements(
    before: Sequence[int], after: Sequence[int]
) -> Iterator[tuple[list[int], list[int]]]:
    """Yields the axes of both shapes that hold the same elements, as few at a time as can be."""
    ins, outs = _ends(before), _ends(after)
    start = 1
    for end in sorted({*ins.values()} & {*outs.values()}):
        yield (
            [axis for axis in ins if start < ins[axis] <= end],
            [axis for axis in outs if start < outs[axis] <= end],
        )
        start = end


def _ends(shape: Sequence[int]) -> dict[int, int]:
    """Returns the product of sizes up to each axis that has more than one element."""
    ends = dict(enumerate(itertools.accumulate(shape, operator.mul)))
    return {axis: end for axis, end in ends.items() if shape[axis] != 1}
