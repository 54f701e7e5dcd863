"""Finds what a step may compute out of turn, and what has to wait for the step before.

A training step of a model with dropout, whose weights are updated later, consists of

|    opening      draws seeds, which advances a generator      of all steps in turn, first
|    the rest     masks, forward and backward pass             of all steps, in any order
|    sequential   updates metrics and moving averages          of all steps in turn, last
"""

from collections.abc import Collection

from ipu_keras.ir import Graph, Op, TensorSpec


def opening_ops(graph: Graph, heavy: Collection[str]) -> frozenset[str]:
    """Returns the operations that all steps can do in turn before they do anything else.

    They write what nothing `heavy` decides, such as the states of random generators. A layer's
    dropout masks depend on the step before; but if the seeds are drawn first, all else is free.
    There are none if a result of theirs cannot be kept for all steps.
    """
    ops = {op.name: op for op in graph.ops}
    touching: dict[str, set[str]] = {}
    written = set()
    for op in graph.ops:
        for handle in _variables_of(op, ops):
            touching.setdefault(handle, set()).add(op.name)
            if graph.of_op(op).writes_state:
                written.add(handle)
    closures = {handle: _with_sources(touching[handle], ops) for handle in written}
    waiting = {handle for handle in written if closures[handle] & set(heavy)}
    # A variable waits if what touches it needs anything heavy, or needs a variable that waits.
    while True:
        last = {name for handle in waiting for name in touching[handle]}
        found = {handle for handle in written - waiting if closures[handle] & last}
        if not found:
            break
        waiting |= found
    opening = {name for handle in written - waiting for name in closures[handle]}
    kept = (
        ops[source].outputs[result]
        for op in graph.ops
        if op.name not in opening
        for source, result in _sources(op)
        if source in opening
    )
    return frozenset(opening) if all(map(_can_be_kept, kept)) else frozenset()


def sequential_ops(graph: Graph, opening: Collection[str] = ()) -> frozenset[str]:
    """Returns the operations of a step that write, and those that depend on what it writes.

    All others give the same results in whichever order steps run. In an evaluation step these
    are the model, whose weights are only read, but not the metrics. What a sequential operation
    takes from another one has to be kept for all steps; if that is impossible, the other one
    counts as sequential too.
    """
    ops = {op.name: op for op in graph.ops}
    seeds = {op.name for op in graph.ops if graph.of_op(op).writes_state} - set(opening)
    written = _handles_of(seeds, ops)
    # A handle itself never changes, and every part of a step has it.
    handles = {name for name in written if not ops[name].inputs}
    dependents = _dependents(graph)
    while True:
        found = _reached(seeds | written, dependents) - handles
        bound = {
            source
            for name in found
            for source, result in _sources(ops[name])
            if source not in found and not _can_be_kept(ops[source].outputs[result])
        }
        if not bound:
            return frozenset(found)
        seeds |= bound


def _variables_of(op: Op, ops: dict[str, Op]) -> set[str]:
    """Returns the handles, as the function is given them, of the variables that an op uses."""
    return {name for name in _handles_of({op.name}, ops) if not ops[name].inputs}


def _with_sources(names: Collection[str], ops: dict[str, Op]) -> set[str]:
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend([source for source, _ in _sources(ops[name])])
            pending.extend(ops[name].after)
    return found


def _handles_of(names: set[str], ops: dict[str, Op]) -> set[str]:
    """Returns what gave operations the handles of their variables, back to the first."""
    found: set[str] = set()
    pending = list(names)
    while pending:
        for source, result in _sources(ops[pending.pop()]):
            if ops[source].outputs[result].dtype == "resource" and source not in found:
                found.add(source)
                pending.append(source)
    return found


def _dependents(graph: Graph) -> dict[str, list[str]]:
    """Returns for each operation those that take its results or must run after it."""
    dependents: dict[str, list[str]] = {}
    for op in graph.ops:
        for source in (*(name for name, _ in _sources(op)), *op.after):
            dependents.setdefault(source, []).append(op.name)
    return dependents


def _reached(start: set[str], dependents: dict[str, list[str]]) -> set[str]:
    # One pass over the operations is not enough: TensorFlow adds the edges that order
    # operations later, and also to earlier operations.
    reached: set[str] = set()
    pending = list(start)
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending.extend(dependents.get(name, ()))
    return reached


def _can_be_kept(tensor: TensorSpec) -> bool:
    return tensor.dtype == "resource" or (
        tensor.dtype != "variant" and min(tensor.shape, default=1) > 0
    )


def _sources(op: Op) -> list[tuple[str, int]]:
    """Returns the results that an operation takes: an operation's name and which of its results."""
    parts = (name.partition(":") for name in op.inputs)
    return [(name, int(result or 0)) for name, _, result in parts]
