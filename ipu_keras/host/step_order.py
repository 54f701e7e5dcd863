"""What a step may compute out of turn, and what has to wait for the step before."""

from collections.abc import Collection

from ipu_keras.ir import Graph, Op, TensorSpec


def opening_ops(graph: Graph, heavy: Collection[str]) -> frozenset[str]:
    """The operations that all steps can do in turn before they do anything else.

    They write what nothing heavy decides, such as the states of random generators: the masks
    of a layer's dropout depend on the step before, but the seeds alone can be drawn first.

    Args:
        graph: One step, in TensorFlow's words.
        heavy: Names of operations that should not run in turn.

    Returns:
        Their names; empty if a result of theirs cannot be kept for all steps.
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
    """The operations of a step that write, and those that depend on what it writes.

    All others give the same results in whichever order steps run. In an
    evaluation step those are the model, whose weights are only read, but not
    the metrics. What a sequential operation takes from another one can be kept
    for all steps: an operation for whose result that is impossible counts as
    sequential too.

    Args:
        graph: One step, in TensorFlow's words.
        opening: Names of operations that all steps have done before.

    Returns:
        Names of the operations that need the steps before to be done.
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
    """The handles, as the function is given them, of the variables that an operation has."""
    return {name for name in _handles_of({op.name}, ops) if not ops[name].inputs}


def _with_sources(names: Collection[str], ops: dict[str, Op]) -> set[str]:
    """Operations with all that they depend on."""
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
    """What gave operations the handles of their variables, up to where those come from."""
    found: set[str] = set()
    pending = list(names)
    while pending:
        for source, result in _sources(ops[pending.pop()]):
            if ops[source].outputs[result].dtype == "resource" and source not in found:
                found.add(source)
                pending.append(source)
    return found


def _dependents(graph: Graph) -> dict[str, list[str]]:
    """By operation, those that take its results or must run after it."""
    dependents: dict[str, list[str]] = {}
    for op in graph.ops:
        for source in (*(name for name, _ in _sources(op)), *op.after):
            dependents.setdefault(source, []).append(op.name)
    return dependents


def _reached(start: set[str], dependents: dict[str, list[str]]) -> set[str]:
    # Not in one pass over the operations: TensorFlow adds the edges that order
    # operations later, also to earlier ones.
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
    """The results that it takes: an operation's name and which of its results."""
    parts = (name.partition(":") for name in op.inputs)
    return [(name, int(result or 0)) for name, _, result in parts]
