"""Operations that a rewritten graph needs no more."""

from collections.abc import Collection, Iterable, Mapping

from ipu_keras.ir import Op


def sources_of(
    names: Iterable[str], made_by: Mapping[str, Op], kinds: Collection[str]
) -> frozenset[str]:
    """What some values are made by, as far back as operations are of certain kinds.

    Args:
        names: Of the values.
        made_by: Operations with one result, by name.
        kinds: Of operations that are followed.

    Returns:
        Names of operations.
    """
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        op = made_by.get(name)
        if op is not None and op.kind in kinds and name not in found:
            found.add(name)
            pending.extend(op.inputs)
    return frozenset(found)


def without_unused(
    ops: Iterable[Op], names: Collection[str], results: Iterable[str]
) -> tuple[Op, ...]:
    """Leaves out which of some operations nothing uses.

    Args:
        ops: Each after those whose results it takes.
        names: Of operations that may be left out.
        results: What the graph returns.
    """
    used, kept = set(results), []
    for op in reversed(list(ops)):
        if op.name in used or op.name not in names:
            used.update(op.inputs)
            kept.append(op)
    return tuple(reversed(kept))
