"""Says how values are spread over the tiles of an IPU, and which of them share a spread."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from ipu_keras.cost.flat.compute_sets import (
    ComputeSet,
    FlatProgram,
    Value,
    is_carry,
    is_sum_of_replicas,
    is_update,
)
from ipu_keras.ir import TensorSpec, num_elements
from ipu_keras.machine.target import Target

# A tile holds at least so much of a tensor: poputil's linear mapping spreads no
# thinner, so that small tensors do not touch every tile.
_MIN_BYTES_PER_TILE = 128

_ELEMENTWISE = frozenset({"cast", "elementwise"})
_NORMALIZATIONS = frozenset({"norm", "softmax"})


def num_tiles_of(spec: TensorSpec, target: Target) -> int:
    """Returns how many tiles a tensor is spread over."""
    return max(1, min(target.num_tiles, math.ceil(spec.nbytes / _MIN_BYTES_PER_TILE)))


def elements_per_tile(spec: TensorSpec, target: Target) -> int:
    """Returns the elements of a tensor on the tile with the most."""
    return math.ceil(num_elements(spec) / num_tiles_of(spec, target))


def bytes_per_tile(spec: TensorSpec, target: Target) -> int:
    """Returns the bytes of a tensor on the tile with the most."""
    return math.ceil(spec.nbytes / num_tiles_of(spec, target))


def item_bytes(spec: TensorSpec) -> int:
    """Returns the bytes of one element, also for a tensor that has no elements."""
    return TensorSpec((), spec.dtype).nbytes


def layouts_of(program: FlatProgram) -> dict[str, str]:
    """Returns, for values that lie as others do, the name of the one whose spread they share.

    Each value is spread by itself, but for these:

    - What only elementwise operations read of variables, such as momenta and accumulators, lies
      with the variable that they compute with: the weight whose state it is. What only they read
      of arguments, such as targets, lies with a result that they compare it with, as of a product.
    - The result of an elementwise operation lies with what it overwrites, or else with its first
      operand of the same size; that of a normalization with the tensor.
    - What a loop carries lies as its first value did.
    - What is updated in part, or summed over replicas, stays where it is.
    """
    overwritten = {**program.in_place, **program.updates}
    layouts = dict(_places_of_state(program))
    for one in program.compute_sets:
        for name, place in _places_of(one, program, overwritten.get):
            layouts[name] = layouts.get(place, place)
    # What an argument lies with may lie with something else itself.
    return {name: layouts.get(place, place) for name, place in layouts.items()}


# Operations that make a value of a variable that is elsewhere otherwise.
_FETCHES = frozenset({"all-gather", "load"})


def allocated_values(program: FlatProgram) -> frozenset[str]:
    """Returns the values that are allocated as an operation that reads them wants them.

    All others lie as what makes them leaves them, or with what is allocated; see `layouts_of`.
    TensorFlow for IPUs allocates what it feeds, keeps, copies to an IPU, loads or gathers.
    """
    fetched = {
        value.name
        for one in program.compute_sets
        if one.ops[-1].kind in _FETCHES
        for value in one.writes
    }
    return frozenset(
        name
        for name, value in program.values.items()
        if value.role != "activation" or value.copy_of is not None or name in fetched
    )


def _places_of_state(program: FlatProgram) -> Iterator[tuple[str, str]]:
    """Yields what no operation wants in a place of its own, each with what it joins.

    TensorFlow for IPUs lays such a tensor as the other operand of the operations that read it, and
    an accumulator as its variable: so the whole update of a weight stays on the weight's tiles.
    """
    joined: dict[str, str] = {}

    def group_of(name: str) -> str:
        way = [name]
        while joined.get(way[-1], way[-1]) != way[-1]:
            way.append(joined[way[-1]])
        joined.update(dict.fromkeys(way, way[-1]))
        return way[-1]

    sizes = {name: num_elements(value.spec) for name, value in program.values.items()}
    wanted: set[str] = set()
    fetched: set[str] = set()
    made: list[str] = []
    for one in program.compute_sets:
        if one.family in _ELEMENTWISE and one.body is None and one.writes:
            result = group_of(one.writes[0].name)
            alike = [name for name in one.reads if sizes[name] == sizes[one.writes[0].name]]
            joined.update((group_of(name), result) for name in alike)
        elif is_sum_of_replicas(one):
            pairs = zip(one.reads, one.writes, strict=True)
            joined.update((group_of(name), group_of(value.name)) for name, value in pairs)
        elif one.ops[-1].kind in _FETCHES:
            fetched.update(value.name for value in one.writes)
        else:
            wanted.update(one.reads)
            made.extend(value.name for value in one.writes)
    groups = defaultdict(list)
    for name, value in program.values.items():
        if value.role == "variable" or name in fetched:
            groups[group_of(name)].append(name)
    for members in groups.values():
        place = next((name for name in members if name in wanted), members[0])
        yield from ((name, place) for name in members if name not in wanted and name != place)
    results = {group_of(name): name for name in reversed(made)}
    for name, value in program.values.items():
        if value.role == "argument" and name not in wanted and group_of(name) in results:
            yield name, results[group_of(name)]


def _places_of(
    one: ComputeSet, program: FlatProgram, overwritten: Callable[[str], str | None]
) -> list[tuple[str, str]]:
    """Lists the results of a compute set, each with the value that it lies with."""
    # Values of an operation of Poplar's libraries are spread as the operation wants them.
    if one.body is not None or not one.writes:
        return []
    result = one.writes[0]
    if one.family in _NORMALIZATIONS:
        size = num_elements(program.values[one.reads[0]].spec)
        # Sums lie by themselves: a reduction writes them to tiles of its own.
        made = [value for value in one.writes if num_elements(value.spec) == size]
        return [(value.name, one.reads[0]) for value in made]
    if one.family in _ELEMENTWISE:
        place = overwritten(result.name) or first_of_size(one, program.values)
        # A view has the tiles of what it shows, but another order on them.
        return [] if place is None or place in one.viewed else [(result.name, place)]
    if is_sum_of_replicas(one):
        pairs = zip(one.reads, one.writes, strict=True)
        return [(value.name, name) for name, value in pairs]
    if is_carry(one):
        return [(result.name, overwritten(result.name) or one.reads[0])]
    if is_update(one):
        return [(result.name, one.reads[0])]
    return []


def first_of_size(one: ComputeSet, values: Mapping[str, Value]) -> str | None:
    """Returns the first operand with as many elements as the result, if there is one."""
    size = num_elements(one.writes[0].spec)
    sizes = ((name, num_elements(values[name].spec)) for name in one.reads)
    return next((name for name, found in sizes if found == size), None)
