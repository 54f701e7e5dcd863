"""What each layer of a program has, does and needs, as in summaries of Keras models."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ipu_keras.cost.flat.compute_sets import FlatProgram, Value
from ipu_keras.cost.flat.liveness import lifetimes, storage
from ipu_keras.cost.flat.memory import alive_on_worst_tile
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.ir import num_elements
from ipu_keras.report.rows import NO_LAYER, Row, arranged

# Names for owners of values that no layer makes or uses, by the value's role.
_OWNERS = {"argument": "the infeed", "constant": "constants", "variable": "variables"}

_KEPT = ("variable", "constant", "remote")


@dataclass(frozen=True, kw_only=True)
class Layer(Row):
    """A layer: the sum of its rows, and what it has in memory.

    A variable or constant counts for the first layer that uses it; those that only the
    optimizer uses, such as momenta, count for the optimizer. Bytes are summed over all tiles.

    Args:
        parameters: Numbers in its variables, without those that add up gradients.
        variable_bytes: Bytes of its variables, wherever they lie, and of sums of its gradients.
        activation_bytes: Bytes of all values that it makes in a step, except those that take
            over the memory of their input; not all are in use at once.
        peak_bytes: Bytes of its values, variables and constants included, that are in use on
            tiles when the worst tile is fullest.
        **fields: The fields of `Row`, summed over the layer.
    """

    parameters: int
    variable_bytes: int
    activation_bytes: int
    peak_bytes: int


def layers_of_values(program: FlatProgram) -> dict[str, str]:
    """Returns the layer of each value that belongs to one, by the value's name."""
    layers: dict[str, str] = {}
    for one in program.compute_sets:
        layers.update((value.name, one.layer) for value in one.writes)
        if one.layer:
            # Nothing makes variables and constants, so the first layer that uses one owns it.
            for name in one.reads:
                if program.values[name].role in _KEPT:
                    layers.setdefault(name, one.layer)
    return layers


def layers_of_worst_tile(model: ModelledProgram) -> tuple[tuple[str, int], ...]:
    """Returns layers and bytes of their values on the fullest tile at its peak, largest first."""
    layers, values = layers_of_values(model.program), model.program.values
    sizes: Counter[str] = Counter()
    for name, size in alive_on_worst_tile(model.program, model.regions, model.memory):
        owner = _OWNERS.get(values[name].role, "")
        sizes[layers.get(name, owner) or NO_LAYER] += size
    return tuple(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))


def layers_of(model: ModelledProgram, rows: Sequence[Row]) -> tuple[Layer, ...]:
    """Returns the layers of a program, those with the most cycles first.

    Values that no layer makes or uses, such as inputs that are only passed on, are left out.
    """
    held: Mapping[str, Any] = _held(model)
    return tuple(Layer(**vars(row), **held[row.name]) for row in arranged(rows, "layer", "cycles"))


def _held(model: ModelledProgram) -> Mapping[str, Counter[str]]:
    """Returns what each layer has in memory, by the layer's name."""
    program, peak = model.program, model.memory.peak_position
    owners, alive = storage(program), lifetimes(program)
    names = ("parameters", "variable_bytes", "activation_bytes", "peak_bytes")
    held: defaultdict[str, Counter[str]] = defaultdict(lambda: Counter(dict.fromkeys(names, 0)))
    for name, layer in layers_of_values(program).items():
        value = program.values[name]
        if name in program.updates or owners[name] != name:
            continue  # it lies where another value does
        sizes, size = held[layer or NO_LAYER], bytes_of(model, value)
        if value.role in ("variable", "remote"):
            # Sums of gradients are no parameters, and a copy on another IPU has no new ones.
            counts = not value.is_accumulator and value.copy_of is None
            sizes["parameters"] += num_elements(value.spec) * counts
            sizes["variable_bytes"] += size
        elif value.role == "activation":
            sizes["activation_bytes"] += size
        lifetime = alive.get(name)
        now = lifetime is not None and lifetime.first <= peak <= lifetime.last
        always = value.role in ("variable", "constant")
        sizes["peak_bytes"] += size * (int(now or always) + program.stashes.get(name, 0))
    return held


def bytes_of(model: ModelledProgram, value: Value) -> int:
    """Returns the bytes of a value over all tiles that hold some of it, or in remote memory."""
    # Remote memory is no tile's: nothing is rounded up to whole shares of tiles there.
    if value.role == "remote":
        return value.spec.nbytes
    region = model.regions[value.name]
    return region.num_tiles * region.bytes_per_tile
