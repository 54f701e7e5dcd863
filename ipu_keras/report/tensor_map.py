"""Which tensors of a program lie on which tiles, for `--tensor_map_file_path`."""

from collections.abc import Iterator
from typing import Any

from ipu_keras.cost.flat.liveness import storage
from ipu_keras.cost.flat.memory import Region
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.ir import num_elements


def tensor_map(model: ModelledProgram) -> dict[str, Any]:
    """Lists the tensors of a modelled program, as plain values for a JSON file.

    Args:
        model: A model after all passes, such as `report.model`.

    Returns:
        `{"mappings": {program: [tensor, ...]}}`. A tensor is a list: the operation that
        makes it, the index of the result, its shape, its element type, whether it
        is a constant, whether it takes over the memory of another tensor (a
        variable's new value does), its number of elements, and a pair of tile and
        number of elements for each tile that holds some. Tiles are counted over
        all IPUs.

    Example:

    >>> from ipu_keras import profile
    >>> import tensorflow as tf
    >>> report = profile(lambda x: -x, tf.TensorSpec((3,)), name="minus")
    >>> tensor_map(report.model)["mappings"]["minus"][0][1:]
    [0, [3], 'float32', False, False, 3, [[0, 3]]]
    """
    return {"mappings": {model.name: [list(row) for row in _tensors(model)]}}


def _tensors(model: ModelledProgram) -> Iterator[tuple]:
    program, num_tiles = model.program, model.target.num_tiles
    owners = storage(program)
    for name, value in program.values.items():
        operation, index = _operation(name)
        elements = num_elements(value.spec)
        # A variable is updated in place: its new value lies where the variable does.
        region = model.regions[program.updates.get(name, name)]
        yield (
            operation,
            index,
            list(value.spec.shape),
            value.spec.dtype,
            value.role == "constant",
            name in program.updates or owners[name] != name,
            elements,
            _shares(region, elements, num_tiles, first_of_ipu=value.ipu * num_tiles),
        )


def _operation(name: str) -> tuple[str, int]:
    operation, _, index = name.rpartition(":")
    return (operation, int(index)) if operation and index.isdigit() else (name, 0)


def _shares(region: Region, elements: int, num_tiles: int, *, first_of_ipu: int) -> list[list[int]]:
    """Returns tiles and their elements, spread as evenly as possible, the fuller tiles first."""
    share, more = divmod(elements, region.num_tiles)
    # With fewer elements than tiles, the last tiles of the region hold none.
    used = region.num_tiles if share else more
    return [
        [first_of_ipu + (region.first_tile + position) % num_tiles, share + (position < more)]
        for position in range(used)
    ]
