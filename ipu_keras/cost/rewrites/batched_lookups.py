"""Rewrites batched gathers and scatters in XLA's own form of them.

XLA has attributes for a table in each element of a batch, but TensorFlow does not use them. A
tile that has one of these tables would not know which lookups are in it.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ipu_keras.cost.rewrites.constants import numbers_of, sources_of, without_unused
from ipu_keras.ir import Graph, Op, TensorSpec

# TensorFlow writes one of two forms, for tables of (batch, rows, columns) and indices of (batch,
# lookups). Both become a gather in (batch, rows, columns) with start_index_map (1,) and
# operand_batching_dims (0,), whose indices are the bare ones. Scatters are alike.
#
#   Index vectors that name the element of the batch too: gathers, and gradients of `tf.gather_nd`.
#
#     iota ─ broadcast ─┐
#             indices ──┴─ concatenate ─ gather in (batch, rows, columns), start_index_map (0, 1)
#
#   One long table of all rows: gradients of `tf.gather`, and much code by hand.
#
#     iota ─ multiply rows ─┐
#                 indices ──┴─ add ─ gather in (batch * rows, columns), start_index_map (0,)

# Counters of batches go through these operations, and are dropped with them.
_SAME_NUMBERS = frozenset({"broadcast", "convert", "reshape"})
_COUNTING = _SAME_NUMBERS | {"add", "concatenate", "constant", "iota", "multiply"}


@dataclass(frozen=True)
class _Terms:
    """What XLA calls the same attributes of gathers and scatters."""

    looked_up: str
    dropped: str
    window: str
    table_batching: str
    indices_batching: str


_TERMS: Mapping[str, _Terms] = {
    "gather": _Terms(
        "start_index_map",
        "collapsed_slice_dims",
        "offset_dims",
        "operand_batching_dims",
        "start_indices_batching_dims",
    ),
    "scatter": _Terms(
        "scatter_dims_to_operand_dims",
        "inserted_window_dims",
        "update_window_dims",
        "input_batching_dims",
        "scatter_indices_batching_dims",
    ),
}


def num_batches(op: Op, table: TensorSpec) -> int:
    """Returns in how many tables, one for each element of the batch, an operation looks rows up."""
    dims = op.attributes.get(_TERMS[op.kind].table_batching, ())
    return math.prod(table.shape[dim] for dim in dims)


def num_lookups(op: Op, indices: TensorSpec) -> int:
    """Returns how many rows an operation looks up: one for each index vector."""
    axis = op.attributes.get("index_vector_dim", len(indices.shape))
    return math.prod(size for k, size in enumerate(indices.shape) if k != axis)


def with_batched_lookups(graph: Graph) -> Graph:
    """Gives batched gathers and scatters batching dimensions, and drops what counted batches."""
    functions = {name: with_batched_lookups(body) for name, body in graph.functions.items()}
    if not any(op.kind in _TERMS for op in graph.ops):
        return replace(graph, functions=functions)
    # Numbers of rows are taken to lie within the table of their element of the batch, as those
    # of TensorFlow's gradients do.
    values = _Producers(graph.ops)
    ops: list[Op] = []
    renamed: dict[str, str] = {}
    indices: list[str] = []
    for op in graph.ops:
        if any(name in renamed for name in op.inputs):
            op = replace(op, inputs=tuple(renamed.get(name, name) for name in op.inputs))
        made = _batched(op, values) if op.kind in _TERMS else ()
        if made:
            values.add(made)
            indices.append(op.inputs[1])
            if made[-1].name != op.name:
                renamed[op.name] = made[-1].name
        ops += made or (op,)
    results = tuple(renamed.get(name, name) for name in graph.results)
    unused = sources_of(indices, values.made_by, _COUNTING)
    ops = list(without_unused(ops, unused, results))
    return replace(graph, ops=tuple(ops), results=results, functions=functions)


class _Producers:
    """Knows which operation makes a value, and its shape."""

    def __init__(self, ops: Collection[Op]) -> None:
        self._numbers = numbers_of(ops)
        self.made_by: dict[str, Op] = {}
        self._specs: dict[str, TensorSpec] = {}
        self.add(ops)

    def add(self, ops: Iterable[Op]) -> None:
        for op in ops:
            if len(op.outputs) == 1:
                self.made_by[op.name] = op
            self._specs.update((f"{op.name}:{k}", spec) for k, spec in enumerate(op.outputs))
            self._specs.update((op.name, spec) for spec in op.outputs[:1])

    def shape(self, name: str) -> tuple[int, ...]:
        return self._specs[name].shape

    def progression(self, name: str) -> tuple[int, int] | None:
        """Returns the axis along which a value grows from 0 by a constant step, and the step."""
        op = self.made_by.get(name)
        if op is None:
            return None
        if op.kind == "iota":
            return op.attributes["dimensions"][0], 1
        # The reader of XLA's module marks constants that count up; a zero counts with a step of
        # 0, as the only element of a batch of one does.
        if op.kind == "constant":
            return op.attributes.get("progression", (0, 0) if _is_zero(op) else None)
        if op.kind == "multiply":
            return self._multiplied(op)
        if op.kind not in _SAME_NUMBERS:
            return None
        found = self.progression(op.inputs[0])
        if found is None or found[1] == 0 or op.kind == "convert":
            return found
        axis, step = found
        if op.kind == "broadcast":
            return op.attributes["dimensions"][axis], step
        return self._reshaped(op, axis, step)

    def _multiplied(self, op: Op) -> tuple[int, int] | None:
        for counted, factor in (op.inputs, op.inputs[::-1]):
            number = self._numbers.get(factor)
            found = None if number is None else self.progression(counted)
            if number is not None and found is not None:
                return found[0], found[1] * int(number)
        return None

    def _reshaped(self, op: Op, axis: int, step: int) -> tuple[int, int] | None:
        """Follows a reshape that adds and removes axes of one element only."""
        before, after = self.shape(op.inputs[0]), op.outputs[0].shape
        wide = [k for k, size in enumerate(after) if size > 1]
        if [after[k] for k in wide] != [size for size in before if size > 1]:
            return None
        return wide[sum(size > 1 for size in before[:axis])], step


def _is_zero(constant: Op) -> bool:
    return constant.attributes.get("value") == 0


def _batched(op: Op, values: _Producers) -> tuple[Op, ...]:
    """Returns what an operation becomes, the last with its result; nothing if it is not batched."""
    terms = _TERMS[op.kind]
    if len(op.outputs) != 1 or op.attributes.get(terms.table_batching):
        return ()
    if "index_vector_dim" not in op.attributes:
        return ()
    return _without_counters(op, terms, values) or _of_short_tables(op, terms, values)


def _without_counters(op: Op, terms: _Terms, values: _Producers) -> tuple[Op, ...]:
    """Drops components that count up from index vectors."""
    axis, dims = op.attributes["index_vector_dim"], op.attributes[terms.looked_up]
    vectors = values.made_by.get(op.inputs[1])
    if vectors is None or vectors.kind != "concatenate":
        return ()
    if vectors.attributes["dimensions"] != (axis,):
        return ()
    kept: list[str] = []
    batches: dict[int, int] = {}  # dimensions of indices by those of the table
    first = 0
    for name in vectors.inputs:
        shape = values.shape(name)
        dim = dims[first]
        counted, step = values.progression(name) or (axis, 0)
        is_batch = step == 1 and counted not in (axis, *batches.values())
        is_batch = is_batch and shape[counted] == values.shape(op.inputs[0])[dim]
        if is_batch and shape[axis] == 1 and dim in op.attributes[terms.dropped]:
            batches[dim] = counted
        else:
            kept.append(name)
        first += shape[axis]
    if not batches or not kept:
        return ()
    joined, indices = _joined(op, vectors, kept, values)
    batching = tuple(sorted(batches))
    attributes = {
        **op.attributes,
        terms.looked_up: tuple(dim for dim in dims if dim not in batches),
        terms.dropped: tuple(dim for dim in op.attributes[terms.dropped] if dim not in batches),
        terms.table_batching: batching,
        terms.indices_batching: tuple(batches[dim] for dim in batching),
    }
    inputs = (op.inputs[0], indices, *op.inputs[2:])
    return (*joined, replace(op, inputs=inputs, attributes=attributes))


def _joined(
    op: Op, vectors: Op, kept: Sequence[str], values: _Producers
) -> tuple[tuple[Op, ...], str]:
    """Returns the operations that join the components that are left, and the vectors' name."""
    if len(kept) == 1:
        return (), kept[0]
    (axis,) = vectors.attributes["dimensions"]
    (spec,) = vectors.outputs
    shape = list(spec.shape)
    shape[axis] = sum(values.shape(name)[axis] for name in kept)
    outputs = (TensorSpec(tuple(shape), spec.dtype),)
    joined = replace(vectors, name=f"{op.name}/indices", inputs=tuple(kept), outputs=outputs)
    return (joined,), joined.name


def _of_short_tables(op: Op, terms: _Terms, values: _Producers) -> tuple[Op, ...]:
    """Makes one long table the tables of the elements of the batch."""
    long, dropped = values.shape(op.inputs[0]), op.attributes[terms.dropped]
    if op.attributes[terms.looked_up] != (0,) or dropped != (0,):
        return ()
    indices, steps = _offsets(op.inputs[1], values)
    shape = values.shape(indices)
    num = max(steps, default=-1) + 1
    size = math.prod(shape[:num])
    if not steps or long[0] % size or not _are_rows(steps, shape[:num], long[0] // size):
        return ()
    flat = values.shape(op.inputs[1])
    rank = len(flat) - (op.attributes["index_vector_dim"] < len(flat))
    window = op.attributes[terms.window]
    if window != tuple(range(rank, rank + len(window))):
        return ()
    batching = tuple(range(num))
    attributes: dict[str, Any] = {
        **op.attributes,
        "index_vector_dim": len(shape),
        terms.looked_up: (num,),
        terms.dropped: (num,),
        terms.window: tuple(range(len(shape), len(shape) + len(window))),
        terms.table_batching: batching,
        terms.indices_batching: batching,
    }
    if op.kind == "gather":
        attributes["slice_sizes"] = (1,) * num + op.attributes["slice_sizes"]
    (spec,) = op.outputs
    tables = (*shape[:num], long[0] // size, *long[1:])
    rows = (*shape, *values.shape(op.inputs[-1])[rank:])
    made = [_reshape(op, "tables", op.inputs[0], TensorSpec(tables, spec.dtype))]
    result = (*shape, *spec.shape[rank:])
    if op.kind == "scatter":
        made.append(_reshape(op, "updates", op.inputs[2], TensorSpec(rows, spec.dtype)))
        result = tables
    inputs = (made[0].name, indices, *(one.name for one in made[1:]))
    outputs = (TensorSpec(result, spec.dtype),)
    made.append(replace(op, inputs=inputs, outputs=outputs, attributes=attributes))
    return (*made, _reshape(op, "flat", op.name, spec))


def _offsets(name: str, values: _Producers) -> tuple[str, dict[int, int]]:
    """Returns what progressions are added to, and their steps by their axes."""
    op = values.made_by.get(name)
    while op is not None and op.kind == "reshape":
        name = op.inputs[0]
        op = values.made_by.get(name)
    steps: dict[int, int] = {}
    while op is not None and op.kind == "add":
        counting = [values.progression(term) for term in op.inputs]
        if counting.count(None) != 1:
            break
        name = op.inputs[counting.index(None)]
        axis, step = next(found for found in counting if found is not None)
        if step:
            # Two of one axis are no batch: it has no step any more that a table could have.
            steps[axis] = 0 if axis in steps else step
        op = values.made_by.get(name)
    return name, steps


def _are_rows(steps: Mapping[int, int], batch: Sequence[int], num_rows: int) -> bool:
    """Whether steps are the distances of tables of that many rows, one behind the other."""
    for axis in reversed(range(len(batch))):
        if batch[axis] > 1 and steps.get(axis) != num_rows:
            return False
        num_rows *= batch[axis]
    return True


def _reshape(op: Op, name: str, source: str, spec: TensorSpec) -> Op:
    return replace(
        op,
        name=f"{op.name}/{name}",
        kind="reshape",
        inputs=(source,),
        outputs=(spec,),
        attributes={},
        stateful=False,
    )
