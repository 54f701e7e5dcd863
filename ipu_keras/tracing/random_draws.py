"""Random draws as one operation each, as the hardware has them.

XLA has no random number generator of the IPU's kind: it spells a draw out as
hundreds of integer instructions. What they compute on an IPU is one vertex per
tile, so they are one operation of kind "random" here.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ipu_keras.ir import Op, num_elements
from ipu_keras.tracing.contraction import Group, contract, cyclic_groups
from ipu_keras.tracing.layers import Place

RANDOM = "random"

# The scopes of TensorFlow's sampling functions.
_SAMPLER = re.compile(
    r"(?:(?:stateless|stateful|parameterized)_)?"
    r"(?:(?:random|truncated)_)?"
    r"(?:uniform|normal|binomial|categorical|gamma|multinomial|poisson|shuffle)"
    r"(?:_full_int)?(?:_\d+)?"
)
# TensorFlow's operations that draw, and those that derive the state they draw from.
_KIND = re.compile(
    r"(?:Stateless|Stateful)?(?:Random|TruncatedNormal|ParameterizedTruncatedNormal|"
    r"StandardNormal|Uniform(?:FullInt|Int)?$|Multinomial).*|Rng.*"
)
_GENERATORS = frozenset({"rng", "rng-bit-generator", "rng-get-and-update-state"})
_DISTRIBUTIONS = (
    "truncated_normal",
    "normal",
    "uniform",
    "binomial",
    "categorical",
    "gamma",
    "multinomial",
    "poisson",
    "shuffle",
)


@dataclass(frozen=True)
class Origin:
    """What the trace says of where an operation comes from.

    Args:
        path: Of the TensorFlow operation; empty if there is none.
        kind: Type of the TensorFlow operation.
    """

    path: str = ""
    kind: str = ""


def draw_of(origin: Origin) -> str:
    """The scope of the random draw that an operation is a part of, or "".

    Example:
        >>> draw_of(Origin("model/dropout/stateless_random_uniform/mul", "Mul"))
        'model/dropout/stateless_random_uniform'
    """
    parts = origin.path.split("/")
    for index, part in enumerate(parts):
        if _SAMPLER.fullmatch(part):
            return "/".join(parts[: index + 1])
    return origin.path if draws(origin) else ""


def draws(origin: Origin) -> bool:
    """Whether an operation is one that draws, or makes the state that another draws from.

    Example:
        >>> draws(Origin("noise/random_normal/RandomStandardNormal", "RandomStandardNormal"))
        True
        >>> draws(Origin("noise/random_normal/mul", "Mul"))
        False
    """
    return _KIND.fullmatch(origin.kind) is not None


def with_random_draws(
    ops: Sequence[Op],
    results: Sequence[str],
    origins: Mapping[str, Origin],
    without: Collection[str] = frozenset(),
) -> tuple[tuple[Op, ...], tuple[str, ...]]:
    """Replaces the operations of each random draw by one of kind "random".

    Its inputs are what the draw took from outside: a seed. Its outputs are what
    is used outside. A draw that other operations take part in stays as it is.

    Args:
        ops: Of a graph, each after those whose results it takes.
        results: What the graph returns.
        origins: By the names of the operations.
        without: Scopes of draws of which something was cut out: their other operations of
            TensorFlow's that draw are draws of their own.

    Returns:
        The operations, in such an order again, and the results.
    """
    draws = _draws(ops, origins, without)
    while draws:
        members = {name: draw for draw, names in draws.items() for name in names}
        cyclic = cyclic_groups(ops, members)
        if not cyclic:
            return contract(ops, results, members, _draw)
        draws = {draw: names for draw, names in draws.items() if draw not in cyclic}
    return tuple(ops), tuple(results)


def _draws(
    ops: Sequence[Op], origins: Mapping[str, Origin], without: Collection[str]
) -> dict[str, list[str]]:
    """Names of operations by the scope of their draw."""
    scopes = {origin: _scope(origin, without) for origin in set(origins.values()) if origin.path}
    found: dict[str, list[str]] = {}
    drawing = set()
    for op in ops:
        origin = origins[op.name]
        draw = scopes.get(origin, "")
        if draw and op.kind != "parameter":
            found.setdefault(draw, []).append(op.name)
            if op.kind in _GENERATORS or draws(origin):
                drawing.add(draw)
    # A layer may be called "normal" and draw nothing.
    return {draw: names for draw, names in found.items() if draw in drawing}


def _scope(origin: Origin, without: Collection[str]) -> str:
    draw = draw_of(origin)
    if draw not in without:
        return draw
    return origin.path if _KIND.fullmatch(origin.kind) else ""


def _attributes(group: Group) -> dict[str, Any]:
    """What a draw is of; of a categorical one, how many random numbers it takes."""
    distribution = _distribution(group.name)
    found: dict[str, Any] = {"distribution": distribution}
    if distribution in ("categorical", "multinomial"):
        # Each of them becomes noise, with a logarithm, before the largest counts.
        logs = [op.outputs[0] for op in group.ops if op.kind == "log"]
        found["num_drawn"] = max(map(num_elements, logs), default=0)
    return found


def _draw(group: Group) -> Op:
    parts = group.ops
    return Op(
        name=_name(group.name),
        kind=RANDOM,
        outputs=group.outputs,
        inputs=group.inputs,
        attributes=_attributes(group),
        **vars(Place.of(parts[0])),
        stateful=any(op.stateful for op in parts),
    )


def _name(scope: str) -> str:
    return f"{scope}/{RANDOM}"


def _distribution(scope: str) -> str:
    """Named after the sampling function, or the operation, at the end of the scope."""
    sampler = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", scope.rpartition("/")[2]).lower()
    return next((name for name in _DISTRIBUTIONS if name in sampler), "other")
