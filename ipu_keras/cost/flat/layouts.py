"""Says how values are spread over the tiles of an IPU, and which of them share a spread."""

import math
from collections.abc import Callable, Mapping

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram, Value, is_carry, is_update
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

    - The result of an elementwise operation lies with what it overwrites, or else with its first
      operand of the same size; that of a normalization with the tensor.
    - What a loop carries lies as its first value did.
    - What is updated in part stays where it is.
    """
    overwritten = {**program.in_place, **program.updates}
    layouts: dict[str, str] = {}
    for one in program.compute_sets:
        for name, place in _places_of(one, program, overwritten.get):
            layouts[name] = layouts.get(place, place)
    return layouts


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
