"""Finds and makes constants of one number, and leaves out constants that nothing needs.

A rewrite that looks through a constant often is the last to use it.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from ipu_keras.ir import Op, TensorSpec

# Operations that a number may go through between its constant and its use.
_SAME_NUMBER = frozenset({"broadcast", "convert", "reshape"})

# Operations by which values of one number are made.
NUMBER_KINDS = _SAME_NUMBER | {"constant", "multiply"}


def numbers_of(ops: Iterable[Op]) -> dict[str, float]:
    """Returns the one number of each value whose elements are all that constant."""
    numbers: dict[str, float] = {}
    for op in ops:
        if op.kind == "constant":
            value = None if op.outputs[0].shape else op.attributes.get("value")
            if isinstance(value, int | float):
                numbers[op.name] = value
        elif op.kind in _SAME_NUMBER and op.inputs[0] in numbers:
            numbers[op.name] = numbers[op.inputs[0]]
        # XLA folds products of constants, such as those of sizes of axes that TensorFlow
        # multiplies.
        elif op.kind == "multiply" and all(name in numbers for name in op.inputs):
            numbers[op.name] = math.prod(numbers[name] for name in op.inputs)
    return numbers


def number_like(op: Op, name: str, value: float) -> list[Op]:
    """Returns the operations that make a value of one number, alike the result of `op`.

    The operation's layer and place in the step are kept.
    """
    (spec,) = op.outputs
    constant = replace(
        op,
        name=f"{op.name}/{name}",
        kind="constant",
        outputs=(TensorSpec((), spec.dtype),),
        inputs=(),
        attributes={"value": value},
        stateful=False,
    )
    if not spec.shape:
        return [constant]
    everywhere = replace(
        constant,
        name=f"{constant.name}s",
        kind="broadcast",
        outputs=op.outputs,
        inputs=(constant.name,),
        attributes={"dimensions": ()},
    )
    return [constant, everywhere]


def sources_of(
    names: Iterable[str], made_by: Mapping[str, Op], kinds: Collection[str]
) -> frozenset[str]:
    """Returns what some values are made by, as far back as operations are of certain kinds."""
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
    """Leaves out those operations among `names` that nothing uses."""
    used, kept = set(results), []
    for op in reversed(list(ops)):
        if op.name in used or op.name not in names:
            used.update(op.inputs)
            kept.append(op)
    return tuple(reversed(kept))
