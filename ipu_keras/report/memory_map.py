"""The memory map of a program: where values lie, and while which compute sets they are there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ipu_keras.cost.flat.compute_sets import FlatProgram
from ipu_keras.cost.flat.liveness import Lifetime, lifetimes, storage
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.report.layers import bytes_of, layers_of_values

_KINDS = {"argument": "from the infeed"}
_KEPT = ("variable", "constant")


@dataclass(frozen=True, kw_only=True)
class PlacedValue:
    """A value that has memory on tiles.

    Args:
        layer: The layer that makes the value or, if none does, uses it first; empty if unknown.
        kind: `"variable"`, `"constant"`, `"activation"`, `"from the infeed"`, or `"stash"`,
            which is what a pipeline keeps of earlier batches.
        num_bytes: Bytes over all tiles.
        tile_bytes: Bytes on the tile that holds the most of the value.
        first_tile: The first of its tiles; after the last tile of an IPU comes tile 0.
        first: The position in the order of execution of the first compute set that needs it.
        last: The position of the last compute set that needs it.
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
        """Names the tiles, as `"0 to 9"`, or `"1470 to 1471, 0 to 3"` if they go on at tile 0."""
        end = self.first_tile + self.num_tiles
        parts = [(self.first_tile, min(end, tiles_of_ipu)), (0, end - tiles_of_ipu)]
        ranges = [(first, stop - 1) for first, stop in parts if stop > first]
        return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in ranges)


def placed_values(model: ModelledProgram) -> tuple[PlacedValue, ...]:
    """Returns the values that have memory of their own, those with the most bytes first.

    What a pipeline keeps of earlier batches counts as a value of its own.
    """
    layers = layers_of_values(model.program)
    found = (_placed(model, *one, layers) for one in _lifetimes(model.program))
    return tuple(sorted(found, key=lambda one: (-one.num_bytes, one.name, one.kind)))


def _lifetimes(program: FlatProgram) -> Iterator[tuple[str, Lifetime | None, int]]:
    """Yields names, lifetimes (`None` if always live) and the number of copies."""
    owners, alive = storage(program), lifetimes(program)
    for name, value in program.values.items():
        # Remote values have no tiles. The others share the memory of an owner, which counts it.
        if value.role == "remote" or name in program.updates or owners[name] != name:
            continue
        if value.role in _KEPT:
            yield name, None, 1
        elif name in alive:
            yield name, alive[name], 1
        # A stash holds batches of different ages, so some of it is in use at any time.
        if program.stashes.get(name):
            yield name, None, program.stashes[name]


def _placed(
    model: ModelledProgram,
    name: str,
    lifetime: Lifetime | None,
    copies: int,
    layers: Mapping[str, str],
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
