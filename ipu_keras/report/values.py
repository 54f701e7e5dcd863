"""Where the values of a program lie, and while which compute sets: its memory map."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ipu_keras.cost.flat.compute_sets import FlatProgram
from ipu_keras.cost.flat.liveness import Lifetime, lifetimes, storage
from ipu_keras.cost.model import Model
from ipu_keras.report.layers import bytes_of, layers_of_values

_KINDS = {"argument": "from the infeed"}
_KEPT = ("variable", "constant")


@dataclass(frozen=True, kw_only=True)
class PlacedValue:
    """A value that has memory on tiles.

    Args:
        name: Of the value.
        layer: That makes it or, if none does, uses it first; empty if unknown.
        kind: `"variable"`, `"constant"`, `"activation"`, `"from the infeed"`, or `"stash"`, which
            a pipeline keeps of earlier batches.
        shape: Of it.
        dtype: Of it.
        num_bytes: On all tiles.
        tile_bytes: On the tile that holds the most of it.
        ipu: Where it lies.
        first_tile: The first of its tiles; after the last tile of an IPU comes tile 0.
        num_tiles: How many hold some of it.
        first: The compute set, by its place in the order of execution, from which on it is there.
        last: The last one at which it is.
        is_always_live: Whether it is there all the time.
    """

    name: str
    layer: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    num_bytes: int
    tile_bytes: int
    ipu: int
    first_tile: int
    num_tiles: int
    first: int
    last: int
    is_always_live: bool

    def tiles_in_words(self, tiles_of_ipu: int) -> str:
        """Its tiles, such as `"0 to 9"`, or `"1470 to 1471, 0 to 3"` where it goes on at tile 0.

        Args:
            tiles_of_ipu: That an IPU has.
        """
        end = self.first_tile + self.num_tiles
        parts = [(self.first_tile, min(end, tiles_of_ipu)), (0, end - tiles_of_ipu)]
        ranges = [(first, stop - 1) for first, stop in parts if stop > first]
        return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in ranges)


def placed_values(model: Model) -> tuple[PlacedValue, ...]:
    """The values of a program that have memory of their own, those with the most bytes first.

    What a pipeline keeps of earlier batches is a value of its own.

    Args:
        model: After all passes.
    """
    layers = layers_of_values(model.program)
    found = (_placed(model, *one, layers) for one in _lifetimes(model.program))
    return tuple(sorted(found, key=lambda one: (-one.num_bytes, one.name, one.kind)))


def _lifetimes(program: FlatProgram) -> Iterator[tuple[str, Lifetime | None, int]]:
    """Names, when they are there, and how often; no lifetime is all the time."""
    owners, alive = storage(program), lifetimes(program)
    for name, value in program.values.items():
        if value.role == "remote" or name in program.updates or owners[name] != name:
            continue
        if value.role in _KEPT:
            yield name, None, 1
        elif name in alive:
            yield name, alive[name], 1
        if program.stashes.get(name):
            yield name, None, program.stashes[name]


def _placed(
    model: Model, name: str, lifetime: Lifetime | None, copies: int, layers: Mapping[str, str]
) -> PlacedValue:
    program, region = model.program, model.regions[name]
    value = program.values[name]
    is_stash = lifetime is None and value.role not in _KEPT
    return PlacedValue(
        name=name,
        layer=layers.get(name, ""),
        kind="stash" if is_stash else _KINDS.get(value.role, value.role),
        shape=tuple(value.spec.shape),
        dtype=value.spec.dtype,
        num_bytes=bytes_of(model, value) * copies,
        tile_bytes=region.bytes_per_tile * copies,
        ipu=value.ipu,
        first_tile=region.first_tile,
        num_tiles=region.num_tiles,
        first=0 if lifetime is None else lifetime.first,
        last=len(program.compute_sets) if lifetime is None else lifetime.last,
        is_always_live=lifetime is None,
    )
