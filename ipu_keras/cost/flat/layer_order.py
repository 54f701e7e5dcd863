"""The layers of a program in the order of its forward pass, and what belongs to which."""

from collections.abc import Mapping
from dataclasses import dataclass

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram


@dataclass(frozen=True)
class LayerOrder:
    """The forward pass, layer by layer; a compute set without a layer counts as one.

    Args:
        index: Positions by the layer's path and, where that is empty, the compute set's name.
        forward: Whether the compute set at each position belongs to the forward pass.
    """

    num_layers: int
    index: Mapping[tuple[str, str], int]
    forward: tuple[bool, ...]

    def layer_of(self, one: ComputeSet) -> int | None:
        """Returns the index of a compute set's layer; `None` outside of the forward pass."""
        return self.index.get(_key(one))


def layer_order(program: FlatProgram) -> LayerOrder:
    """Finds the forward pass and sorts its layers."""
    forward = _forward(program)
    last: dict[tuple[str, str], int] = {}
    for position, one in enumerate(program.compute_sets):
        # A layer comes where its last forward operation does, which makes its output: random
        # draws, which depend on nothing, may come long before.
        if forward[position]:
            last[_key(one)] = position
    ordered = sorted(last, key=last.__getitem__)
    index = {name: k for k, name in enumerate(ordered)}
    return LayerOrder(len(ordered), index, forward)


def crossing_bytes(program: FlatProgram, order: LayerOrder) -> list[int]:
    """Returns the bytes that the forward pass hands over behind each layer but the last."""
    makers: dict[str, int] = {}
    reach: dict[str, tuple[int, int]] = {}
    for position, one in enumerate(program.compute_sets):
        layer = order.layer_of(one)
        if not order.forward[position] or layer is None:
            continue
        for name in one.reads:
            if name in makers:
                first, last = reach.get(name, (makers[name], makers[name]))
                reach[name] = min(first, layer), max(last, layer)
        makers.update((value.name, layer) for value in one.writes)
    # A value adds its bytes behind its maker and takes them away behind its last reader, so one
    # pass over the sums is enough, however many boundaries a value crosses.
    changes = [0] * (order.num_layers + 1)
    for name, (first, last) in reach.items():
        size = program.values[name].spec.nbytes
        changes[first] += size
        changes[last] -= size
    crossing, total = [], 0
    for change in changes[: max(order.num_layers - 1, 0)]:
        total += change
        crossing.append(total)
    return crossing


def _key(one: ComputeSet) -> tuple[str, str]:
    """Returns the layer's path, else the name; both, as a layer may be called as an operation."""
    return one.layer, "" if one.layer else one.name


def _forward(program: FlatProgram) -> tuple[bool, ...]:
    """Says which compute sets are neither of the gradient nor depend on it."""
    made: set[str] = set()
    gradients: set[str] = set()
    forward = []
    for one in program.compute_sets:
        # Some of the gradient's operations read constants or variables alone, such as zeros that
        # the forward pass may share: what depends on these only is no gradient.
        follows = any(name in gradients for name in one.reads)
        begins = one.backward and any(name in made for name in one.reads)
        names = {value.name for value in one.writes}
        if follows or begins:
            gradients |= names
        elif not one.backward:
            made |= names
        forward.append(not (one.backward or follows))
    return tuple(forward)
