"""Values of one number everywhere: found in a graph, and made for one."""

import math
from collections.abc import Iterable
from dataclasses import replace

from ipu_keras.ir import Op
from ipu_keras.program import TensorSpec

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
