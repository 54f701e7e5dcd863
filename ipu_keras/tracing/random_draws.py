"""Makes one operation of each random draw, as the hardware has it.

XLA has no random number generator of the IPU's kind, and spells a draw out as hundreds of
integer instructions. On an IPU a draw is one vertex per tile, so it is one operation of kind
"random" here.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ipu_keras.ir import Op, num_elements
from ipu_keras.tracing.contraction import Group, contract, cyclic_groups
from ipu_keras.tracing.layers import LayerPlace

RANDOM = "random"

# Names of the scopes that TensorFlow's sampling functions open.
_SAMPLER = re.compile(
    r"(?:(?:stateless|stateful|parameterized)_)?"
    r"(?:(?:random|truncated)_)?"
    r"(?:uniform|normal|binomial|categorical|gamma|multinomial|poisson|shuffle)"
    r"(?:_full_int)?(?:_\d+)?"
)
# TensorFlow's operations that draw, and those that derive the state which others draw from.
_KIND = re.compile(
    r"(?:Stateless|Stateful)?(?:Random|TruncatedNormal|ParameterizedTruncatedNormal|"
    r"StandardNormal|Uniform(?:FullInt|Int)?$|Multinomial).*|Rng.*"
)
_GENERATORS = frozenset({"rng", "rng-bit-generator", "rng-get-and-update-state"})
# Looked for in this order: "truncated_normal" contains "normal".
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
    """The TensorFlow operation that an operation comes from; texts are empty if there is none."""

    path: str = ""
    kind: str = ""


def draw_of(origin: Origin) -> str:
    """Returns the scope of the random draw that an operation is a part of, or "".

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
    """Whether an operation draws, or makes the state that another draws from.

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

    It takes what the draw took from outside, such as a seed, and returns what is used outside.
    A draw stays as it is if other operations lie between its own.

    Args:
        without: Scopes of draws of which something was cut out. In these, each remaining
            operation of TensorFlow's that draws is a draw of its own.
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
    """Returns the names of operations by the scope of their draw."""
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
    # A layer may be called "normal", and draw nothing.
    return {draw: names for draw, names in found.items() if draw in drawing}


def _scope(origin: Origin, without: Collection[str]) -> str:
    draw = draw_of(origin)
    if draw not in without:
        return draw
    return origin.path if _KIND.fullmatch(origin.kind) else ""


def _attributes(group: Group) -> dict[str, Any]:
    """Returns the distribution, and for a categorical draw how many random numbers it takes."""
    distribution = _distribution(group.name)
    found: dict[str, Any] = {"distribution": distribution}
    if distribution in ("categorical", "multinomial"):
        # TensorFlow samples categories by the Gumbel trick: each random number becomes noise by
        # a logarithm, so the results of the logarithms count the numbers.
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
        **vars(LayerPlace.of(parts[0])),
        stateful=any(op.stateful for op in parts),
    )


def _name(scope: str) -> str:
    return f"{scope}/{RANDOM}"


def _distribution(scope: str) -> str:
    """Names the distribution after the sampling function, or operation, at the scope's end."""
    sampler = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", scope.rpartition("/")[2]).lower()
    return next((name for name in _DISTRIBUTIONS if name in sampler), "other")
