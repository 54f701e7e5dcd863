"""Constants of a graph: those of one number found and made, and all left out that nothing needs.

A rewrite that looks through a constant often is the last to use it.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from ipu_keras.ir import Op, TensorSpec

# What a number may go through between its constant and its use.
_SAME_NUMBER = frozenset({"broadcast", "convert", "reshape"})

# What values of one number are made by.
NUMBER_KINDS = _SAME_NUMBER | {"constant", "multiply"}


def numbers_of(ops: Iterable[Op]) -> dict[str, float]:
    """The one number that all elements of a value are, of each value that is such a constant.

    So is a product of constants, which XLA folds: TensorFlow multiplies the sizes of axes.

    Args:
        ops: Of a graph, each after those whose results it takes.

    Returns:
        By the name of the operation that makes the value.
    """
    numbers: dict[str, float] = {}
    for op in ops:
        if op.kind == "constant":
            value = None if op.outputs[0].shape else op.attributes.get("value")
            if isinstance(value, int | float):
                numbers[op.name] = value
        elif op.kind in _SAME_NUMBER and op.inputs[0] in numbers:
            numbers[op.name] = numbers[op.inputs[0]]
        elif op.kind == "multiply" and all(name in numbers for name in op.inputs):
            numbers[op.name] = math.prod(numbers[name] for name in op.inputs)
    return numbers


def number_like(op: Op, name: str, value: float) -> list[Op]:
    """What makes a value of one number, of the shape and dtype of what an operation makes.

    Args:
        op: With one result; it gives the layer and the place in the step too.
        name: Follows the operation's in that of the constant.
        value: The number.

    Returns:
        The operations, the last with the value as its result.
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
