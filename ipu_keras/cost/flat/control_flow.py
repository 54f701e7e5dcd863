"""Says which loops and conditionals compute sets are in, and which run in place of others."""

from ipu_keras.cost.flat.compute_sets import ComputeSet


def bodies_of(one: ComputeSet) -> tuple[str, ...]:
    """Returns the loops whose bodies a compute set is in, outermost first."""
    return tuple(part.loop for part in one.loops if not part.is_condition)


def innermost_body(one: ComputeSet) -> str | None:
    """Returns the innermost loop whose body a compute set is in; `None` if in none."""
    return next(reversed(bodies_of(one)), None)


def outermost_loop(one: ComputeSet) -> str | None:
    """Returns the outermost loop that a compute set is in, body or condition; `None` if in none."""
    return one.loops[0].loop if one.loops else None


def is_in_loop(one: ComputeSet) -> bool:
    """Whether a compute set is inside a loop, which runs as a whole."""
    return one.repeat > 1 or bool(one.loops)


def are_alternatives(one: ComputeSet, other: ComputeSet) -> bool:
    """Whether two compute sets of a program are in different branches of one conditional."""
    indices = {branch.conditional: branch.index for branch in one.branches}
    return any(
        indices.get(branch.conditional, branch.index) != branch.index for branch in other.branches
    )
