"""Finds which compute sets have code of their own, and which run that of others.

A user's outlined function is traced once for each call, in a scope that says so. On an IPU all
calls run the same vertices and the same part of the control program. So do equal convolutions,
matrix products and normalizations. That operands are copied to where the first call has them is
not counted.
"""

import re
from collections.abc import Sequence
from itertools import zip_longest

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.ir import NOT_LOWERED
from ipu_keras.program import OUTLINED_SCOPE

# TensorFlow numbers the scopes of a name that is entered several times.
_SCOPE = re.compile(rf"{re.escape(OUTLINED_SCOPE)}(.+?)(?:_\d+)*")

# Scopes that are around the operations of a gradient.
_GRADIENTS = re.compile(r"gradient_tape|gradients(?:_\d+)?")

# Families of which the compiler for IPUs makes each operation a function, which it looks up first.
_LOOKED_UP = frozenset({"convolution", "dot", "norm"})


def with_own_code(
    compute_sets: Sequence[ComputeSet], plans: Sequence[object] = ()
) -> frozenset[str]:
    """Returns the names of the compute sets that have code of their own.

    Convolutions, products and normalizations share code where shapes, attributes, IPU and plan
    agree. Calls of an outlined function share that of all compute sets that agree in name within
    the function, shapes, operations and IPU. A function that draws random numbers, writes
    variables or runs on the host is inlined, so each of its calls has own code.

    Args:
        plans: What else the code of each compute set follows from; by default nothing.
    """
    inlined = {_call(one.name) for one in compute_sets if _has_effects(one)}
    own: dict[object, str] = {}
    for one, plan in zip_longest(compute_sets, plans):
        call = _call(one.name)
        is_shared = call is not None and call not in inlined
        code = _code(one) if is_shared else one.name
        own.setdefault((*_operation(one), plan) if one.family in _LOOKED_UP else code, one.name)
    return frozenset(own.values())


def _operation(one: ComputeSet) -> tuple[object, ...]:
    kinds = tuple(op.kind for op in one.ops)
    attributes = sorted((name, repr(value)) for name, value in one.ops[-1].attributes.items())
    outputs = tuple(value.spec for value in one.writes)
    return kinds, tuple(attributes), one.operands, outputs, one.ipu


def _call(name: str) -> str | None:
    """Returns the scope of the outlined function's call that a name lies in, else `None`."""
    # TensorFlow wraps the scopes of a gradient in its own, so without these the gradient's
    # operations would look like a call of another function.
    parts = [part for part in name.split("/") if not _GRADIENTS.fullmatch(part)]
    scopes = [position for position, part in enumerate(parts) if _SCOPE.fullmatch(part)]
    return "/".join(parts[: scopes[0] + 1]) if scopes else None


def _has_effects(one: ComputeSet) -> bool:
    return one.family == "random" or any(
        op.stateful or NOT_LOWERED in op.attributes for op in one.ops
    )


def _code(one: ComputeSet) -> object:
    parts = one.name.split("/")
    start = next(position for position, part in enumerate(parts) if _SCOPE.fullmatch(part))
    within = tuple(_without_number(part) for part in parts[start:])
    kinds = tuple(op.kind for op in one.ops)
    outputs = tuple(value.spec for value in one.writes)
    return within, kinds, one.operands, outputs, one.ipu, one.backward, one.recomputed


def _without_number(part: str) -> str:
    match = _SCOPE.fullmatch(part)
    return part if match is None else match[1]
