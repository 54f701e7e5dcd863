"""Finds which compute sets have code of their own, and which run that of others.

A user's outlined function is traced once for each call, in a scope that says so. On an IPU all
calls run the same vertices and the same part of the control program. So do equal products,
convolutions and normalizations without anybody asking: TensorFlow for IPUs makes a function of
each (OutlineInstructions; before SDK 3.0, caches of its lowering).
"""

import re
from collections.abc import Hashable, Sequence

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.ir import NOT_LOWERED
from ipu_keras.program import OUTLINED_SCOPE

# TensorFlow numbers the scopes of a name that is entered several times.
_SCOPE = re.compile(rf"{re.escape(OUTLINED_SCOPE)}(.+?)(?:_\d+)*")

# Scopes that are around the operations of a gradient.
_GRADIENTS = re.compile(r"gradient_tape|gradients(?:_\d+)?")


# Families of which equal operations are one function. Elementwise operations, reductions, softmax
# and lookups are not among those that TensorFlow for IPUs looks for.
_CACHED = frozenset(
    {"convolution", "dot", "GroupNorm", "LayerNorm", "norm", "PopnnGRU", "PopnnLSTM"}
)


def with_own_code(compute_sets: Sequence[ComputeSet], costs: Sequence[Hashable]) -> frozenset[str]:
    """Returns the names of the compute sets that have code of their own.

    - Products, convolutions and normalizations share code where they agree in shapes,
      operations, cost (which says their plan), IPU, and in whether they are of a gradient. What
      such a function takes is copied to where its first call had it; a product's plan counts how
      its operands arrive, wherever they lie.
    - Calls of an outlined function share code where compute sets agree in name within the
      function, shapes, operations and IPU. A function that draws random numbers, writes variables
      or runs on the host is inlined, so each of its calls has own code.
    """
    inlined = {_call(one.name) for one in compute_sets if _has_effects(one)}
    own: dict[object, str] = {}
    for one, cost in zip(compute_sets, costs, strict=True):
        call = _call(one.name)
        code: object = one.name
        if one.family in _CACHED:
            code = _function(one, cost)
        elif call is not None and call not in inlined:
            code = _code(one)
        own.setdefault(code, one.name)
    return frozenset(own.values())


def _function(one: ComputeSet, cost: Hashable) -> object:
    """Returns what is equal of operations that are one function."""
    # The planner is told whether a product is of the forward pass; what is computed again is.
    is_gradient = one.backward and not one.recomputed
    return _operations(one), one.ipu, is_gradient, cost


def _operations(one: ComputeSet) -> object:
    kinds = tuple((op.kind, repr(op.attributes)) for op in one.ops)
    body = () if one.body is None else tuple(map(_operations, one.body.compute_sets))
    return kinds, one.operands, tuple(value.spec for value in one.writes), body


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
